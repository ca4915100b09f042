"""Usable cores: affinity and control groups, old and new, sound and unsound."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hw.cpu import keep_thread_on, usable_cores

ALONE = """
import os, threading
from hw.cpu import keep_thread_on
first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
ready, end, ids = threading.Event(), threading.Event(), []
def wait():
    ids.append(threading.get_native_id())
    ready.set()
    end.wait()
thread = threading.Thread(target=wait)
thread.start()
ready.wait()
print(keep_thread_on((last,), ids[0]), os.sched_getaffinity(ids[0]) == {last}, len(os.sched_getaffinity(0)))
end.set()
"""
"""In a process of its own: whoever starts a thread hands his cores on to it."""
HANDED_ON = """
import os, threading
from hw.cpu import keep_thread_on
first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
def engine():
    keep_thread_on((first,))
    thread = threading.Thread(target=lambda: print(keep_thread_on((last,)), os.sched_getaffinity(0) == {last}))
    thread.start()
    thread.join()
    print(keep_thread_on((last, first)), len(os.sched_getaffinity(0)))
thread = threading.Thread(target=engine)
thread.start()
thread.join()
"""
"""A thread that is kept starts another one, and is then to be kept elsewhere."""
two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core, and nothing to choose")


def _root(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


CASES: dict[str, tuple[dict[str, str], int]] = {
    "no control groups": ({}, 8),
    "unlimited": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
    "two cores": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, 2),
    "a fraction is dropped": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "350000 100000\n"}, 3),
    "less than one is one": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 1),
    "a parent limits": (
        {
            "proc/self/cgroup": "0::/system.slice/wren.service\n",
            "sys/fs/cgroup/system.slice/wren.service/cpu.max": "max 100000\n",
            "sys/fs/cgroup/system.slice/cpu.max": "300000 100000\n",
        },
        3,
    ),
    "in a container the path is the host's": (
        {"proc/self/cgroup": "0::/../../docker/abc\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"},
        4,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/wren\n0::/\n",
            "sys/fs/cgroup/cpu/wren/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu/wren/cpu.cfs_period_us": "100000\n",
        },
        2,
    ),
    "version 1 unlimited": (
        {
            "proc/self/cgroup": "4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        8,
    ),
    "nonsense": ({"proc/self/cgroup": "::::\nx", "sys/fs/cgroup/cpu.max": "many often\n"}, 8),
    "a period of nothing": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 0\n"}, 8),
}


@pytest.mark.parametrize("name", CASES)
def test_the_quota_is_found_and_kept(tmp_path: Path, name: str) -> None:
    files, expected = CASES[name]
    assert usable_cores(_root(tmp_path, files), affinity=8) == expected


def test_affinity_below_the_quota_wins(tmp_path: Path) -> None:
    root = _root(tmp_path, {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n"})
    assert usable_cores(root, affinity=2) == 2


def test_this_machine_has_at_least_one() -> None:
    assert usable_cores() >= 1


@two_cores
def test_a_thread_that_is_kept_on_one_core_counts_those_of_the_process() -> None:
    found: list[int] = []

    def count() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        found.append(usable_cores())

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    assert found == [usable_cores()]


def _alone(*before: str, script: str = ALONE) -> str:
    command = [*before, sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()


@two_cores
def test_a_thread_is_kept_on_its_core_and_the_others_stay_free() -> None:
    if len(os.sched_getaffinity(0)) < (os.cpu_count() or 1):
        pytest.skip("these tests were given a part of the cores, and keep to it")
    assert _alone() == f"None True {os.cpu_count()}"


@two_cores
def test_cores_that_wren_gave_may_be_changed() -> None:
    if len(os.sched_getaffinity(0)) < (os.cpu_count() or 1):
        pytest.skip("these tests were given a part of the cores, and keep to it")
    assert _alone(script=HANDED_ON).splitlines() == ["None True", "None 2"]


@two_cores
def test_cores_that_somebody_gave_are_kept() -> None:
    core = min(os.sched_getaffinity(0))
    assert _alone("taskset", "-c", str(core)) == f"it was given cores {core}, and keeps to them True 1"


@pytest.mark.parametrize("cores", [(), (9999,), (-1,)])
def test_cores_that_there_are_not_change_nothing(cores: tuple[int, ...]) -> None:
    before = os.sched_getaffinity(0)
    assert keep_thread_on(cores)
    assert os.sched_getaffinity(0) == before


def test_a_thread_that_has_ended_is_no_fault() -> None:
    assert keep_thread_on((0,), 2**22 + 1)
