"""What the home's people like to say: read from the home file, understood, expected by recognition, or refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import HomeFileError
from appliance.intent.assistant import Assistant
from appliance.intent.home_file import parse_home
from appliance.intent.lexicon import naming
from appliance.intent.memory_home import MemoryHome
from appliance.intent.own_sentences import MAX_WAYS, ways_of
from appliance.intent.phrases import phrase_graph
from appliance.intent.types import HomeView, UtteranceId
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.protocol import Extension

MOVIE = {"say": ["movie time", "(start|begin) [the] movie night"], "means": "turn off the ceiling light"}


def view_of(*sentences: object) -> HomeView:
    home = {
        "areas": [{"name": "Den"}],
        "entities": [{"name": "Ceiling Light", "domain": "light", "area": "Den", "state": "on"}],
        "sentences": sentences,
    }
    return parse_home(json.dumps(home).encode(), "home.json")


async def _act(who: Assistant, said: str) -> str:
    return (await who.commit(who.match(said), UtteranceId(said))).text


@pytest.mark.parametrize(
    "said",
    ["movie time", "Movie time.", "begin the movie night", "okay nabu, start movie night!", "movie time please"],
)
def test_it_does_what_it_stands_for(said: str) -> None:
    home = MemoryHome(view_of(MOVIE))
    who = Assistant(home)
    understood = who.match(said)
    assert (understood.text, understood.intent, understood.slots["name"]) == (said, "HassTurnOff", "Ceiling Light")
    asyncio.run(_act(who, said))
    assert home.view().entities[0].state == "off"


def test_what_is_near_one_is_none() -> None:
    who = Assistant(MemoryHome(view_of(MOVIE)))
    for said in ("movie", "movie time now", "the movie time", ""):
        assert who.match(said).intent is None
    assert who.match("turn off the ceiling light").intent == "HassTurnOff"


def test_it_comes_before_what_the_words_would_mean_otherwise() -> None:
    own = {"say": ["turn on the light"], "means": "turn off the ceiling light"}
    assert Assistant(MemoryHome(view_of(own))).match("turn on the light").intent == "HassTurnOff"


def test_recognition_expects_it() -> None:
    bias = LetterBias(phrase_graph(view_of(MOVIE)))
    reach = bias.look("Start the movie night.")
    assert reach.complete
    assert reach.extension is not Extension.LIKELY
    assert not bias.look("start the movie").complete
    assert not LetterBias(phrase_graph(view_of())).look("movie time").inside


def test_a_home_with_other_sentences_is_expected_anew() -> None:
    assert naming(view_of(MOVIE)) != naming(view_of())
    home = MemoryHome(view_of())
    who = Assistant(home)
    assert who.match("movie time").intent is None
    home._view = replace(view_of(MOVIE), version=2)
    assert who.match("movie time").intent == "HassTurnOff"


def test_one_that_stands_for_nothing_is_told_and_says_so() -> None:
    who = Assistant(MemoryHome(view_of({"say": ["sesame"], "means": "open the secret door"})))
    assert who.lost_sentences == ("“sesame” stands for “open the secret door”, which is no command in this home",)
    assert who.match("sesame").intent is None
    assert who.match("sesame").sorry
    assert Assistant(MemoryHome(view_of(MOVIE))).lost_sentences == ()


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        ({"say": ["(a|b"], "means": "x"}, "bracket"),
        ({"say": ["turn {name} on"], "means": "x"}, "no {lists}"),
        ({"say": ["<turn> it"], "means": "x"}, "<rules>"),
        ({"say": ["[perhaps]"], "means": "x"}, "without a word"),
        ({"say": ["(a|b) " * 12], "means": "x"}, "more than 200 ways"),
        ({"say": [], "means": "x"}, "at least 1"),
        ({"say": ["x"]}, "means"),
        ({"say": ["twice", "Twice"], "means": "x"}, "there twice"),
    ],
)
def test_a_slip_is_refused_with_one_line(sentence: object, why: str) -> None:
    with pytest.raises(HomeFileError) as refused:
        view_of(sentence)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.text(alphabet="ab ()[]|{}<>;:", max_size=40))
def test_whatever_is_written_gives_some_ways_or_one_error(template: str) -> None:
    try:
        ways = ways_of(template)
    except ValueError:
        return
    assert 0 < len(ways) <= MAX_WAYS
    assert all(way == " ".join(way.split()) and way for way in ways)
