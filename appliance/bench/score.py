"""Whether what Wren did is what was asked: intent and slots, as the recordings' README counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from appliance.bench.material import Clip

__all__ = ["Action", "Verdict", "is_right", "judge"]

_ON_OFF: Final = ("HassTurnOn", "HassTurnOff")
_LIGHT_OF_AREA: Final = {
    "bedroom light": "Bedroom",
    "garage light": "Garage",
    "living room light": "Living Room",
    "living room lamp": "Living Room",
}
"""Lights whose name says their area: switching the area's lights is also right."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that was done."""

    intent: str
    slots: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a clip."""

    right: bool
    """Exactly what was asked, and nothing else; for a clip without an intent: nothing."""
    wrong_action: bool
    """Something was done that was not asked."""


def judge(clip: Clip, actions: Sequence[Action], satellite_area: str | None) -> Verdict:
    """All that was done during a clip: one right action and no other is right."""
    good = [is_right(clip, action, satellite_area) for action in actions]
    wrong = not all(good)
    return Verdict(right=not wrong and (len(good) == 1 if clip.intent else not good), wrong_action=wrong)


def is_right(clip: Clip, action: Action, satellite_area: str | None) -> bool:
    """Whether one action is the one asked for. Only `domain` and the microphone's own area may come on top."""
    if clip.intent is None:
        return False
    return any(
        action.intent == intent and _same_slots(slots, action.slots, satellite_area)
        for intent, slots in _wanted(clip.intent, clip.slots, clip.transcript)
    )


def _wanted(intent: str, slots: Mapping[str, Any], transcript: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What is expected, and what the README says is also right."""
    wanted = [(intent, slots)]
    if intent in _ON_OFF and set(slots) == {"name"}:
        if area := _LIGHT_OF_AREA.get(str(slots["name"]).casefold()):
            wanted.append((intent, {"area": area, "domain": "light"}))
            wanted.append((intent, {"area": area, "name": slots["name"]}))
        if transcript.casefold().split()[-2:] == ["the", "lamp"]:
            wanted.append((intent, {"domain": "light"}))
    if intent == "HassListAddItem" and str(slots.get("name", "")).casefold() == "shopping list":
        wanted.append(("HassShoppingListAddItem", {"item": slots.get("item")}))
    return wanted


def _same_slots(expected: Mapping[str, Any], got: Mapping[str, Any], satellite_area: str | None) -> bool:
    if not all(name in got and _same(value, got[name]) for name, value in expected.items()):
        return False
    extra = {name: value for name, value in got.items() if name not in expected and name != "domain"}
    return all(name == "area" and _same(value, satellite_area) for name, value in extra.items())


def _same(a: Any, b: Any) -> bool:
    """Names without regard to case, numbers by value (5 is 5.0)."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return float(a) == float(b)
    return str(a).strip().casefold() == str(b).strip().casefold()
