"""What guards the home is left as it is where a command to it was not surely heard."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.types import UtteranceId
from tests.intent.homes import NOON, entity, home, say

REFUSED = "Sorry, I am too busy to be sure what to do with {}. Please try again in a while"


@pytest.fixture
def who() -> Assistant:
    house = home(
        entity("Front Door", "lock", "Kitchen", state="locked"),
        entity("Side Door", "lock", "Kitchen", state="locked"),
        entity("Big Door", "cover", device_class="garage", state="closed"),
        entity("Gate", "cover", state="closed"),
        entity("Blinds", "cover", device_class="blind", state="closed"),
        entity("Desk Lamp", state="off"),
    )
    return Assistant(house, clock=lambda: NOON)


def _unsure(who: Assistant, text: str) -> tuple[str, bool]:
    """Reply of an unsure command, and whether anything in the home or the timers changed by it."""
    understood = replace(who.match(text), unsure=True)
    before = who.view(), len(who.timers)
    foreseen = who.preview(understood)
    assert (who.view(), len(who.timers)) == before
    reply = asyncio.run(who.commit(understood, UtteranceId(text)))
    assert (foreseen.text, foreseen.ok) == (reply.text, reply.ok)
    changed = (who.view(), len(who.timers)) != before
    assert reply.ok is changed
    return reply.text, changed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("unlock the front door", "Front Door"),
        ("lock the front door", "Front Door"),
        ("open the big door", "Big Door"),
        ("open the gate", "Gate"),
        ("lock the locks", "Front Door and Side Door"),
        ("unlock the front door in 5 minutes", "Front Door"),
    ],
)
def test_an_unsure_command_to_what_guards_the_home_is_refused(who: Assistant, text: str, names: str) -> None:
    assert _unsure(who, text) == (REFUSED.format(names), False)
    assert say(who, text).ok, "surely heard it is done"


@pytest.mark.parametrize("text", ["turn on the desk lamp", "open the blinds", "turn on the desk lamp in 5 minutes"])
def test_all_else_is_done(who: Assistant, text: str) -> None:
    _, changed = _unsure(who, text)
    assert changed


def test_a_question_is_answered(who: Assistant) -> None:
    understood = replace(who.match("is the front door locked"), unsure=True)
    assert who.preview(understood).text == "Yes"
