"""Usable cores: affinity and control groups, old and new, sound and unsound."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw.cpu import usable_cores


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
