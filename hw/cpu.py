"""How many cores this process may really use (its affinity, and the CPU quota of its control groups), and threads that
are kept on some of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

__all__ = ["keep_thread_on", "usable_cores"]

_OURS: Final[set[frozenset[int]]] = set()
"""Cores that a thread was kept on here: whoever starts a thread hands his cores on to it."""


def usable_cores(root: Path = Path("/"), affinity: int | None = None) -> int:
    """Cores this process may use, at least 1; never raises.

    `root` is where `/proc` and `/sys` are looked for; `affinity` stands in for this process's own number of cores.
    A fraction of a core is dropped: threads beyond a quota are stopped in the middle of a frame until the next
    period, which is worse for sound than a thread less.
    """
    cores = _affinity() if affinity is None else affinity
    quotas = [_quota_v2(folder) for folder in _groups(root, "")]
    quotas += [_quota_v1(folder) for folder in _groups(root, "cpu")]
    return max(1, int(min([cores, *(quota for quota in quotas if quota is not None)])))


def keep_thread_on(cores: Collection[int], thread_id: int = 0) -> str | None:
    """Keep a thread of this process (its native id; 0: this one) on some cores. None: it is; else why it was left.

    Never raises. A thread that may not run everywhere was given its cores by somebody (`taskset`, systemd, a
    container's cpuset): they are kept, unless it was us, or it has them of a thread that we kept.
    """
    try:
        given = frozenset(os.sched_getaffinity(thread_id))
        if len(given) < (os.cpu_count() or 1) and given not in _OURS:
            return f"it was given cores {', '.join(map(str, sorted(given)))}, and keeps to them"
        os.sched_setaffinity(thread_id, cores)
        _OURS.add(frozenset(os.sched_getaffinity(thread_id)))
    except (AttributeError, OSError, ValueError) as error:  # not on Linux; the thread has ended; no such cores
        return str(error)
    return None


def _affinity() -> int:
    """The main thread's: the one that asks may be kept on some cores by us."""
    try:
        return len(os.sched_getaffinity(os.getpid()))
    except (AttributeError, OSError):  # not on Linux
        return os.cpu_count() or 1


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and its parents, for a v1 controller, or v2 where that is empty.

    Lines are `hierarchy:controllers:path` (man 7 cgroups); v2's is `0::path`. In a container the path may be that of
    the host and not exist here: then the mount's own root is the container's group.
    """
    mount = root / "sys/fs/cgroup" / controller
    yield mount
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            group = PurePosixPath(path.lstrip("/"))
            if ".." not in group.parts:
                yield from (mount / part for part in (group, *group.parents))


def _quota_v2(folder: Path) -> float | None:
    """Cores allowed by `cpu.max` (`quota period` or `max period`, microseconds)."""
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    return _cores(quota, period)


def _quota_v1(folder: Path) -> float | None:
    """Cores allowed by the quota files of version 1; a quota of -1 is none."""
    return _cores(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _cores(quota: str, period: str) -> float | None:
    try:
        allowed, every = int(quota), int(period)
    except ValueError:  # absent, `max`, or not what the kernel writes
        return None
    return allowed / every if allowed > 0 and every > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
