"""What households say, in the home of the demo: meaning and reply."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import default_home
from tests.intent.homes import NOON

TABLE = Path(__file__).with_name("households.txt")

SORRY = {
    "turn on the disco ball": "Sorry, I am not aware of any device called disco ball",
    "Turn on the Disco Ball!": "Sorry, I am not aware of any device called Disco Ball",
    "turn on the ball in the kitchen": "Sorry, I am not aware of any device called ball in the Kitchen area",
    "turn on the lights in the ballroom": "Sorry, I am not aware of any area called ballroom",
    "set the brightness to 150 percent": "Sorry, 150 is out of range",
    "lock the floor lamp": "Sorry, floor lamp cannot do that",
    "this is a test": "Sorry, I did not understand this is a test",
    "what is love": "Sorry, I did not understand what is love",
    "who is the president": "Sorry, I did not understand who is the president",
    "noodle soup in five minutes": "Sorry, I did not understand noodle soup in five minutes",
    "": "Sorry, I did not catch that",
    " ?! ": "Sorry, I did not catch that",
    "okay nabu": "Sorry, I did not catch that",
}


def rows() -> list[tuple[str, str, dict[str, object], str]]:
    table = []
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        text, intent, slots, reply = (part.strip() for part in line.split("|"))
        pairs = (pair.split("=") for pair in slots.split())
        table.append((text, intent, {n: _value(v) for n, v in pairs}, reply))
    return table


def _value(written: str) -> object:
    try:
        return float(written)
    except ValueError:
        return written.replace("_", " ")


@pytest.fixture(scope="module")
def who() -> Assistant:
    return Assistant(default_home(), clock=lambda: NOON)


@pytest.mark.parametrize(("text", "intent", "slots", "reply"), rows(), ids=[r[0] for r in rows()])
def test_is_understood_and_answered(
    who: Assistant, text: str, intent: str, slots: dict[str, object], reply: str
) -> None:
    understood = who.match(text)
    assert understood.intent == intent
    assert dict(understood.slots) == slots
    assert who.preview(understood).text == reply


@pytest.mark.parametrize(("text", "sorry"), SORRY.items(), ids=[repr(t) for t in SORRY])
def test_sorry_says_what_was_not_understood(who: Assistant, text: str, sorry: str) -> None:
    understood = who.match(text)
    assert understood.intent is None
    reply = who.preview(understood)
    assert (reply.text, reply.ok) == (sorry, False)


def test_sorry_repeats_no_speech(who: Assistant) -> None:
    sorry = who.match("and so my fellow americans ask not " * 10).sorry
    assert sorry is not None
    assert len(sorry) < 120
