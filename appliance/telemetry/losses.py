"""What was lost lately, from counters that only grow. Pure but for the clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["RECENT_S", "RecentLosses"]

RECENT_S: Final = 600.0
"""A loss is news for so long; the counts since the start are told besides."""
STEP_S: Final = 10.0
"""Losses within so long count as one moment: a flood must not fill the memory either."""


class RecentLosses:
    """Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._total = 0
        # Bounded without `maxlen`, which would forget the oldest uncounted: `STEP_S` apart and none older than
        # `RECENT_S`, they are some sixty.
        self._moments: deque[tuple[float, int]] = deque()
        """When, and how many; oldest first."""

    def recent(self, total: int) -> int:
        """How many of all that were lost since the start were lost lately."""
        now_s = self._clock()
        with self._lock:
            new, self._total = total - self._total, total
            if new > 0:
                if self._moments and now_s - self._moments[-1][0] < STEP_S:
                    at_s, count = self._moments.pop()
                    self._moments.append((at_s, count + new))
                else:
                    self._moments.append((now_s, new))
            while self._moments and now_s - self._moments[0][0] > RECENT_S:
                self._moments.popleft()
            return sum(count for _, count in self._moments)
