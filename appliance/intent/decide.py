"""From understanding to outcome: which skill or which things in the home it is for, and what shall be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appliance.intent.outcome import Outcome
from appliance.intent.problems import Problem
from appliance.intent.resolve import resolve
from appliance.intent.skills.list_intents import LIST_INTENTS
from appliance.intent.skills.lists import ListBook
from appliance.intent.skills.timer_intents import TIMER_INTENTS
from appliance.intent.skills.timers import TimerBook
from appliance.intent.types import Entity, HomeCommand, HomeView, Understanding

__all__ = ["QUESTIONS", "Skills", "decide"]

_HAS_A_WORD: Final = frozenset(
    {
        "light",
        "switch",
        "fan",
        "media_player",
        "input_boolean",
        "climate",
        "humidifier",
        "siren",
        "water_heater",
        "remote",
        "automation",
        "camera",
        "vacuum",
        "lawn_mower",
    }
)
"""Domains for which the package's "Turned on …" has a word."""

_NO_NEWS: Final = ("unknown", "unavailable", "")
_AWAY: Final = {"away": "not_home"}


@dataclass(frozen=True, slots=True)
class Skills:
    """What Wren can do without a home. The books are changed by `decide`: give it copies to leave them be."""

    timers: TimerBook
    lists: ListBook
    clock: Callable[[], datetime]

    def copy(self) -> Skills:
        """Skills with books of their own."""
        return Skills(self.timers.copy(), self.lists.copy(), self.clock)


def decide(view: HomeView, understood: Understanding, skills: Skills) -> Outcome:
    """Work out what to do and say. Changes the skills' books; the home is only looked at."""
    intent = understood.intent or ""
    if intent in TIMER_INTENTS:
        return TIMER_INTENTS[intent](skills.timers, understood)
    if intent in LIST_INTENTS:
        return LIST_INTENTS[intent](skills.lists, understood)
    if intent in QUESTIONS:
        return QUESTIONS[intent](view, understood, skills)
    resolved = resolve(view, understood)
    if resolved.problem is not None:
        return Outcome(problem=resolved.problem)
    check = _CHECKS.get(intent)
    problem = check(understood, resolved.entities) if check is not None else None
    if problem is not None:
        return Outcome(problem=problem)
    return Outcome(
        key=_action_key(understood, resolved.entities),
        slots={"media": True} if intent == "HassMediaSearchAndPlay" else {},
        entities=resolved.entities,
        command=HomeCommand(intent, understood.slots, tuple(e.id for e in resolved.entities)),
    )


def _action_key(understood: Understanding, entities: Iterable[Entity]) -> str:
    first = next(iter(entities), None)
    switched = understood.intent in ("HassTurnOn", "HassTurnOff") and understood.response_key == "default"
    if switched and first is not None and first.domain not in _HAS_A_WORD:
        return "named"
    return understood.response_key


def _date(_: HomeView, understood: Understanding, skills: Skills) -> Outcome:
    return Outcome(key=understood.response_key, slots={"date": skills.clock().date()})


def _time(_: HomeView, understood: Understanding, skills: Skills) -> Outcome:
    return Outcome(key=understood.response_key, slots={"time": skills.clock().time()})


def _just_say(_: HomeView, understood: Understanding, __: Skills) -> Outcome:
    return Outcome(key=understood.response_key)


def _temperature(view: HomeView, understood: Understanding, _: Skills) -> Outcome:
    resolved = resolve(view, understood)
    return Outcome(key=understood.response_key, entities=resolved.entities, problem=resolved.problem)


def _weather(view: HomeView, understood: Understanding, _: Skills) -> Outcome:
    resolved = resolve(view, understood)
    if resolved.problem is not None:
        missing = not understood.named
        return Outcome(problem=Problem("no_weather") if missing else resolved.problem)
    first = resolved.entities[0]
    if first.state in _NO_NEWS:
        return Outcome(problem=Problem("unknown_state", {"entity": first.name}))
    key = "default" if "temperature" in first.attributes else "no_temperature"
    return Outcome(key=key, entities=resolved.entities)


def _state(view: HomeView, understood: Understanding, _: Skills) -> Outcome:
    resolved = resolve(view, understood)
    if resolved.problem is not None:
        return Outcome(problem=resolved.problem)
    known = tuple(e for e in resolved.entities if e.state not in _NO_NEWS)
    if not known and understood.response_key != "where":
        return Outcome(problem=Problem("unknown_state", {"entity": resolved.entities[0].name}))
    asked = understood.slots.get("state")
    if asked is None:
        return Outcome(key=understood.response_key, entities=known or resolved.entities)
    matched = tuple(e for e in known if _is_in(e, str(asked)))
    unmatched = tuple(e for e in known if e not in matched)
    return Outcome(key=understood.response_key, entities=matched, unmatched=unmatched)


def _is_in(entity: Entity, state: str) -> bool:
    state = state.casefold()
    return entity.state.casefold() == _AWAY.get(state, state)


QUESTIONS: Final[Mapping[str, Callable[[HomeView, Understanding, Skills], Outcome]]] = {
    "HassGetCurrentDate": _date,
    "HassGetCurrentTime": _time,
    "HassNevermind": _just_say,
    "HassRespond": _just_say,
    "HassClimateGetTemperature": _temperature,
    "HassGetWeather": _weather,
    "HassGetState": _state,
}
"""Intents that only want to know or to be answered."""


def _has_media(understood: Understanding, players: tuple[Entity, ...]) -> Problem | None:
    """Playing needs something to play: a player lists what it has in `attributes.media`."""
    query = str(understood.slots["search_query"]).casefold()
    for player in players:
        titles = player.attributes.get("media")
        if isinstance(titles, (list, tuple)) and any(query == str(t).casefold() for t in titles):
            return None
    return Problem("media_not_found", {"query": query})


def _has_speaker(_: Understanding, players: tuple[Entity, ...]) -> Problem | None:
    return None if players else Problem("no_speaker")


_CHECKS: Final[Mapping[str, Callable[[Understanding, tuple[Entity, ...]], Problem | None]]] = {
    "HassMediaSearchAndPlay": _has_media,
    "HassBroadcast": _has_speaker,
}
