"""Home Assistant's sentence suite: each test file becomes a home, its sentences become cases.

The suite's replies assume that the command could be carried out, and its homes often lack what is spoken of (no fan
stands in its kitchen). So a case's home is furnished: whatever its expected slots speak of is put where they say,
if it is not there. Nothing else is added, and nothing depends on the wording of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from hassil.parse_expression import parse_sentence
from hassil.sample import sample_expression

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome
from appliance.intent.skills.lists import SHOPPING_LIST, ListBook
from appliance.intent.skills.timers import TimerBook
from appliance.intent.types import Area, Entity, Floor, HomeView

NOW = datetime(2013, 9, 17, 1, 2, 3)
"""The suite's clock, read off its expected answers."""

DEFAULT_AREA = "Living Room"
"""Where the sentence is said, for files that do not tell."""

ALL_LIGHT_FEATURES = frozenset({"brightness", "color", "color_temp"})
MEDIA_STATES = {"HassMediaUnpause": "paused"}
DOMAIN_OF = {
    "HassLightSet": "light",
    "HassFanSetSpeed": "fan",
    "HassSetPosition": "cover",
    "HassClimateSetTemperature": "climate",
    "HassClimateGetTemperature": "climate",
    "HassSetVolume": "media_player",
    "HassSetVolumeRelative": "media_player",
    "HassVacuumStart": "vacuum",
    "HassVacuumCleanArea": "vacuum",
    "HassLawnMowerDock": "lawn_mower",
    "HassLawnMowerStartMowing": "lawn_mower",
}
DOMAIN_OF |= {
    f"HassMedia{what}": "media_player"
    for what in ("Pause", "Unpause", "Next", "Previous", "PlayerMute", "PlayerUnmute", "SearchAndPlay")
}


@dataclass(frozen=True)
class Case:
    """One sentence and what it must come to."""

    file: str
    sentence: str
    intent: str
    slots: Mapping[str, Any]
    response: str
    who: Assistant
    """An assistant in the case's home; cases of one home share it, as nothing is committed."""


def cases(folder: Path) -> Iterator[Case]:
    """Every sentence of the suite."""
    fixtures = yaml.safe_load((folder / "_fixtures.yaml").read_text(encoding="utf-8"))
    for path in sorted(folder.glob("*/*.yaml")):
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        base, here = _home(fixtures, body)
        for test in body["tests"]:
            slots = test.get("slots") or {}
            intent = path.parent.name
            media = test.get("media", [*fixtures["media"], *body.get("media", ())])
            view = _furnished(base, intent, slots, here, [m["title"] for m in media])
            who = _assistant(view, intent, slots, body.get("timers") or _timers_for(intent, slots))
            for sentence in test["sentences"]:
                yield Case(
                    file=f"{intent}/{path.name}",
                    sentence=sentence,
                    intent=intent,
                    slots=slots,
                    response=test["response"],
                    who=who,
                )


def _assistant(view: HomeView, intent: str, slots: Mapping[str, Any], timers: Iterable[Mapping[str, Any]]) -> Assistant:
    book = TimerBook(lambda: NOW)
    for timer in timers:
        _start(book, timer)
    lists = ListBook()
    if intent in ("HassListCompleteItem", "HassListRemoveItem", "HassShoppingListCompleteItem"):
        lists.add(str(slots.get("name", SHOPPING_LIST)), str(slots["item"]))
    return Assistant(MemoryHome(view), clock=lambda: NOW, timers=book, lists=lists)


def slots_agree(case: Case, slots: Mapping[str, object], said: Mapping[str, str]) -> bool:
    """All expected slots with their values (of a list, any), and nothing else that was said."""
    for name, expected in case.slots.items():
        allowed = expected if isinstance(expected, list) else [expected]
        if slots.get(name) not in allowed:
            return False
    extra = set(slots) - set(case.slots)
    return all(name in ("domain", "device_class") or (name == "area" and "area" not in said) for name in extra)


def _home(fixtures: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[HomeView, str]:
    floors = {f["name"]: Floor(f["name"]) for f in (*fixtures["floors"], *body.get("floors", ()))}
    floor_names = {f.get("id", f["name"]): f["name"] for f in fixtures["floors"]}
    areas: dict[str, Area] = {}
    area_names: dict[str, str] = {}
    here = DEFAULT_AREA
    for area in (*fixtures["areas"], *body.get("areas", ())):
        name = area["name"]
        floor = area.get("floor")
        known = areas.get(name)
        floor = floor_names.get(floor, floor) if floor else known.floor if known else None
        areas[name] = Area(name, floor=floor)
        area_names[area.get("id", name)] = name
        here = name if area.get("context_area") else here
    own = [_entity(e, f"{e['domain']}.own_{i}", area_names) for i, e in enumerate(body.get("entities", ()))]
    # A file that brings its own lights (people, doors …) means these: its replies count no others.
    replaced = {e.domain for e in own}
    common = [
        _entity(e, e["id"], area_names)
        for e in fixtures["entities"]
        if e.get("is_exposed", True) and e["id"].split(".")[0] not in replaced
    ]
    return (
        HomeView(1, "en", here, tuple(floors.values()), tuple(areas.values()), (*common, *own)),
        here,
    )


def _entity(body: Mapping[str, Any], entity_id: str, area_names: Mapping[str, str]) -> Entity:
    # The suite writes names as templates; a home's names are plain text, so every sample becomes an alias.
    names = [s.strip() for s in sample_expression(parse_sentence(body["name"]).expression)]
    state = body.get("state", "unknown")
    attributes = body.get("attributes", {})
    domain = entity_id.split(".", maxsplit=1)[0]
    area = body.get("area")
    return Entity(
        id=entity_id.replace(" ", "_"),
        name=names[0],
        domain=domain,
        area=area_names.get(area, area),
        aliases=tuple(names[1:]),
        device_class=attributes.get("device_class"),
        supports=ALL_LIGHT_FEATURES if domain == "light" else frozenset(),
        state=str(state["out"] if isinstance(state, dict) else state),
        attributes=attributes,
    )


def _furnished(view: HomeView, intent: str, slots: Mapping[str, Any], here: str, media: list[str]) -> HomeView:
    entities = [_playing(e, intent, media) for e in view.entities]
    domain = slots.get("domain") or DOMAIN_OF.get(intent)
    device_class = slots.get("device_class")
    if domain and "name" not in slots and not intent.startswith("HassGet"):
        area = slots.get("area", None if "floor" in slots else here)
        areas = {area} if area else {a.name for a in view.areas if a.floor == slots["floor"]}
        there = [e for e in entities if e.domain == domain and e.area in areas]
        if device_class:
            there = [e for e in there if e.device_class == device_class]
        moves_about = domain in ("vacuum", "lawn_mower")
        elsewhere_will_do = moves_about or (domain in ("climate", "media_player") and "area" not in slots)
        if not there and not (elsewhere_will_do and any(e.domain == domain for e in entities)):
            extra = Entity(
                id=f"{domain}.furnished",
                name="Furnished Thing",
                domain=domain,
                area=sorted(areas)[0],
                device_class=device_class,
                supports=ALL_LIGHT_FEATURES,
            )
            entities.append(_playing(extra, intent, media))
    return replace(view, entities=tuple(entities))


def _playing(entity: Entity, intent: str, media: list[str]) -> Entity:
    if entity.domain != "media_player" or not intent.startswith("HassMedia"):
        return entity
    state = MEDIA_STATES.get(intent, "playing")
    return replace(entity, state=state, attributes={**entity.attributes, "media": tuple(media)})


def _timers_for(intent: str, slots: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """For files that bring no timers: one that fits the sentence."""
    if not intent.endswith("Timer") or intent == "HassStartTimer":
        return []
    start = {name: slots[name] for name in ("start_hours", "start_minutes", "start_seconds") if name in slots}
    return [
        {
            **(start or {"start_minutes": 10}),
            "name": slots.get("name"),
            "area": slots.get("area"),
            "is_active": intent != "HassUnpauseTimer",
        }
    ]


def _start(book: TimerBook, timer: Mapping[str, Any]) -> None:
    hours, minutes, seconds = (timer.get(f"start_{unit}", 0) for unit in ("hours", "minutes", "seconds"))
    started = book.start(hours=hours, minutes=minutes, seconds=seconds, name=timer.get("name"), area=timer.get("area"))
    assert started is not None
    total_s = 3600 * hours + 60 * minutes + seconds
    book.add(started, timer.get("total_seconds_left", total_s) - total_s)
    if not timer.get("is_active", True):
        book.pause(book.find()[-1])
