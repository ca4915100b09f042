"""How much one client may ask for: token buckets, kept for a bounded number of peers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Bucket", "PeerBuckets", "Rate"]

MAX_PEERS: Final = 512
"""Peers remembered; the one not heard of for longest is forgotten, that is, forgiven."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, and so many a second in the long run."""

    burst: float
    per_s: float


class Bucket:
    """A token bucket: full at first."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._level = rate.burst
        self._at_s = clock()

    def take(self, amount: float = 1.0) -> bool:
        """Whether there is room for this much now; if so it is taken."""
        self._refill()
        if self._level < amount:
            return False
        self._level -= amount
        return True

    @property
    def empty(self) -> bool:
        """Whether not even one would be granted now."""
        self._refill()
        return self._level < 1.0

    def _refill(self) -> None:
        now_s = self._clock()
        self._level = min(self._rate.burst, self._level + (now_s - self._at_s) * self._rate.per_s)
        self._at_s = now_s


class PeerBuckets:
    """One bucket an address."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, peer: str) -> Bucket:
        """The bucket of an address."""
        bucket = self._buckets.get(peer)
        if bucket is None:
            bucket = self._buckets[peer] = Bucket(self._rate, self._clock)
            if len(self._buckets) > MAX_PEERS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(peer)
        return bucket
