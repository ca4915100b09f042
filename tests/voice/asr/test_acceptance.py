from __future__ import annotations

import pytest

from appliance.intent.types import Understanding
from appliance.voice.asr.acceptance import ACCEPT_GAP, EARLY_GAP, accepted_text
from appliance.voice.asr.protocol import Extension, Hypothesis, Reach

WHOLE, LIKELY_MORE = Reach(True, True, Extension.RARE), Reach(True, True, Extension.LIKELY)
BEGUN, OUTSIDE = Reach(True, False, Extension.LIKELY), Reach(False, False, Extension.NONE)
MEANINGS = {"lamp on": "HassTurnOn", "lamp off": "HassTurnOff", "stop": "HassMediaPause"}


def understood(text: str) -> Understanding:
    return Understanding(text, MEANINGS.get(text))


def heard(text: str, reach: Reach = OUTSIDE, phrase: str | None = None, gap: float = 0.0) -> Hypothesis:
    logp = None if phrase is None else -1.0 - gap
    return Hypothesis(text, -1.0, 3, phrase, logp, reach, None if phrase is None else WHOLE)


def test_a_text_that_means_something_is_taken_as_it_is() -> None:
    accepted = accepted_text(heard("lamp on", WHOLE, "lamp on"), understood)
    assert (accepted.source, accepted.text, accepted.understanding.intent) == ("free", "lamp on", "HassTurnOn")
    assert accepted.certain
    assert accepted.complete
    assert not accepted.extendable


def test_the_phrase_never_overrules_a_text_that_means_something() -> None:
    accepted = accepted_text(heard("lamp on", OUTSIDE, "lamp off", gap=-2.0), understood)
    assert accepted.understanding.intent == "HassTurnOn"


@pytest.mark.parametrize("gap", [0.0, EARLY_GAP, EARLY_GAP + 0.1, ACCEPT_GAP])
def test_a_near_phrase_stands_in_for_a_text_that_means_nothing(gap: float) -> None:
    accepted = accepted_text(heard("lamb on", OUTSIDE, "lamp on", gap), understood)
    assert (accepted.source, accepted.text, accepted.understanding.intent) == ("phrase", "lamp on", "HassTurnOn")
    assert accepted.gap == pytest.approx(gap)
    assert accepted.certain == (gap <= EARLY_GAP)


def test_a_far_phrase_does_not() -> None:
    accepted = accepted_text(heard("land rover", OUTSIDE, "lamp on", ACCEPT_GAP + 0.1), understood)
    assert (accepted.source, accepted.understanding.intent, accepted.complete) == ("free", None, False)
    assert not accepted.certain


def test_a_phrase_that_means_nothing_here_is_not_taken() -> None:
    accepted = accepted_text(heard("lamb", OUTSIDE, "lamp", 0.5), understood)
    assert accepted.understanding.intent is None


def test_the_beginning_of_a_sentence_is_unfinished() -> None:
    accepted = accepted_text(heard("lamp", BEGUN), understood)
    assert not accepted.complete
    assert accepted.extendable


def test_what_may_still_follow_is_told() -> None:
    assert accepted_text(heard("lamp on", LIKELY_MORE, "lamp on"), understood).extendable


def test_without_a_bias_nothing_is_certain() -> None:
    accepted = accepted_text(Hypothesis("lamp on", -1.0), understood)
    assert accepted.understanding.intent == "HassTurnOn"
    assert not accepted.certain
    assert accepted.gap == float("inf")
