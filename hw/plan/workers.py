"""How many recognitions may run at once: by rule from cores and waits, then as was measured."""

from __future__ import annotations

from typing import Final

from hw.plan.types import Backend, Choice, Timing, Workers

__all__ = ["plan_workers", "rule_count"]

RECOGNITION_MB: Final = 60
"""What one recognition more takes while it runs (measured: 56 MB for 25 s of speech, 12 MB for 4 s)."""
DEVICE_WAITS: Final = 1.0
"""Wait for each second of compute, unmeasured: an engine on a GPU leaves the processor alone half of the time."""
DEVICE_MOST: Final = 2
"""Recognitions at once on a GPU: one is prepared while the other is computed; a third would only wait there."""
MOST_WAITS: Final = 4.0
"""More than this is a machine that was busy with something else while it was measured."""
AS_GOOD: Final = 0.9
"""Of the best throughput: fewer at once that do nearly as much finish each one sooner."""
_DEVICES: Final[frozenset[Backend]] = frozenset(("tensorrt", "ort-cuda"))


def plan_workers(choice: Choice | None, cores: int, room_mb: int | None) -> Workers:
    """Recognitions at once on so many cores, with `room_mb` of memory left beside the plan (None: unknown).

    `choice` is how they are made; None: nothing recognises.
    """
    if choice is None:
        return Workers(1, 0.0, False, "nothing recognises")
    timing = _measured(choice)
    waits = _waits(choice, timing)
    count = rule_count(choice, cores, waits)
    by_rule = f"{cores} core{'s' if cores > 1 else ''} x (1 + {waits:.2g} of wait for 1 of compute)"
    by_rule += f" / {choice.threads} thread{'s' if choice.threads > 1 else ''} of an engine: {count}"
    if choice.backend in _DEVICES:
        by_rule += f" (at most {DEVICE_MOST} on one GPU)"
    parts = [by_rule]
    rates = () if timing is None else timing.at_once
    if rates:
        best = max(rate for _, rate in rates)
        count = next(number for number, rate in sorted(rates) if rate >= AS_GOOD * best)
        told = ", ".join(f"{number} at once {rate:.1f} a second" for number, rate in sorted(rates))
        parts.append(f"measured here: {told}")
    else:
        parts.append("not measured here")
    if room_mb is not None and (fitting := 1 + max(0, room_mb) // RECOGNITION_MB) < count:
        count = fitting
        parts.append(f"{max(0, room_mb)} MB are left, and each one more takes about {RECOGNITION_MB}")
    return Workers(count, round(waits, 2), bool(rates), "; ".join(parts))


def rule_count(choice: Choice, cores: int, waits: float | None = None) -> int:
    """By rule alone, at least 1: cores x (1 + wait/compute) threads are kept busy, `Choice.threads` of them each.

    `waits` None: as nothing was measured. The formula is Goetz's ("Java Concurrency in Practice", 8.2).
    """
    count = max(1, int(cores * (1.0 + (_waits(choice, None) if waits is None else waits)) / choice.threads))
    return min(count, DEVICE_MOST) if choice.backend in _DEVICES else count


def _measured(choice: Choice) -> Timing | None:
    """The timing of the very way that was chosen."""
    chosen = (choice.backend, choice.precision, choice.scheme, choice.threads)
    ways = {(t.candidate.backend, t.candidate.precision, t.candidate.scheme, t.candidate.threads): t
            for t in choice.candidates}  # fmt: skip
    return ways.get(chosen)


def _waits(choice: Choice, timing: Timing | None) -> float:
    if timing is not None and timing.waits is not None:
        return min(max(timing.waits, 0.0), MOST_WAITS)
    return DEVICE_WAITS if choice.backend in _DEVICES else 0.0
