"""The real recogniser with the real phrases of the example home."""

from __future__ import annotations

import pytest

from appliance.app import Wren
from appliance.audio.frame import Samples
from appliance.intent.memory_home import default_home
from appliance.voice.asr.acceptance import accepted_text
from appliance.voice.asr.bias_keeper import home_bias
from appliance.voice.asr.protocol import Bias, Cancel, Cancelled, Hypothesis
from tests.voice.conftest import say

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def bias() -> Bias:
    return home_bias(default_home().view())


def heard(wren: Wren, sound: Samples, bias: Bias | None, cancel: Cancel | None = None) -> Hypothesis:
    recogniser = wren.recogniser()
    recogniser.push_samples(sound)
    return recogniser.hypothesise(recogniser.samples, bias, cancel or Cancel())


def test_a_command_is_its_own_phrase_wake_word_and_all(wren: Wren, spoken: Samples, bias: Bias) -> None:
    hypothesis = heard(wren, spoken, bias)
    assert hypothesis.complete
    assert "lights" in (hypothesis.phrase or "")
    accepted = accepted_text(hypothesis, wren.assistant.match)
    assert accepted.understanding.intent == "HassTurnOn"


def test_the_beginning_of_a_command_is_told_from_a_whole_one(wren: Wren, bias: Bias) -> None:
    hypothesis = heard(wren, say(wren, "set a timer for"), bias)
    assert hypothesis.reach is not None
    assert hypothesis.reach.inside
    assert not hypothesis.complete
    assert hypothesis.extendable


def test_talk_is_no_phrase(wren: Wren, bias: Bias) -> None:
    hypothesis = heard(wren, say(wren, "the old captain never liked the colour of the sea"), bias)
    assert hypothesis.phrase is None
    assert not hypothesis.complete
    assert len(hypothesis.text.split()) > 6


def test_without_phrases_nothing_is_said_of_them(wren: Wren, spoken: Samples) -> None:
    hypothesis = heard(wren, spoken, None)
    assert hypothesis.complete is hypothesis.extendable is hypothesis.phrase is None


def test_a_biased_recognition_can_be_cancelled(wren: Wren, spoken: Samples, bias: Bias) -> None:
    cancel = Cancel()
    cancel.cancel()
    with pytest.raises(Cancelled):
        heard(wren, spoken, bias, cancel)
