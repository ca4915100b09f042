"""Which cores do what, where they are not all alike: engines on the fast ones, sound's threads on the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hw.plan.types import Affinity, Choice
from hw.probe.machine import Machine

__all__ = ["physical_cores", "placed", "plan_affinity"]

ALIKE: Final = 0.85
"""Of the fastest core's speed: cores of one kind differ by a tenth in the clock that they may go to."""

LEAST: Final = 2
"""Cores that engines are kept on: with one alone, what is busy there has no way round, and two answers at once would
share it while cores that are nearly as fast do nothing."""


def plan_affinity(machine: Machine, threads: int) -> Affinity:
    """Where engines of so many threads and sound's threads are to run; nothing is pinned where cores are alike."""
    cores = machine.cores
    if not cores:
        return Affinity((), (), "nothing is pinned: it is not known which cores are fast")
    speeds = {core.number: core.speed for core in cores if core.speed is not None}
    if len(speeds) < len(cores):
        return Affinity((), (), f"nothing is pinned: it is not known which of the {len(cores)} cores are fast")
    if machine.usable_cores is not None and machine.usable_cores < len(cores):
        why = f"Wren was given {machine.usable_cores} of {len(cores)} cores, and keeps to what it was given"
        return Affinity((), (), f"nothing is pinned: {why}")
    fastest = max(speeds.values())
    if min(speeds.values()) >= ALIKE * fastest:
        why = "the kernel moves threads to where there is room, and pinning would only be in its way"
        return Affinity((), (), f"nothing is pinned: all {len(cores)} cores are about equally fast; {why}")
    engines: list[int] = []
    # Where one core is faster than all others (a phone's chip), engines take the next kind too.
    for speed in sorted(set(speeds.values()), reverse=True):
        if speed < ALIKE * fastest and len(engines) >= max(threads, LEAST):
            break
        engines += [number for number, its in speeds.items() if its == speed]
    sound = tuple(number for number in speeds if number not in engines)
    if not sound:
        return Affinity((), (), "nothing is pinned: engines need the slow cores too")
    slowest = min(speeds[number] for number in engines)
    others = max(speeds[number] for number in sound)
    why = (
        f"engines run on cores {_listed(engines)}, the fast ones; sound's threads, which only copy, on "
        f"{_listed(sound)} (at most {others / slowest:.0%} of their speed)"
    )
    return Affinity(tuple(sorted(engines)), sound, why)


def placed(choice: Choice, affinity: Affinity) -> Choice:
    """A choice with its cores. What computes on the processor and is waited for goes where it is fast; what listens all
    the time costs little, and no fast core would ever rest for it."""
    listens = choice.chunks is not None and choice.chunks.unit == "samples"
    if listens or choice.backend != "ort-cpu":
        return choice
    return replace(choice, cores=affinity.engines)


def physical_cores(machine: Machine, among: tuple[int, ...] = ()) -> int:
    """Cores that Wren may use at once, at least 1: siblings share one core's units, and count as one.

    `among`: numbers of those that are meant; empty: all.
    """
    usable = machine.usable_cores or machine.cpu_cores or 1
    if not machine.cores:
        return usable
    meant = [core for core in machine.cores if not among or core.number in among]
    return max(1, min(usable, len({min(core.siblings) for core in meant})))


def _listed(numbers: list[int] | tuple[int, ...]) -> str:
    """`0-3, 8` of the numbers."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
