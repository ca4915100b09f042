"""Strategies as tables: what is known, and how long a silence it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.asr.protocol import Extension
from appliance.voice.endpoint import (
    PATIENT,
    QUICK,
    Decision,
    EndpointSettings,
    Evidence,
    MeaningEndpoint,
    PauseSettings,
    SilenceEndpoint,
    SilenceSettings,
    SpeakerPauses,
    Verdict,
    make_endpoint,
)

SPEAKING = Evidence(listening_s=2.0, speech_s=1.0, silence_s=0.0, understood=None)


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
    evidence = Evidence(listening_s, speech_s, silence_s, understood)
    later = replace(evidence, listening_s=listening_s + 1, silence_s=silence_s + 1 if silence_s else 0.0)
    endpoint = SilenceEndpoint()
    if endpoint.decide(evidence).verdict is Verdict.END:
        assert endpoint.decide(later).verdict is Verdict.END


def _ends_after(endpoint: MeaningEndpoint, **known: object) -> tuple[float, str]:
    """Silence in steps of 10 ms until the end."""
    for step in range(1, 400):
        silence_s = step / 100
        evidence = replace(SPEAKING, quiet_s=silence_s, silence_s=max(0.0, silence_s - 0.2), **known)  # type: ignore[arg-type]
        decision = endpoint.decide(evidence)
        if decision.verdict is Verdict.END:
            return silence_s, decision.reason
    return 4.0, "never"


WHOLE = {"understood": True, "certain": True, "verbatim": True, "clear": True, "closed": True}
NEAR = {**WHOLE, "verbatim": False}
TABLE = [
    ({**WHOLE, "extension": Extension.NONE}, QUICK.whole_s, "whole"),
    ({**WHOLE, "extension": Extension.RARE}, QUICK.whole_s, "whole"),
    (NEAR, QUICK.near_whole_s, "near-whole"),
    ({**WHOLE, "clear": False}, QUICK.near_whole_s, "near-whole"),
    ({**NEAR, "clear": False}, QUICK.may_go_on_s, "near-whole"),
    ({**WHOLE, "closed": False}, QUICK.open_s, "whole-open"),
    ({**WHOLE, "closed": False, "clear": False}, QUICK.near_whole_s, "near-whole"),
    ({**WHOLE, "extension": Extension.LIKELY}, QUICK.clear_so_far_s, "whole-so-far"),
    ({**WHOLE, "extension": Extension.LIKELY, "clear": False}, QUICK.may_go_on_s, "whole-so-far"),
    ({**WHOLE, "extension": Extension.LIKELY, "closed": False}, QUICK.may_go_on_s, "whole-so-far"),
    ({**NEAR, "unfinished": True}, QUICK.unsure_s, "understood"),
    ({"understood": True, "certain": False}, QUICK.unsure_s, "understood"),
    ({"understood": False}, QUICK.not_understood_s, "silence-not-understood"),
    ({"understood": None}, QUICK.not_understood_s, "silence-not-understood"),
]


@pytest.mark.parametrize(("known", "wait_s", "reason"), TABLE)
def test_the_less_is_known_the_longer_it_waits(known: dict[str, object], wait_s: float, reason: str) -> None:
    assert _ends_after(MeaningEndpoint(), **known) == (pytest.approx(wait_s, abs=0.011), reason)


def test_the_waits_are_in_order_in_every_style() -> None:
    for style in (QUICK, PATIENT):
        waits = [style.likely_s, style.whole_s, style.open_s, style.near_whole_s, style.clear_so_far_s]
        waits += [style.may_go_on_s, style.unsure_s]
        assert waits == sorted(waits)
        assert waits[-1] < style.not_understood_s
    assert PATIENT.whole_s > QUICK.whole_s


def test_a_guess_is_worth_it_long_before_voice_activity_lets_go() -> None:
    assert MeaningEndpoint().decide(replace(SPEAKING, quiet_s=0.03)).verdict is Verdict.WAIT
    assert MeaningEndpoint().decide(replace(SPEAKING, quiet_s=0.07)).verdict is Verdict.LIKELY


def test_a_television_does_not_make_it_listen_for_ever() -> None:
    endpoint = MeaningEndpoint()
    behind = replace(SPEAKING, understood=True, certain=True, verbatim=True, clear=True, closed=True)
    assert endpoint.decide(replace(behind, faint_s=0.5)).verdict is Verdict.WAIT
    assert endpoint.decide(replace(behind, faint_s=0.9)) == Decision(Verdict.END, "whole")
    as_loud = replace(SPEAKING, steady_s=QUICK.steady_s)
    assert endpoint.decide(as_loud) == Decision(Verdict.END, "steady")
    assert endpoint.decide(replace(SPEAKING, listening_s=28.0)) == Decision(Verdict.END, "too-long")


def test_nobody_speaks_and_a_follow_up_waits_its_own_time() -> None:
    quiet = replace(SPEAKING, speech_s=0.0, listening_s=3.0)
    assert MeaningEndpoint().decide(quiet).verdict is Verdict.WAIT
    assert MeaningEndpoint().decide(replace(quiet, no_speech_s=2.5)) == Decision(Verdict.END, "no-speech")
    assert MeaningEndpoint().decide(replace(quiet, listening_s=6.0)) == Decision(Verdict.END, "no-speech")


EVIDENCE = st.builds(
    Evidence,
    listening_s=st.floats(0, 40),
    speech_s=st.floats(0, 40),
    silence_s=st.floats(0, 5),
    understood=st.sampled_from([True, False, None]),
    quiet_s=st.floats(0, 5),
    faint_s=st.floats(0, 5),
    certain=st.booleans(),
    verbatim=st.booleans(),
    clear=st.booleans(),
    closed=st.booleans(),
    unfinished=st.booleans(),
    extension=st.sampled_from(Extension),
    steady_s=st.floats(0, 5),
)


@given(EVIDENCE, st.floats(0, 3))
def test_a_longer_silence_never_takes_a_meaningful_end_back(evidence: Evidence, more_s: float) -> None:
    later = replace(evidence, listening_s=evidence.listening_s + more_s, quiet_s=evidence.quiet_s + more_s)
    if MeaningEndpoint().decide(evidence).verdict is Verdict.END:
        assert MeaningEndpoint().decide(later).verdict is Verdict.END


@given(EVIDENCE)
def test_an_early_end_needs_a_sure_and_whole_sentence(evidence: Evidence) -> None:
    decision = MeaningEndpoint().decide(evidence)
    if decision.reason == "whole":
        assert evidence.certain
        assert evidence.verbatim
        assert evidence.closed
        assert not evidence.unfinished
        assert evidence.understood
        assert evidence.extension is not Extension.LIKELY


def _paused(endpoint: MeaningEndpoint, pause_s: float) -> None:
    """An utterance with a pause in the middle."""
    endpoint.reset()
    for step in range(round(pause_s * 100)):
        endpoint.decide(replace(SPEAKING, quiet_s=step / 100))
    endpoint.decide(SPEAKING)


def test_who_pauses_is_given_more_time_and_loses_it_again() -> None:
    endpoint = MeaningEndpoint()
    could_go_on = {**WHOLE, "extension": Extension.LIKELY}
    for _ in range(4):
        _paused(endpoint, 0.5)
    endpoint.reset()
    patient_s, _ = _ends_after(endpoint, **could_go_on)
    assert QUICK.clear_so_far_s + 0.3 < patient_s < QUICK.clear_so_far_s + 0.42
    for _ in range(30):
        endpoint.reset()
    assert endpoint.extra_s < 0.05


def test_a_sentence_that_cannot_go_on_does_not_wait_for_slow_speakers_either() -> None:
    endpoint = MeaningEndpoint()
    for _ in range(10):
        _paused(endpoint, 0.8)
    endpoint.reset()
    assert _ends_after(endpoint, **WHOLE)[0] == pytest.approx(QUICK.whole_s, abs=0.011)


@given(st.lists(st.one_of(st.floats(0, 1e6), st.none()), max_size=60))
def test_what_is_learnt_of_pauses_is_bounded(story: list[float | None]) -> None:
    pauses, settings = SpeakerPauses(), PauseSettings()
    for pause_s in story:
        if pause_s is None:
            pauses.utterance_over()
        else:
            pauses.observe(pause_s)
        assert 0.0 <= pauses.extra_s <= settings.most_s


def test_consonants_and_breath_teach_nothing() -> None:
    pauses = SpeakerPauses()
    for _ in range(20):
        pauses.observe(0.1)
    assert pauses.extra_s == 0.0


def test_styles_by_name() -> None:
    silence = SilenceSettings(no_speech_s=9.0)
    assert isinstance(make_endpoint(EndpointSettings("plain", silence)), SilenceEndpoint)
    for style in ("quick", "patient"):
        endpoint = make_endpoint(EndpointSettings(style, silence))  # type: ignore[arg-type]
        assert isinstance(endpoint, MeaningEndpoint)
        assert endpoint.decide(replace(SPEAKING, speech_s=0.0, listening_s=8.9)).verdict is Verdict.WAIT
