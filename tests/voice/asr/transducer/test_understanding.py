"""The whole chain, judged by what was said: tones that stand for pieces of words."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from appliance.audio.frame import Samples
from appliance.intent.phrase_graph import END, GraphBuilder
from appliance.intent.types import Understanding
from appliance.voice.asr.acceptance import ACCEPT_GAP, Accepted, accepted_text
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.protocol import Cancel, Hypothesis
from appliance.voice.asr.transducer.recogniser import TransducerRecogniser
from tests.voice.asr.transducer.hearing import heard, model_of
from tests.voice.asr.transducer.tone_model import spoken_tones, write_tone_model

COMMAND = ("▁TURN", "▁ON", "▁THE", "▁KIT", "CHEN", "▁LI", "GHT", "S")
FAINT = 0.05
"""A tone so loud is a little less likely than none."""
PHRASES = ("turn on the kitchen lights", "turn off the kitchen lights", "turn on the lights")


@pytest.fixture(scope="module")
def tone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tone_model(tmp_path_factory.mktemp("tones"))


@pytest.fixture(scope="module")
def phrases() -> LetterBias:
    builder = GraphBuilder()
    return LetterBias(builder.graph(1, builder.words([(phrase, END) for phrase in PHRASES])))


def hypothesis_of(folder: Path, sound: Samples, bias: LetterBias | None) -> Hypothesis:
    recogniser = TransducerRecogniser(model_of(folder))
    heard(recogniser, sound)
    return recogniser.hypothesise(recogniser.samples, bias, Cancel())


def accepted(hypothesis: Hypothesis) -> Accepted:
    def understood(text: str) -> Understanding:
        return Understanding(text, "Known" if text in PHRASES else None)

    return accepted_text(hypothesis, understood)


def test_what_was_said_is_written_while_it_is_said(tone_folder: Path) -> None:
    sound = spoken_tones(COMMAND)
    recogniser = TransducerRecogniser(model_of(tone_folder))
    partials = heard(recogniser, sound)
    assert recogniser.flush().text == "turn on the kitchen lights"
    assert len(partials) >= 4
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(partials))
    assert "turn on the kitchen lights".startswith(partials[-1])


def test_a_look_in_the_middle_reads_so_far(tone_folder: Path) -> None:
    sound = spoken_tones(COMMAND)
    recogniser = TransducerRecogniser(model_of(tone_folder))
    heard(recogniser, sound)
    until = spoken_tones(COMMAND[:5]).size
    assert recogniser.hypothesise(until, None, Cancel()).text == "turn on the kitchen"


def test_a_phrase_clearly_said_is_certain(tone_folder: Path, phrases: LetterBias) -> None:
    found = accepted(hypothesis_of(tone_folder, spoken_tones(COMMAND), phrases))
    assert (found.text, found.source, found.gap) == ("turn on the kitchen lights", "free", 0.0)
    assert found.certain


def test_a_word_too_faint_for_the_text_is_won_back_by_the_home(tone_folder: Path, phrases: LetterBias) -> None:
    sound = spoken_tones(COMMAND, faint={2: FAINT})
    hypothesis = hypothesis_of(tone_folder, sound, phrases)
    assert hypothesis_of(tone_folder, sound, None).text == hypothesis.text == "turn on kitchen lights"
    found = accepted(hypothesis)
    assert (found.text, found.source) == ("turn on the kitchen lights", "phrase")
    assert 0 < found.gap < ACCEPT_GAP
    swallowed = accepted(hypothesis_of(tone_folder, spoken_tones(COMMAND, faint={2: 1e-4}), phrases))
    assert (swallowed.text, swallowed.understanding.intent) == ("turn on kitchen lights", None)


def test_an_opposite_that_was_said_is_not_turned_round(tone_folder: Path, phrases: LetterBias) -> None:
    said = ("▁TURN", "▁OFF", *COMMAND[2:])
    assert accepted(hypothesis_of(tone_folder, spoken_tones(said), phrases)).text == "turn off the kitchen lights"


def test_a_word_that_was_not_said_is_not_put_in(tone_folder: Path, phrases: LetterBias) -> None:
    """Far from every phrase: there is none, or none that is near enough."""
    hypothesis = hypothesis_of(tone_folder, spoken_tones(("▁TURN", "▁IN", "▁A", "▁KIT", "ING")), phrases)
    assert hypothesis.text == "turn in a kiting"
    assert accepted(hypothesis).understanding.intent is None


def test_silence_says_nothing(tone_folder: Path, phrases: LetterBias) -> None:
    hypothesis = hypothesis_of(tone_folder, spoken_tones(()), phrases)
    assert (hypothesis.text, hypothesis.phrase) == ("", None)
