from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.endpoint import Decision, Evidence, SilenceEndpoint, Verdict

SPEAKING = Evidence(probability=0.9, listening_s=2.0, speech_s=1.0, silence_s=0.0, understood=None)


def _decide(**changes: object) -> Decision:
    return SilenceEndpoint().decide(replace(SPEAKING, **changes))  # type: ignore[arg-type]


def test_while_somebody_speaks_it_waits() -> None:
    assert _decide().verdict is Verdict.WAIT


def test_a_short_silence_is_worth_a_guess() -> None:
    assert _decide(silence_s=0.1).verdict is Verdict.WAIT
    assert _decide(silence_s=0.25).verdict is Verdict.LIKELY
    assert _decide(silence_s=0.69, understood=True).verdict is Verdict.LIKELY


def test_a_sentence_that_is_understood_ends_sooner_than_one_that_is_not() -> None:
    assert _decide(silence_s=0.7, understood=True) == Decision(Verdict.END, "silence")
    for understood in (None, False):
        assert _decide(silence_s=1.4, understood=understood).verdict is Verdict.LIKELY
        assert _decide(silence_s=1.5, understood=understood) == Decision(Verdict.END, "silence-not-understood")


def test_nobody_speaks_and_nobody_stops() -> None:
    assert _decide(speech_s=0.0, listening_s=5.9).verdict is Verdict.WAIT
    assert _decide(speech_s=0.0, listening_s=6.0) == Decision(Verdict.END, "no-speech")
    assert _decide(listening_s=28.0) == Decision(Verdict.END, "too-long")


@given(st.floats(0, 40), st.floats(0, 40), st.floats(0, 5), st.sampled_from([True, False, None]))
def test_more_silence_never_takes_an_end_back(
    listening_s: float, speech_s: float, silence_s: float, understood: bool | None
) -> None:
    evidence = Evidence(0.1, listening_s, speech_s, silence_s, understood)
    later = replace(evidence, listening_s=listening_s + 1, silence_s=silence_s + 1 if silence_s else 0.0)
    endpoint = SilenceEndpoint()
    if endpoint.decide(evidence).verdict is Verdict.END:
        assert endpoint.decide(later).verdict is Verdict.END
