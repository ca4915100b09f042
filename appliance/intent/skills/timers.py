"""Kitchen timers, kept in memory on an injected clock; no threads: whoever owns the book asks what is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

__all__ = ["MAX_TIMERS", "Timer", "TimerBook", "local_now"]

MAX_TIMERS: Final = 50
"""Nobody keeps more by voice; a loop that hears itself must not fill the memory."""

_FINE_S: Final = 120
"""Below it the time left is said to five seconds, above it to half a minute."""
_COARSE_S: Final = 600
"""Above it whole minutes are said."""
_LONGEST_S: Final = 30 * 24 * 3600


def local_now() -> datetime:
    """The local time with its offset, so that differences stay right when summer time begins."""
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class Timer:
    """One timer, as set; the field names below are those of Home Assistant's reply templates."""

    id: int
    name: str | None
    area: str | None
    """Room it was set in."""
    start_hours: int
    start_minutes: int
    start_seconds: int
    command: str | None
    """What shall be done when it ends, as said; None for one that rings."""
    ends_at: datetime | None
    """None while it is paused."""
    left_s: float
    """Seconds left when it was paused; meaningless while it runs."""

    @property
    def is_active(self) -> bool:
        """True while it runs."""
        return self.ends_at is not None


@dataclass(frozen=True, slots=True)
class TimerState:
    """A timer at one moment, as the reply template for the status reads it."""

    name: str | None
    area: str | None
    is_active: bool
    start_hours: int
    start_minutes: int
    start_seconds: int
    total_seconds_left: int
    rounded_hours_left: int
    rounded_minutes_left: int
    rounded_seconds_left: int


class TimerBook:
    """All timers of one appliance; bounded."""

    def __init__(self, clock: Callable[[], datetime] = local_now) -> None:
        self._clock = clock
        self._timers: dict[int, Timer] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._timers)

    def copy(self) -> TimerBook:
        """A book of its own with the same timers."""
        book = TimerBook(self._clock)
        book._timers = dict(self._timers)
        book._last_id = self._last_id
        return book

    def start(
        self,
        *,
        hours: int = 0,
        minutes: int = 0,
        seconds: int = 0,
        name: str | None = None,
        area: str | None = None,
        command: str | None = None,
    ) -> Timer | None:
        """Start a timer; None where the book is full."""
        if len(self._timers) >= MAX_TIMERS:
            return None
        total_s = min(_LONGEST_S, 3600 * hours + 60 * minutes + seconds)
        self._last_id += 1
        timer = Timer(
            id=self._last_id,
            name=name,
            area=area,
            start_hours=hours,
            start_minutes=minutes,
            start_seconds=seconds,
            command=command,
            ends_at=self._clock() + timedelta(seconds=total_s),
            left_s=0.0,
        )
        self._timers[timer.id] = timer
        return timer

    def find(
        self, *, name: str | None = None, area: str | None = None, start: tuple[int, int, int] | None = None
    ) -> list[Timer]:
        """Timers that fit everything given, in the order they were set. `start` is (hours, minutes, seconds)."""
        return [
            t
            for t in self._timers.values()
            if (name is None or (t.name or "").casefold() == name.casefold())
            and (area is None or t.area == area)
            and (start is None or _seconds(t) == 3600 * start[0] + 60 * start[1] + start[2])
        ]

    def cancel(self, timer: Timer) -> None:
        """Forget a timer."""
        self._timers.pop(timer.id, None)

    def pause(self, timer: Timer) -> None:
        """Stop a timer from running down."""
        if timer.ends_at is not None:
            self._timers[timer.id] = replace(timer, ends_at=None, left_s=self.left_s(timer))

    def unpause(self, timer: Timer) -> None:
        """Let a paused timer run on."""
        if timer.ends_at is None:
            ends_at = self._clock() + timedelta(seconds=timer.left_s)
            self._timers[timer.id] = replace(timer, ends_at=ends_at)

    def add(self, timer: Timer, seconds: int) -> None:
        """Lengthen a timer, or shorten it by a negative number; one that is shortened to nothing is due at once."""
        left_s = min(float(_LONGEST_S), max(0.0, self.left_s(timer) + seconds))
        if timer.ends_at is None:
            self._timers[timer.id] = replace(timer, left_s=left_s)
        else:
            self._timers[timer.id] = replace(timer, ends_at=self._clock() + timedelta(seconds=left_s))

    def due(self, now: datetime | None = None) -> tuple[Timer, ...]:
        """Take out the timers that have ended, the earliest first."""
        now = now or self._clock()
        ended = [t for t in self._timers.values() if t.ends_at is not None and t.ends_at <= now]
        for timer in ended:
            del self._timers[timer.id]
        return tuple(sorted(ended, key=lambda t: (t.ends_at or now, t.id)))

    def next_due(self) -> datetime | None:
        """When the next timer ends; None where none runs."""
        return min((t.ends_at for t in self._timers.values() if t.ends_at is not None), default=None)

    def left_s(self, timer: Timer) -> float:
        """Seconds left, never negative."""
        if timer.ends_at is None:
            return timer.left_s
        return max(0.0, (timer.ends_at - self._clock()).total_seconds())

    def state(self, timer: Timer) -> TimerState:
        """The timer at this moment."""
        left_s = self.left_s(timer)
        rounded = _rounded(left_s)
        return TimerState(
            name=timer.name,
            area=timer.area,
            is_active=timer.is_active,
            start_hours=timer.start_hours,
            start_minutes=timer.start_minutes,
            start_seconds=timer.start_seconds,
            total_seconds_left=round(left_s),
            rounded_hours_left=rounded // 3600,
            rounded_minutes_left=rounded % 3600 // 60,
            rounded_seconds_left=rounded % 60,
        )


def _seconds(timer: Timer) -> int:
    return 3600 * timer.start_hours + 60 * timer.start_minutes + timer.start_seconds


def _rounded(left_s: float) -> int:
    """The time left as one would say it. Never "0": a timer that still runs has something left."""
    step = 5 if left_s < _FINE_S else 30 if left_s < _COARSE_S else 60
    return max(1, round(left_s)) if left_s < 10 else round(left_s / step) * step
