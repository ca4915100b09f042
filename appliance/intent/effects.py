"""What a command does to a thing: a pure function from entity to entity, as tables.

The home in memory lives by it, and a preview of any home's reply is made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from appliance.intent.types import Entity, HomeCommand, SlotValue

__all__ = ["CARRIED_OUT", "after"]

_ON_OFF: Final = ("on", "off")
_SWITCHED: Final = {
    "cover": ("open", "closed"),
    "valve": ("open", "closed"),
    "lock": ("locked", "unlocked"),
    "climate": ("heat", "off"),
    "vacuum": ("cleaning", "returning"),
    "lawn_mower": ("mowing", "returning"),
    "scene": ("activated", "activated"),
    "script": ("started", "started"),
    "button": ("pressed", "pressed"),
    "input_button": ("pressed", "pressed"),
}
"""States after HassTurnOn and HassTurnOff by domain; on and off for all others. Home Assistant locks with
HassTurnOn and unlocks with HassTurnOff."""

_NEW_STATE: Final = {
    "HassMediaPause": "paused",
    "HassMediaUnpause": "playing",
    "HassMediaSearchAndPlay": "playing",
    "HassVacuumStart": "cleaning",
    "HassVacuumCleanArea": "cleaning",
    "HassVacuumReturnToBase": "returning",
    "HassLawnMowerStartMowing": "mowing",
    "HassLawnMowerDock": "returning",
}

_BRIGHTNESS_FULL: Final = 255
_STEP_PERCENT: Final = {"light": 20, "media_player": 10}
"""How much "brighter" and "louder" are."""
_DIMMEST_PERCENT: Final = 5
"""Dimming never turns a light off."""


def after(entity: Entity, command: HomeCommand) -> Entity:
    """The entity as it is once the command is carried out; the same entity where nothing changes."""
    effect = _EFFECTS.get(command.intent)
    if effect is not None:
        return effect(entity, command.slots)
    if command.intent in _NEW_STATE:
        return replace(entity, state=_NEW_STATE[command.intent])
    return entity


def _switch(entity: Entity, on: bool) -> Entity:
    state = _SWITCHED.get(entity.domain, _ON_OFF)[not on]
    if entity.domain in ("cover", "valve"):
        return _with(entity, state, current_position=100 if on else 0)
    if entity.domain in ("scene", "script", "button", "input_button"):
        # Starting it again is a change, though the state reads the same.
        return _with(entity, state, starts=_number(entity, "starts", 0) + 1)
    return replace(entity, state=state)


def _light(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    changes: dict[str, object] = {}
    state = "on"
    if "brightness" in slots or "brightness_step" in slots:
        percent = _new_brightness(entity, slots)
        changes["brightness"] = round(percent * _BRIGHTNESS_FULL / 100)
        state = "on" if percent > 0 else "off"
    if "color" in slots:
        changes["color_name"] = slots["color"]
    if "temperature" in slots:
        changes["color_temp_kelvin"] = slots["temperature"]
    return _with(entity, state, **changes)


def _new_brightness(entity: Entity, slots: Mapping[str, SlotValue]) -> float:
    if "brightness" in slots:
        return float(slots["brightness"])
    now = _number(entity, "brightness", _BRIGHTNESS_FULL) * 100 / _BRIGHTNESS_FULL
    if entity.state == "off":
        now = 0
    step = _STEP_PERCENT["light"] * (1 if slots["brightness_step"] == "up" else -1)
    return min(100.0, max(float(_DIMMEST_PERCENT), now + step))


def _position(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    position = slots["position"]
    return _with(entity, "open" if float(position) > 0 else "closed", current_position=position)


def _fan(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    speed = slots["percentage"]
    return _with(entity, "on" if float(speed) > 0 else "off", percentage=speed)


def _volume(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    if "volume_level" in slots:
        percent = float(slots["volume_level"])
    else:
        step = slots["volume_step"]
        by = {"up": 1, "down": -1}.get(str(step))
        change = by * _STEP_PERCENT["media_player"] if by else float(step)
        percent = _number(entity, "volume_level", 0.5) * 100 + change
    return _with(entity, entity.state, volume_level=min(100.0, max(0.0, percent)) / 100)


def _play(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    return _with(entity, "playing", media_title=slots["search_query"])


def _skip(by: int) -> Callable[[Entity, Mapping[str, SlotValue]], Entity]:
    return lambda e, _: _with(e, e.state, media_track=_number(e, "media_track", 0) + by)


def _clean(entity: Entity, slots: Mapping[str, SlotValue]) -> Entity:
    return _with(entity, "cleaning", cleaning_area=slots.get("area"))


_EFFECTS: Final[Mapping[str, Callable[[Entity, Mapping[str, SlotValue]], Entity]]] = {
    "HassTurnOn": lambda e, _: _switch(e, True),
    "HassTurnOff": lambda e, _: _switch(e, False),
    "HassLightSet": _light,
    "HassSetPosition": _position,
    "HassFanSetSpeed": _fan,
    "HassSetVolume": _volume,
    "HassSetVolumeRelative": _volume,
    "HassMediaSearchAndPlay": _play,
    "HassMediaNext": _skip(1),
    "HassMediaPrevious": _skip(-1),
    "HassMediaPlayerMute": lambda e, _: _with(e, e.state, is_volume_muted=True),
    "HassMediaPlayerUnmute": lambda e, _: _with(e, e.state, is_volume_muted=False),
    "HassClimateSetTemperature": lambda e, slots: _with(e, e.state, temperature=slots["temperature"]),
    "HassVacuumCleanArea": _clean,
    "HassBroadcast": lambda e, slots: _with(e, e.state, announcement=slots["message"]),
}


CARRIED_OUT: Final = frozenset(_EFFECTS) | frozenset(_NEW_STATE)
"""Intents that a home can be asked to carry out."""


def _with(entity: Entity, state: str, **attributes: object) -> Entity:
    return replace(entity, state=state, attributes={**entity.attributes, **attributes})


def _number(entity: Entity, attribute: str, default: float) -> float:
    try:
        return float(str(entity.attributes.get(attribute, default)))
    except ValueError:
        return default
