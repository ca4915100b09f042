"""Circuit breakers: a stage that fails again and again is left alone for a while, and tried once before it is trusted.

The ladder of engines is below this: it changes what runs inside a stage; a breaker opens where that did not help.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

__all__ = ["Breaker", "BreakerSettings", "BreakerState", "Breakers"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When it opens and for how long."""

    failures: int = 3
    """In a row."""
    open_s: float = 15.0
    """Until it is tried again; twice as long after each trial that fails."""
    longest_s: float = 240.0


class BreakerState(Enum):
    """Closed: works. Open: left alone. Half-open: one call may try."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Of one stage. Pure; times on any one clock."""

    def __init__(self, settings: BreakerSettings = BreakerSettings()) -> None:
        self._settings = settings
        self.failures = 0
        """In a row."""
        self.opened = 0
        """Times that it has opened."""
        self._open_s = settings.open_s
        self._until_s: float | None = None
        """When it may be tried; None while closed."""
        self._trying = False

    @property
    def state(self) -> BreakerState:
        """As the last call left it."""
        if self._until_s is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._trying else BreakerState.OPEN

    def allows(self, now_s: float) -> bool:
        """Whether a call may be made; one that may must end in `succeeded`, `failed` or `left`."""
        if self._until_s is None:
            return True
        if self._trying or now_s < self._until_s:
            return False
        self._trying = True
        return True

    def wait_s(self, now_s: float) -> float:
        """Seconds until it may be tried again; 0 while closed."""
        return 0.0 if self._until_s is None else max(0.0, self._until_s - now_s)

    def succeeded(self) -> None:
        """A call has done what it should."""
        self.failures, self._until_s, self._trying = 0, None, False
        self._open_s = self._settings.open_s

    def failed(self, now_s: float) -> None:
        """A call has failed."""
        self.failures += 1
        if self._trying:
            self._open_s = min(self._settings.longest_s, 2.0 * self._open_s)
        if self._trying or (self._until_s is None and self.failures >= self._settings.failures):
            self.opened += 1
            self._until_s, self._trying = now_s + self._open_s, False

    def left(self) -> None:
        """A call was given up because nobody wanted its result any more: that says nothing."""
        self._trying = False


class Breakers:
    """One for each stage that is asked for, shared by all sessions. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float],
        changed: Callable[[str, BreakerState], None],
        settings: BreakerSettings = BreakerSettings(),
    ) -> None:
        """`changed` is told of every change, on the thread that caused it."""
        self._clock, self._changed, self._settings = clock, changed, settings
        self._table: dict[str, Breaker] = {}
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def allows(self, stage: str) -> float | None:
        """None: a call may be made. Else the seconds until one may."""
        return self._do(stage, lambda breaker, now_s: None if breaker.allows(now_s) else breaker.wait_s(now_s))

    def succeeded(self, stage: str) -> None:
        """See `Breaker.succeeded`."""
        self._do(stage, lambda breaker, _: breaker.succeeded())

    def failed(self, stage: str, reason: str) -> None:
        """See `Breaker.failed`; the newest reason is what people are told."""
        self._reasons[stage] = reason
        self._do(stage, lambda breaker, now_s: breaker.failed(now_s))

    def left(self, stage: str) -> None:
        """See `Breaker.left`."""
        self._do(stage, lambda breaker, _: breaker.left())

    def reason(self, stage: str) -> str:
        """Why it failed last; empty where it never did."""
        return self._reasons.get(stage, "")

    def broken(self) -> Mapping[str, BreakerState]:
        """Stages that are not trusted."""
        with self._lock:
            rows = {name: breaker.state for name, breaker in self._table.items()}
        return {name: state for name, state in rows.items() if state is not BreakerState.CLOSED}

    @property
    def opened(self) -> Mapping[str, int]:
        """Times that each has opened."""
        with self._lock:
            return {name: breaker.opened for name, breaker in self._table.items() if breaker.opened}

    def _do(self, stage: str, action: Callable[[Breaker, float], T]) -> T:
        with self._lock:
            breaker = self._table.setdefault(stage, Breaker(self._settings))
            before = breaker.state
            result = action(breaker, self._clock())
            after = breaker.state
        if after is not before:
            self._changed(stage, after)
        return result
