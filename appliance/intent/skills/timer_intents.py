"""The timer intents on a timer book."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from appliance.intent.outcome import Outcome
from appliance.intent.problems import Problem
from appliance.intent.skills.timers import Timer, TimerBook
from appliance.intent.types import Understanding

__all__ = ["TIMER_INTENTS"]

_NOT_FOUND: Final = Outcome(problem=Problem("timer_not_found"))


def _start(book: TimerBook, understood: Understanding) -> Outcome:
    slots = understood.slots
    command = slots.get("conversation_command")
    timer = book.start(
        hours=_whole(understood, "hours"),
        minutes=_whole(understood, "minutes"),
        seconds=_whole(understood, "seconds"),
        name=str(slots["name"]) if "name" in slots else None,
        area=understood.area,
        command=str(command) if command is not None else None,
    )
    if timer is None:
        return Outcome(problem=Problem("too_many_timers"))
    return Outcome(key=understood.response_key)


def _cancel_all(book: TimerBook, understood: Understanding) -> Outcome:
    timers = book.find(area=_area(understood))
    for timer in timers:
        book.cancel(timer)
    return Outcome(key=understood.response_key, slots={"canceled": len(timers)})


def _status(book: TimerBook, understood: Understanding) -> Outcome:
    return Outcome(slots={"timers": [book.state(t) for t in _fitting(book, understood)]})


def _one(
    change: Callable[[TimerBook, Timer, int], None], fit: Callable[[Timer], bool] = lambda _: True
) -> Callable[[TimerBook, Understanding], Outcome]:
    """An intent that is about one timer."""

    def handle(book: TimerBook, understood: Understanding) -> Outcome:
        timers = [t for t in _fitting(book, understood) if fit(t)]
        if len(timers) > 1 and understood.area is not None:
            # Of several, the one that was set in this room is meant.
            timers = [t for t in timers if t.area == understood.area] or timers
        if not timers:
            return _NOT_FOUND
        if len(timers) > 1:
            return Outcome(problem=Problem("multiple_timers_matched"))
        seconds = sum(_whole(understood, slot) * unit for slot, unit in _UNITS)
        change(book, timers[0], seconds)
        return Outcome(key=understood.response_key)

    return handle


_UNITS: Final = (("hours", 3600), ("minutes", 60), ("seconds", 1))

TIMER_INTENTS: Final[Mapping[str, Callable[[TimerBook, Understanding], Outcome]]] = {
    "HassStartTimer": _start,
    "HassCancelAllTimers": _cancel_all,
    "HassTimerStatus": _status,
    "HassCancelTimer": _one(lambda book, timer, _: book.cancel(timer)),
    "HassPauseTimer": _one(lambda book, timer, _: book.pause(timer), lambda t: t.is_active),
    "HassUnpauseTimer": _one(lambda book, timer, _: book.unpause(timer), lambda t: not t.is_active),
    "HassIncreaseTimer": _one(lambda book, timer, seconds: book.add(timer, seconds)),
    "HassDecreaseTimer": _one(lambda book, timer, seconds: book.add(timer, -seconds)),
}
"""What each timer intent does; the book is changed, the outcome says how it went."""


def _fitting(book: TimerBook, understood: Understanding) -> list[Timer]:
    start = tuple(_whole(understood, f"start_{unit}") for unit, _ in _UNITS)
    name = understood.slots.get("name")
    return book.find(
        name=str(name) if name is not None else None,
        area=_area(understood),
        start=(start[0], start[1], start[2]) if any(start) else None,
    )


def _area(understood: Understanding) -> str | None:
    area = understood.slots.get("area")
    return str(area) if area is not None else None


def _whole(understood: Understanding, slot: str) -> int:
    return int(understood.slots.get(slot, 0))
