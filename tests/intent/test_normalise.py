"""Transcripts are written the way the grammar takes them, whatever comes in."""

from __future__ import annotations

import pytest
from hassil.util import normalize_for_matching
from hypothesis import given
from hypothesis import strategies as st

from appliance.intent.language import load_language
from appliance.intent.normalise import MAX_CHARS, normalise, normalise_tracked

CASES = {
    # punctuation, case, apostrophes
    "Set a timer for five minutes.": "set a timer for 5 minutes",
    "What's the temperature?": "what's the temperature",
    "What’s the temperature?": "what's the temperature",
    "Never mind.": "never mind",
    "  Turn on   the lights!! ": "turn on the lights",
    "“Turn on” the 'kitchen' lights…": "turn on the kitchen lights",
    "what is today's date": "what is today's date",
    # units
    "Set bed light brightness to 75%.": "set bed light brightness to 75 percent",
    "set it to 75 %": "set it to 75 percent",
    "set it to 75 per cent": "set it to 75 percent",
    "set it to 20.5°": "set it to 20.5 degrees",
    "set a 45-minute timer": "set a 45 minute timer",
    "set a timer for 5 min": "set a timer for 5 minutes",
    "set a timer for 30sec.": "set a timer for 30 seconds",
    "2700K": "2700 kelvin",
    "at 7:30 a.m.": "at 7:30 am",
    "the A.C. is on": "the ac is on",
    # number words
    "seventy five percent": "75 percent",
    "twenty-five minutes": "25 minutes",
    "a hundred percent": "100 percent",
    "one hundred and twenty five": "125",
    "twenty seven hundred kelvin": "2700 kelvin",
    "27 hundred kelvin": "2700 kelvin",
    "one thousand five hundred": "1500",
    "two thousand and six": "2006",
    "twenty point five degrees": "20.5 degrees",
    "five twenty": "5 20",
    "one two three": "1 2 3",
    "zero percent": "0 percent",
    "1,500 kelvin": "1500 kelvin",
    "five and ten": "5 and 10",
    "minus -5 degrees": "minus -5 degrees",
    # durations
    "half an hour": "30 minutes",
    "a half hour": "30 minutes",
    "half a minute": "30 seconds",
    "an hour": "1 hour",
    "an hour and a half": "1 hour and 30 minutes",
    "one and a half hours": "1 hour and 30 minutes",
    "2½ minutes": "2 minutes and 30 seconds",
    "2.5 minutes": "2 minutes and 30 seconds",
    "0.5 hours": "30 minutes",
    "a quarter of an hour": "15 minutes",
    "three quarters of an hour": "45 minutes",
    "an hour and a quarter": "1 hour and 15 minutes",
    "twenty one and a half degrees": "21.5 degrees",
    "to eleven and a half": "to 11.5",
    "hows the timer": "how's the timer",
    # what is said before one begins
    "Uh, turn on the light": "turn on the light",
    "okay so um turn on the light": "turn on the light",
    "Okay Nabu, turn on the light": "turn on the light",
    "alexa turn on the light": "turn on the light",
    "Hey Jarvis. Okay, what time is it?": "what time is it",
    "turn on the okay light": "turn on the okay light",
    # never guessed
    "set a timer four for minutes": "set a timer 4 for minutes",
    "the second floor": "the second floor",
    "to the two": "to the 2",
    # nothing
    "": "",
    "...": "",
    "uh": "",
    # symbols
    "turn on 💡 lamp": "turn on 💡 lamp",
    "salt & pepper": "salt and pepper",
    "[kitchen] {light} (old) <x>|y": "kitchen light old x y",
    "living-room_lamp": "living room lamp",
    "ＡＢＣ １２": "abc 12",
}


@pytest.mark.parametrize(("heard", "taken"), CASES.items(), ids=list(CASES))
def test_is_written_as_the_grammar_takes_it(heard: str, taken: str) -> None:
    assert normalise(heard) == taken


MADE_OF = """a an and half quarter of hour hours minute minutes second degrees percent point one two five twenty
hundred thousand 1 2 27 1/2 2.5 ½ % ° - uh so okay nabu hey jarvis per cent min 5min h k 's what's A.C. per-cent a.m.
t v it's 1,000 , . ' [ {"""
WORDS = st.sampled_from(MADE_OF.split())
LIKELY = st.lists(WORDS, max_size=12).map(" ".join)


@given(st.one_of(st.text(max_size=200), LIKELY))
def test_is_idempotent(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@given(st.one_of(st.text(max_size=3 * MAX_CHARS), LIKELY))
def test_is_total_and_bounded(text: str) -> None:
    assert len(normalise(text)) <= MAX_CHARS


@given(st.one_of(st.text(max_size=100), LIKELY))
def test_leaves_nothing_for_hassil_to_take_away(text: str) -> None:
    """Names are normalised by us alone: what hassil took from texts would be missing in them."""
    once = normalise(text)
    assert normalize_for_matching(once).text == once


@given(st.one_of(st.text(max_size=100), LIKELY))
def test_every_word_can_be_said_back(text: str) -> None:
    plain = normalise_tracked(text, load_language("en"))
    assert plain.as_said(0, len(plain.text)) in text
    at = 0
    for word in plain.words:
        assert plain.as_said(at, at + len(word.text)) in text
        at += len(word.text) + 1


def test_says_back_the_original_words() -> None:
    plain = normalise_tracked("Okay, play Twenty One Pilots!", load_language("en"))
    assert plain.text == "play 21 pilots"
    assert plain.as_said(5, len(plain.text)) == "Twenty One Pilots"
