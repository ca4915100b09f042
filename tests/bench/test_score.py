from __future__ import annotations

from typing import Any

import pytest

from appliance.bench.score import Action, is_right, judge

from .material import a_clip

BEDROOM = {"name": "Bedroom Light"}
LAMP = {"name": "Living Room Lamp"}

RIGHT: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("HassTurnOn", BEDROOM, "turn on the bedroom light", "HassTurnOn", {"name": "bedroom light"}),
    ("HassTurnOn", BEDROOM, "turn on the bedroom light", "HassTurnOn", {"area": "Bedroom", "domain": "light"}),
    ("HassTurnOff", LAMP, "turn off the living room lamp", "HassTurnOff", {"area": "Living Room", **LAMP}),
    ("HassTurnOn", LAMP, "turn on the lamp", "HassTurnOn", {"domain": "light"}),
    ("HassStartTimer", {"minutes": 5}, "", "HassStartTimer", {"minutes": 5.0}),
    ("HassMediaPause", {}, "pause", "HassMediaPause", {"area": "Kitchen"}),
    ("HassLightSet", {"area": "Office", "color": "red"}, "", "HassLightSet",
     {"area": "Office", "color": "red", "domain": "light"}),
    ("HassListAddItem", {"item": "apples", "name": "Shopping List"}, "", "HassShoppingListAddItem", {"item": "Apples"}),
]  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("HassTurnOn", BEDROOM, "turn on the bedroom light", "HassTurnOff", BEDROOM),
    ("HassTurnOn", BEDROOM, "turn on the bedroom light", "HassTurnOn", {"area": "Garage", "domain": "light"}),
    ("HassTurnOn", BEDROOM, "turn on the bedroom light", "HassTurnOn", {"domain": "light"}),
    ("HassLightSet", {**BEDROOM, "color": "red"}, "", "HassLightSet", {"area": "Bedroom", "color": "red"}),
    ("HassTurnOn", {"name": "Bed Light"}, "turn on bed light", "HassTurnOn", {"area": "Bed", "domain": "light"}),
    ("HassStartTimer", {"minutes": 5}, "", "HassStartTimer", {"minutes": 50}),
    ("HassStartTimer", {"minutes": 5}, "", "HassStartTimer", {"minutes": 5, "seconds": 30}),
    ("HassMediaPause", {}, "pause", "HassMediaPause", {"area": "Office"}),
    ("HassListAddItem", {"item": "apples", "name": "Shopping List"}, "", "HassShoppingListAddItem", {"item": "pears"}),
    ("HassListAddItem", {"item": "apples", "name": "Chores"}, "", "HassShoppingListAddItem", {"item": "apples"}),
]


@pytest.mark.parametrize(("intent", "slots", "said", "did", "with_slots"), RIGHT)
def test_what_was_asked_is_right_as_are_the_readmes_other_readings(
    intent: str, slots: dict[str, Any], said: str, did: str, with_slots: dict[str, Any]
) -> None:
    clip = a_clip(intent=intent, slots=slots, transcript=said)
    assert is_right(clip, Action(did, with_slots), "Kitchen")


@pytest.mark.parametrize(("intent", "slots", "said", "did", "with_slots"), WRONG)
def test_anything_else_is_wrong(
    intent: str, slots: dict[str, Any], said: str, did: str, with_slots: dict[str, Any]
) -> None:
    clip = a_clip(intent=intent, slots=slots, transcript=said)
    assert not is_right(clip, Action(did, with_slots), "Kitchen")


def test_a_clip_is_right_when_exactly_what_was_asked_was_done() -> None:
    clip, good = a_clip(), Action("HassTurnOn", {"area": "Kitchen", "domain": "light"})
    bad = Action("HassTurnOff", {"area": "Kitchen"})
    seen = {
        name: (verdict.right, verdict.wrong_action)
        for name, verdict in {
            "once": judge(clip, [good], None),
            "nothing": judge(clip, [], None),
            "another": judge(clip, [bad], None),
            "and another": judge(clip, [good, bad], None),
            "twice": judge(clip, [good, good], None),
        }.items()
    }
    assert seen == {
        "once": (True, False),
        "nothing": (False, False),
        "another": (False, True),
        "and another": (False, True),
        "twice": (False, False),
    }


def test_a_clip_that_asks_for_nothing_is_right_when_nothing_is_done() -> None:
    talk = a_clip(intent=None, slots={})
    assert judge(talk, [], None).right
    verdict = judge(talk, [Action("HassTurnOn", {})], None)
    assert (verdict.right, verdict.wrong_action) == (False, True)
