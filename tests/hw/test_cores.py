"""Which cores are fast: made trees of machines that nobody here has."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.probe import Core, Machine, Root, probe, probe_root
from hw.probe.cores import core_list
from tests.hw import roots

CPU = "sys/devices/system/cpu"


def big_little() -> dict[str, str]:
    """Four small and four large ARM cores, as an RK3588's kernel shows them."""
    files = {f"{CPU}/online": "0-7\n"}
    for number in range(8):
        files[f"{CPU}/cpu{number}/cpu_capacity"] = "530\n" if number < 4 else "1024\n"
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = f"{number}\n"
    return files


def hybrid_x86() -> dict[str, str]:
    """Two cores with two threads each and four small ones, as an Alder Lake's kernel shows them."""
    files = {f"{CPU}/online": "0-7\n", "sys/devices/cpu_core/cpus": "0-3\n", "sys/devices/cpu_atom/cpus": "4-7\n"}
    for number in range(8):
        pair = f"{number // 2 * 2}-{number // 2 * 2 + 1}\n" if number < 4 else f"{number}\n"
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = pair
        files[f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq"] = "4700000\n" if number < 4 else "3600000\n"
    return files


def smt() -> dict[str, str]:
    """Two equal cores with two threads each; the siblings are counted behind all first threads."""
    files = {f"{CPU}/online": "0-3\n"}
    for number in range(4):
        files[f"{CPU}/cpu{number}/topology/thread_siblings_list"] = f"{number % 2},{number % 2 + 2}\n"
        # One core of most desktop processors may go a little higher than the others.
        files[f"{CPU}/cpu{number}/cpufreq/cpuinfo_max_freq"] = "5000000\n" if number % 2 else "4900000\n"
    return files


def machine(tmp_path: Path, files: dict[str, str]) -> Machine:
    return probe_root(Root(roots.write(tmp_path, {**roots.ORIN, **files})))


def _found(tmp_path: Path, files: dict[str, str]) -> tuple[Core, ...]:
    cores = machine(tmp_path, files).cores
    assert cores is not None
    return cores


def test_large_and_small_arm_cores_are_told_apart_by_capacity(tmp_path: Path) -> None:
    cores = _found(tmp_path, big_little())
    assert [core.speed for core in cores] == [530] * 4 + [1024] * 4
    assert [core.siblings for core in cores] == [(number,) for number in range(8)]


def test_kinds_of_a_hybrid_processor_count_before_clocks(tmp_path: Path) -> None:
    cores = _found(tmp_path, hybrid_x86())
    assert [core.speed for core in cores] == [1024] * 4 + [512] * 4
    assert cores[2].siblings == (2, 3)
    assert cores[5].siblings == (5,)


def test_equal_capacities_leave_it_to_the_clocks(tmp_path: Path) -> None:
    files = smt() | {f"{CPU}/cpu{number}/cpu_capacity": "1024\n" for number in range(4)}
    cores = _found(tmp_path, files)
    assert [core.speed for core in cores] == [1004, 1024, 1004, 1024]
    assert cores[3].siblings == (1, 3)


@pytest.mark.parametrize(
    "broken",
    [
        {f"{CPU}/cpu3/cpu_capacity": "a lot\n"},
        {f"{CPU}/cpu3/cpu_capacity": ""},
        {f"{CPU}/cpu3/cpu_capacity": "0\n"},
    ],
)
def test_capacities_that_do_not_tell_of_every_core_tell_of_none(tmp_path: Path, broken: dict[str, str]) -> None:
    assert {core.speed for core in _found(tmp_path, big_little() | broken)} == {None}


@pytest.mark.parametrize("online", ["", "0-", "x", "7-3", "0-99999"])
def test_a_damaged_list_of_cores_is_none(tmp_path: Path, online: str) -> None:
    assert machine(tmp_path, big_little() | {f"{CPU}/online": online}).cores is None


def test_siblings_that_leave_the_core_itself_out_are_not_believed(tmp_path: Path) -> None:
    files = big_little() | {f"{CPU}/cpu1/topology/thread_siblings_list": "5\n"}
    assert _found(tmp_path, files)[1].siblings == (1,)


def test_no_sysfs_is_nothing_to_warn_about(tmp_path: Path) -> None:
    found = machine(tmp_path, {})
    assert found.cores is None
    assert not any("cores is unknown" in text and "cpu_cores" not in text for text in found.warnings)


def test_this_machine_lists_the_cores_that_run() -> None:
    found = probe()
    assert found.cores is not None
    assert len(found.cores) == found.cpu_cores
    assert all(core.number in core.siblings for core in found.cores)


@given(st.sets(st.integers(0, 900), max_size=60))
def test_a_list_written_in_any_way_is_read(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    assert core_list(",".join(map(str, ordered))) == tuple(ordered)
    ranges, at = [], 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        ranges.append(f"{ordered[at]}-{ordered[end]}")
        at = end + 1
    assert core_list(",".join(ranges)) == tuple(ordered)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = core_list(text)
    assert list(found) == sorted(set(found))
