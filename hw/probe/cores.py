"""Which cores are fast and which share one: sysfs's capacities, clocks, kinds and siblings.

Documentation/ABI/testing/sysfs-devices-system-cpu (cpu_capacity, topology) and sysfs-bus-event_source-devices (the
cores of each kind of a hybrid x86 processor).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hw.errors import UnreadableError
from hw.probe.facts import Facts
from hw.probe.machine import Core
from hw.probe.root import Root

__all__ = ["core_list", "gather_cores"]

CPUS: Final = "sys/devices/system/cpu"
MOST_CORES: Final = 1024
"""Of one machine; a list that names more is none."""
FULL: Final = 1024
"""The kernel's capacity of the fastest core."""
SMALL: Final = 512
"""Taken for the small cores of a hybrid x86 processor where only their kind is known: about half as fast."""


def gather_cores(root: Root, facts: Facts) -> None:
    """cores."""
    try:
        numbers = core_list(root.value(f"{CPUS}/online"))
    except UnreadableError as error:
        facts.absent("cores", str(error))
        return
    if not numbers:
        facts.unknown("cores", f"{CPUS}/online is no list of cores")
        return
    speeds, source = _speeds(root, numbers)
    cores = tuple(Core(number, speeds.get(number), _siblings(root, number)) for number in numbers)
    facts.put("cores", cores, f"{CPUS} (online, topology); {source}")


def core_list(text: str) -> tuple[int, ...]:
    """The numbers of a kernel's list, as `0-3,8`, in order; empty for what is none, or names too many."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST_CORES:
            return ()
        found.update(range(first, last + 1))
    return tuple(sorted(found)) if len(found) <= MOST_CORES else ()


def _speeds(root: Root, numbers: Iterable[int]) -> tuple[dict[int, int], str]:
    """Core -> its speed of 1024, from the first source that tells of every one, and which that was."""
    wanted = tuple(numbers)
    capacities = _numbers(root, wanted, "cpu_capacity")
    # Where a kernel knows nothing it calls all cores equal: then kinds and clocks may know better.
    if len(capacities) == len(wanted) and len(set(capacities.values())) > 1:
        return capacities, "cpu_capacity"
    fast, small = (_kind(root, name) for name in ("cpu_core", "cpu_atom"))
    if fast and small and set(wanted) <= fast | small:
        return {number: FULL if number in fast else SMALL for number in wanted}, "sys/devices/cpu_core, cpu_atom"
    clocks = _numbers(root, wanted, "cpufreq/cpuinfo_max_freq")
    if len(clocks) == len(wanted):
        fastest = max(clocks.values())
        return {number: round(FULL * clock / fastest) for number, clock in clocks.items()}, "cpuinfo_max_freq"
    if len(capacities) == len(wanted):
        return capacities, "cpu_capacity"
    return {}, "nothing tells how fast each is"


def _numbers(root: Root, cores: Iterable[int], name: str) -> dict[int, int]:
    found = {}
    for core in cores:
        try:
            text = root.value(f"{CPUS}/cpu{core}/{name}")
        except UnreadableError:
            continue
        if re.fullmatch(r"[0-9]{1,9}", text) and int(text):
            found[core] = int(text)
    return found


def _kind(root: Root, name: str) -> set[int]:
    try:
        return set(core_list(root.value(f"sys/devices/{name}/cpus")))
    except UnreadableError:
        return set()


def _siblings(root: Root, number: int) -> tuple[int, ...]:
    """Itself at least."""
    try:
        found = core_list(root.value(f"{CPUS}/cpu{number}/topology/thread_siblings_list"))
    except UnreadableError:
        found = ()
    return found if number in found else (number,)
