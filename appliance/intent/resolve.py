"""Which things in the home a command is for. Pure: a picture of the home and an understanding in, entities out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.intent.problems import Problem
from appliance.intent.types import Entity, HomeView, Understanding

__all__ = ["Resolved", "resolve"]

_EVERYTHING: Final = ("light", "switch", "fan", "media_player", "input_boolean", "humidifier")
"""What "everything" turns off: never locks, covers, heating or anything that guards the house."""

_DOMAIN_OF: Final = {
    "HassLightSet": "light",
    "HassFanSetSpeed": "fan",
    "HassSetPosition": "cover",
    "HassClimateGetTemperature": "climate",
    "HassClimateSetTemperature": "climate",
    "HassGetWeather": "weather",
    "HassMediaPause": "media_player",
    "HassMediaUnpause": "media_player",
    "HassMediaNext": "media_player",
    "HassMediaPrevious": "media_player",
    "HassMediaPlayerMute": "media_player",
    "HassMediaPlayerUnmute": "media_player",
    "HassMediaSearchAndPlay": "media_player",
    "HassSetVolume": "media_player",
    "HassSetVolumeRelative": "media_player",
    "HassVacuumStart": "vacuum",
    "HassVacuumReturnToBase": "vacuum",
    "HassVacuumCleanArea": "vacuum",
    "HassLawnMowerStartMowing": "lawn_mower",
    "HassLawnMowerDock": "lawn_mower",
    "HassBroadcast": "media_player",
}
"""What an intent is for where the sentence names no thing."""

_ELSEWHERE: Final = frozenset(
    {"HassClimateGetTemperature", "HassClimateSetTemperature"}
    | {intent for intent, domain in _DOMAIN_OF.items() if domain in ("media_player", "vacuum", "lawn_mower")}
)
"""Intents that look beyond the room where it has nothing of the kind. Lights, fans and covers do not: the wrong
room would move."""

_ANYWHERE: Final = frozenset({"HassGetWeather", "HassVacuumCleanArea", "HassVacuumStart", "HassBroadcast"})
"""Intents whose area or floor, if any, is not where the thing stands."""

_LIGHT_FEATURES: Final = {
    "brightness": frozenset({"brightness"}),
    "brightness_step": frozenset({"brightness"}),
    "color": frozenset({"color"}),
    "temperature": frozenset({"color_temp", "color"}),
}
"""Slots of HassLightSet, and what a light must support (any of it)."""

_ONE_WAY: Final = ("scene", "script", "button", "input_button")
"""Domains that can be started but not turned off."""

_SILENT: Final = ("off", "standby", "idle")
_BUSY: Final = ("playing", "paused", "cleaning", "mowing")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The entities a command is for, or what stands in the way."""

    entities: tuple[Entity, ...] = ()
    problem: Problem | None = None


def resolve(view: HomeView, understood: Understanding) -> Resolved:
    """Find the entities an understood sentence speaks of."""
    found = _named(view, understood) if understood.named else _of_a_kind(view, understood)
    if found.problem is not None:
        return found
    return _fit(understood, found.entities)


def _named(view: HomeView, understood: Understanding) -> Resolved:
    name = str(understood.slots.get("name", ""))
    pool = [e for e in view.entities if e.id in understood.named]
    if not pool:
        return Resolved(problem=Problem("no_entity", {"entity": name}))
    if "area" in understood.said and understood.intent not in _ANYWHERE:
        area = str(understood.slots["area"])
        pool = _inside(pool, {area})
        if not pool:
            return Resolved(problem=Problem("no_entity_in_area", {"entity": name, "area": area}))
    if "floor" in understood.said:
        floor = str(understood.slots["floor"])
        pool = _inside(pool, _areas_on(view, floor))
        if not pool:
            return Resolved(problem=Problem("no_entity_in_floor", {"entity": name, "floor": floor}))
    if len(pool) > 1:
        pool = [e for e in pool if e.area == understood.area and e.area is not None] or pool
    if len(pool) == 1:
        return Resolved(tuple(pool))
    areas = list(dict.fromkeys(e.area for e in pool))
    if len(areas) == len(pool) and None not in areas:
        # "Main light" may be short for things of different names: then say back what was said.
        spoken = name if len({e.name for e in pool}) == 1 else understood.said.get("name", name)
        return Resolved(problem=Problem("which_of_room", {"entity": spoken, "areas": areas}))
    return Resolved(problem=Problem("duplicate_entities", {"entity": name}))


def _inside(pool: Sequence[Entity], areas: set[str]) -> list[Entity]:
    """Those in one of the areas; else those the home has not placed, as the speaker knows where they are."""
    return [e for e in pool if e.area in areas] or [e for e in pool if e.area is None]


def _of_a_kind(view: HomeView, understood: Understanding) -> Resolved:
    intent, slots = understood.intent, understood.slots
    pool, kind = _all_of_a_kind(view, understood)
    if intent in _ANYWHERE:
        if pool and kind.domain == "vacuum":
            return _the_one(pool)
        return Resolved(tuple(pool)) if pool else kind.missing()
    if "floor" in slots:
        floor = str(slots["floor"])
        inside = [e for e in pool if e.area in _areas_on(view, floor)]
        return Resolved(tuple(inside)) if inside else kind.missing(floor=floor)
    if "area" not in slots:
        return _in_no_area(understood, pool, kind)
    area = str(slots["area"])
    inside = _thermostats_first([e for e in pool if e.area == area])
    if not inside and understood.here and intent in _ELSEWHERE and pool:
        return _the_one(pool)
    return Resolved(tuple(inside)) if inside else kind.missing(area=area)


def _all_of_a_kind(view: HomeView, understood: Understanding) -> tuple[list[Entity], _Kind]:
    """What in the whole home the sentence could be for, and what that is called."""
    slots = understood.slots
    device_class = slots.get("device_class")
    if understood.intent == "HassClimateGetTemperature":
        return [e for e in view.entities if _measures_temperature(e)], _Kind("thermometer", None)
    if understood.response_key in ("everything", "everything_home"):
        return [e for e in view.entities if e.domain in _EVERYTHING], _Kind("device", None)
    wanted = str(slots.get("domain") or _DOMAIN_OF.get(understood.intent or "", ""))
    pool = [e for e in view.entities if e.domain == wanted]
    if device_class is not None:
        pool = [e for e in pool if e.device_class == device_class]
    return pool, _Kind(wanted, device_class)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of thing, for saying that there is none."""

    domain: str
    device_class: object

    def missing(self, *, area: str | None = None, floor: str | None = None) -> Resolved:
        where = "_in_area" if area is not None else "_in_floor" if floor is not None else ""
        kind = "device_class" if self.device_class is not None else "domain"
        word = str(self.device_class or self.domain)
        values = {kind: word, "area": area, "floor": floor}
        return Resolved(problem=Problem(f"no_{kind}{where}", values))


def _in_no_area(understood: Understanding, pool: list[Entity], kind: _Kind) -> Resolved:
    if not pool:
        return kind.missing()
    if understood.intent in _ELSEWHERE:
        return _the_one(pool)
    if understood.here and len({e.area for e in pool}) > 1:
        return Resolved(problem=Problem("which_room"))
    return Resolved(tuple(pool))


def _the_one(pool: Sequence[Entity]) -> Resolved:
    """The only one, the only one that plays, or a question."""
    pool = _thermostats_first(pool)
    busy = [e for e in pool if e.state in _BUSY]
    if len(busy) == 1 or len(pool) == 1:
        return Resolved(tuple(busy or pool))
    if pool[0].domain in ("climate", "sensor"):
        return Resolved(problem=Problem("which_room"))
    return Resolved(problem=Problem("which_one", {"names": [_placed_name(e) for e in pool]}))


def _placed_name(entity: Entity) -> str:
    if entity.area is None or entity.name.casefold().startswith(entity.area.casefold()):
        return entity.name
    return f"{entity.area} {entity.name}"


def _thermostats_first(pool: Sequence[Entity]) -> list[Entity]:
    return [e for e in pool if e.domain == "climate"] or list(pool)


def _measures_temperature(entity: Entity) -> bool:
    if entity.domain == "climate":
        return _is_number(entity.attributes.get("current_temperature", entity.state))
    return entity.domain == "sensor" and entity.device_class == "temperature" and _is_number(entity.state)


def _is_number(value: object) -> bool:
    """Whether a state or attribute is a finite number."""
    try:
        return abs(float(str(value))) < float("inf")
    except ValueError:
        return False


def _fit(understood: Understanding, pool: Iterable[Entity]) -> Resolved:
    """Leave out what cannot be reached or cannot do it; a problem where nothing remains."""
    entities = tuple(pool)
    for unfit, problem in _HINDRANCES:
        fit = tuple(e for e in entities if not unfit(understood, e))
        if entities and not fit:
            return Resolved(problem=problem(entities[0]))
        entities = fit
    return Resolved(entities)


def _unreachable(understood: Understanding, entity: Entity) -> bool:
    return entity.state == "unavailable" and understood.intent != "HassGetState"


def _incapable(understood: Understanding, entity: Entity) -> bool:
    if understood.intent == "HassTurnOff":
        return entity.domain in _ONE_WAY
    if understood.intent != "HassLightSet":
        return False
    return any(not needs & entity.supports for slot, needs in _LIGHT_FEATURES.items() if slot in understood.slots)


def _without_temperature(understood: Understanding, entity: Entity) -> bool:
    return understood.intent == "HassClimateGetTemperature" and not _measures_temperature(entity)


def _not_playing(understood: Understanding, entity: Entity) -> bool:
    return understood.intent in ("HassMediaPause", "HassMediaNext", "HassMediaPrevious") and (entity.state in _SILENT)


_HINDRANCES: Final[tuple[tuple[Callable[[Understanding, Entity], bool], Callable[[Entity], Problem]], ...]] = (
    (_unreachable, lambda e: Problem("unavailable", {"entity": e.name})),
    (_incapable, lambda _: Problem("feature_not_supported")),
    (_without_temperature, lambda _: Problem("no_temperature")),
    (_not_playing, lambda _: Problem("nothing_playing")),
)


def _areas_on(view: HomeView, floor: str) -> set[str]:
    return {a.name for a in view.areas if a.floor == floor}
