"""Percentiles and spread of measured values. Percentiles are nearest rank: a value that was really measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "nearest_rank"]


def nearest_rank(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` (0 to 100) of all values do not exceed. Raises `ValueError`."""
    if not values:
        raise ValueError("no values have no percentile")
    if not 0.0 <= percent <= 100.0:
        raise ValueError(f"{percent} is not between 0 and 100")
    ordered = sorted(values)
    # The product is rounded first: 0.07 * 100 is a little more than 7 in floating point, and would skip a rank.
    rank = math.ceil(round(percent * len(ordered) / 100.0, 9))
    return ordered[max(rank, 1) - 1]


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie; in their own unit."""

    n: int
    p50: float
    p95: float
    mean: float
    sd: float
    """Standard deviation of these values (divided by n)."""
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Of the values that are known; None where there are none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        mean = math.fsum(known) / len(known)
        sd = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
        return cls(len(known), nearest_rank(known, 50), nearest_rank(known, 95), mean, sd, min(known), max(known))
