"""When it is worth a guess that somebody has finished, and what is known for the decision."""

from __future__ import annotations

import pytest

from appliance.voice.asr.protocol import Extension, Hypothesis, Reach
from appliance.voice.ending import Ending
from appliance.voice.hearing import Heard
from appliance.voice.vad import SpeechState

BEGUN = Reach(inside=True, complete=False, extension=Extension.LIKELY)


def _heard(now_s: float, quiet_s: float, *, speaking: bool = False) -> Heard:
    """After speech up to `quiet_s` ago, of which voice activity knows, or not yet."""
    ended_s = None if speaking else now_s - quiet_s
    return Heard(now_s, SpeechState(speaking, False, 1.0, ended_s, 1.0, 0.0 if speaking else quiet_s), quiet_s, quiet_s)


def test_a_sure_silence_is_worth_a_guess_a_shorter_one_only_where_there_is_time_for_it() -> None:
    asked: list[bool] = []
    for allowed in (False, True):
        ending = Ending(0.2, lambda allowed=allowed: asked.append(allowed) or allowed)  # type: ignore[misc]
        assert ending.guess_due(_heard(2.0, 0.1), 0.1) is allowed
        assert ending.guess_due(_heard(2.0, 0.2), 0.2)
    assert asked == [False, True], "what is due in any case is not asked for"


def test_a_guess_into_sound_that_goes_on_is_told_from_one_into_silence() -> None:
    ending = Ending(0.2, lambda: True)
    assert ending.guess_due(_heard(2.0, 0.0, speaking=True), 0.0)
    assert ending.near_only
    assert ending.guess_due(_heard(2.2, 0.1), 0.1)
    assert not ending.near_only


def test_where_nothing_was_read_it_is_looked_at_again_once_it_is_surely_quiet() -> None:
    ending = Ending(0.2, lambda: True)
    nothing = Hypothesis("", 0.0)
    assert ending.too_soon_for(nothing, _heard(2.0, 0.1))
    assert not ending.guess_due(_heard(2.1, 0.2), 0.2)
    assert ending.guess_due(_heard(2.21, 0.31), 0.31)
    assert not ending.too_soon_for(nothing, _heard(2.21, 0.31)), "by then, nothing was said"
    assert not ending.too_soon_for(Hypothesis("on", -1.0), _heard(2.0, 0.1))


def test_speech_that_went_on_ends_the_silence_before_voice_activity_knows_and_not_in_the_next_utterance() -> None:
    ending = Ending(0.2, lambda: True)
    ending.begin(1.0, None)
    ending.went_on(2.9)
    shown = ending.evidence(_heard(3.0, 0.5), None, None, 3.0)
    assert (shown.listening_s, shown.silence_s) == (2.0, pytest.approx(0.1))
    assert (shown.understood, shown.no_speech_s) == (None, None)
    ending.begin(2.5, 5.0)
    shown = ending.evidence(_heard(3.0, 0.5), None, None, 3.0)
    assert (shown.silence_s, shown.no_speech_s) == (0.5, 5.0)


@pytest.mark.parametrize(
    ("text", "reach", "phrase", "unfinished"),
    [
        ("turn on", BEGUN, "turn on the lights", True),
        ("turn on", BEGUN, None, True),
        ("turn on the lice", BEGUN, "turn on the lights", False),
        ("turn on", Reach(False, False, Extension.NONE), None, False),
        ("turn on the lights", Reach(True, True, Extension.NONE), None, False),
        ("turn on", None, None, False),
    ],
)
def test_a_beginning_is_unfinished_but_for_a_phrase_of_as_many_words(
    text: str, reach: Reach | None, phrase: str | None, *, unfinished: bool
) -> None:
    guess = Hypothesis(text, -1.0, 4, phrase=phrase, reach=reach)
    assert Ending(0.2, lambda: True).evidence(_heard(3.0, 0.5), guess, None, 3.0).unfinished is unfinished
