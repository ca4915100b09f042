"""What the machine and this process used: CPU, memory, what else was running. Linux's /proc; elsewhere own CPU only."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CpuMeter", "Load", "MachineLine", "cpu_name", "machine_line", "peak_rss_mb"]

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME, _PPID = 11, 12, 1
"""Fields of /proc/PID/stat behind the program's name (proc(5))."""


@dataclass(frozen=True, slots=True)
class MachineLine:
    """What was measured on."""

    cpu: str
    cores: int
    """Cores this process may use."""
    python: str
    system: str


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine was."""

    load_1min: float
    probe_wall_per_cpu: float
    """Wall over CPU seconds of a fixed piece of work: 1 on an idle machine, more where others took the core."""

    @classmethod
    def now(cls) -> Load:
        """Takes about 0.1 s."""
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        value = 1
        for number in range(1_000_000):
            value = (value * 1_103_515_245 + number) & 0x7FFFFFFF
        spent_s = time.thread_time() - cpu_s
        return cls(os.getloadavg()[0], (time.perf_counter() - wall_s) / max(spent_s, 1e-9))


class CpuMeter:
    """CPU seconds of this process and its children since it was made, and of everything else on the machine."""

    def __init__(self) -> None:
        self._wall_s = time.monotonic()
        self._busy_s = _busy_s()
        self._children_s = _children_cpu_s()
        self._own_s = time.process_time()

    def read(self) -> tuple[float, float | None]:
        """(CPU seconds of ours, cores that others kept busy meanwhile: None where the system does not say)."""
        own_s = time.process_time() - self._own_s
        # A child that has ended since no longer counts; ours (espeak-ng) live as long as the voice.
        used_s = own_s + max(0.0, _children_cpu_s() - self._children_s)
        busy_s, wall_s = _busy_s(), time.monotonic() - self._wall_s
        if busy_s is None or self._busy_s is None or wall_s <= 0.0:
            return used_s, None
        return used_s, max(0.0, busy_s - self._busy_s - used_s) / wall_s


def machine_line() -> MachineLine:
    """This machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return MachineLine(cpu_name(), cores, platform.python_version(), f"{platform.system()} {platform.release()}")


def cpu_name() -> str:
    """What the CPU calls itself, else its architecture."""
    try:
        lines = (_PROC / "cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, platform.machine())


def peak_rss_mb() -> float | None:
    """Highest resident memory of this process and of its living children, added up, in MB; None if unknown."""
    sizes = [_peak_kib(pid) for pid in (os.getpid(), *_children())]
    known = [size for size in sizes if size is not None]
    return sum(known) * 1024 / 1e6 if known else None


def _peak_kib(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def _children() -> Iterator[int]:
    """Processes that this one started and that are still there."""
    own = os.getpid()
    for folder in _PROC.glob("[0-9]*"):
        fields = _stat(folder)
        if fields and int(fields[_PPID]) == own:
            yield int(folder.name)


def _children_cpu_s() -> float:
    fields = [_stat(_PROC / str(pid)) for pid in _children()]
    return sum((int(f[_UTIME]) + int(f[_STIME])) / _TICKS_PER_S for f in fields if f)


def _stat(folder: Path) -> list[str]:
    """Fields of a process behind its name (which may hold blanks and brackets); none where it has gone."""
    try:
        return (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _busy_s() -> float | None:
    """CPU seconds that all cores have been busy since the start of the machine."""
    try:
        first = (_PROC / "stat").read_text(encoding="utf-8").partition("\n")[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first)
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S
