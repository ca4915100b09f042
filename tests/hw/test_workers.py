"""How many recognitions at once, and which cores do what: by rule, as measured, and on machines with unequal cores."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.plan import Candidate, Plan, TaskNeed, Timing, make_plan, rule_count
from hw.plan.affinity import physical_cores
from hw.probe import Core, Machine
from tests.hw.test_cores import big_little, hybrid_x86, machine, smt
from tests.hw.test_plan import ASR, ORIN, X86

VAD = TaskNeed(task="vad", model="v", fixed=Candidate("ort-cpu", "fp32", None, 1), why="small", window_samples=512)
VNNI = dataclasses.replace(X86, cpu={**(X86.cpu or {}), "avx_vnni": True})
"""A machine on which there is but one way, if the model has INT8."""
INT8 = Candidate("ort-cpu", "int8", "s8-dynamic", 1)


def _alike(count: int) -> Machine:
    cores = tuple(Core(number, 1024, (number,)) for number in range(count))
    return dataclasses.replace(VNNI, cpu_cores=count, cores=cores)


def _planned(machine: Machine, *timings: Timing) -> Plan:
    return make_plan(machine, [ASR, VAD], {"asr": timings})


def _timing(waits: float | None = None, *at_once: tuple[int, float], candidate: Candidate = INT8) -> Timing:
    return Timing(candidate, 100.0, waits=waits, at_once=at_once)


# ---- workers ------------------------------------------------------------------------------------------------------


def test_unmeasured_a_core_does_one_thread_of_a_recognition() -> None:
    workers = make_plan(_alike(8), [ASR], {}).workers
    assert (workers.recognitions, workers.measured, workers.waits) == (4, False, 0.0)  # two threads each, by rule
    assert "8 cores x (1 + 0 of wait for 1 of compute) / 2 threads of an engine: 4; not measured" in workers.reason


def test_measured_waits_leave_room_for_more() -> None:
    assert _planned(_alike(4), _timing(0.6)).workers.recognitions == 6
    assert _planned(_alike(4), _timing(1000.0)).workers.recognitions == 20  # a busy machine's figure is not believed


def test_what_was_tried_corrects_the_rule() -> None:
    workers = _planned(_alike(4), _timing(0.0, (1, 5.0), (2, 9.6), (4, 10.0), (5, 9.0))).workers
    assert (workers.recognitions, workers.measured) == (2, True)
    assert "2 at once 9.6 a second" in workers.reason
    assert _planned(_alike(4), _timing(0.0, (1, 5.0), (2, 9.0), (4, 17.0), (5, 20.0))).workers.recognitions == 5


def test_what_was_tried_of_another_way_says_nothing() -> None:
    other = dataclasses.replace(INT8, threads=2)
    plan = _planned(_alike(4), _timing(), dataclasses.replace(_timing(0.0, (1, 9.0), candidate=other), ms=99.0))
    assert plan.tasks["asr"].threads == 1
    assert not plan.workers.measured


def test_a_gpu_takes_two_at_once_however_many_cores_there_are() -> None:
    workers = make_plan(ORIN, [ASR], {}).workers
    assert (workers.recognitions, workers.waits) == (2, 1.0)
    assert "at most 2 on one GPU" in workers.reason


def test_memory_bounds_them() -> None:
    roomy = make_plan(_alike(64), [ASR], {})
    assert roomy.memory.budget_mb is not None
    spare_mb = 100
    kib = (roomy.memory.planned_mb + spare_mb) * 1024 * 10 // 6
    tight = make_plan(dataclasses.replace(_alike(64), ram_total_kib=kib), [ASR], {}).workers
    assert tight.recognitions == 2 < roomy.workers.recognitions
    assert "MB are left" in tight.reason


def test_threads_that_share_a_core_count_once(tmp_path: Path) -> None:
    assert physical_cores(machine(tmp_path, smt())) == 1  # this tree's cpuinfo has one block
    two = dataclasses.replace(machine(tmp_path, smt()), cpu_cores=4)
    assert physical_cores(two) == 2
    assert physical_cores(dataclasses.replace(two, usable_cores=1)) == 1


def test_a_plan_that_recognises_nothing_has_one_worker() -> None:
    assert make_plan(X86, [VAD], {}).workers.recognitions == 1


@given(
    cores=st.integers(1, 256),
    threads=st.integers(1, 8),
    waits=st.floats(0.0, 1e6),
    rates=st.lists(st.floats(0.01, 1e4), max_size=5),
)
def test_there_is_always_one_and_never_more_than_was_tried_or_reckoned(
    cores: int, threads: int, waits: float, rates: list[float]
) -> None:
    tried = tuple((number, rate) for number, rate in enumerate(rates, start=1))
    timing = _timing(waits, *tried, candidate=dataclasses.replace(INT8, threads=threads))
    need = dataclasses.replace(ASR, max_threads=8)
    found = make_plan(_alike(cores), [need], {"asr": (timing,)})
    most = max(rule_count(found.tasks["asr"], cores, 4.0), len(tried), 1)
    assert 1 <= found.workers.recognitions <= most


# ---- cores --------------------------------------------------------------------------------------------------------


def test_large_cores_compute_and_small_ones_copy_sound(tmp_path: Path) -> None:
    found = dataclasses.replace(machine(tmp_path, big_little()), cpu_cores=8)
    plan = _planned(found)
    assert plan.affinity.engines == (4, 5, 6, 7)
    assert plan.affinity.sound == (0, 1, 2, 3)
    assert "cores 4-7, the fast ones" in plan.affinity.reason
    assert plan.tasks["asr"].cores == (4, 5, 6, 7)
    assert plan.tasks["vad"].cores == ()  # listens all the time: no fast core would rest for it
    assert plan.workers.recognitions == 4 // plan.tasks["asr"].threads


def test_a_hybrid_processor_s_small_cores_are_left_to_sound(tmp_path: Path) -> None:
    plan = _planned(dataclasses.replace(machine(tmp_path, hybrid_x86()), cpu_cores=8))
    assert (plan.affinity.engines, plan.affinity.sound) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert plan.workers.recognitions == 2 // plan.tasks["asr"].threads  # four threads, two cores


def test_one_fastest_core_is_joined_by_the_next_kind() -> None:
    speeds = [300, 300, 300, 300, 800, 800, 800, 1024]
    cores = tuple(Core(number, speed, (number,)) for number, speed in enumerate(speeds))
    found = dataclasses.replace(VNNI, cpu_cores=8, cores=cores)
    for threads in (1, 2):
        plan = _planned(found, _timing(candidate=dataclasses.replace(INT8, threads=threads)))
        assert plan.affinity.engines == (4, 5, 6, 7)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (_alike(4), "all 4 cores are about equally fast"),
        (X86, "not known which cores are fast"),
        (dataclasses.replace(X86, cores=(Core(0, 1024, (0,)), Core(1, None, (1,)))), "which of the 2 cores"),
        (
            dataclasses.replace(X86, usable_cores=1, cores=(Core(0, 1024, (0,)), Core(1, 400, (1,)))),
            "given 1 of 2 cores, and keeps to what it was given",
        ),
    ],
)
def test_nothing_is_pinned_without_a_reason(found: Machine, why: str) -> None:
    affinity = make_plan(found, [ASR], {}).affinity
    assert (affinity.engines, affinity.sound) == ((), ())
    assert why in affinity.reason


def test_clocks_that_differ_by_a_little_are_alike(tmp_path: Path) -> None:
    assert _planned(machine(tmp_path, smt())).affinity.engines == ()


@given(speeds=st.lists(st.integers(1, 1024), min_size=1, max_size=32), threads=st.integers(1, 4))
def test_every_core_is_either_s_or_none_is_and_the_fast_ones_compute(speeds: list[int], threads: int) -> None:
    cores = tuple(Core(number, speed, (number,)) for number, speed in enumerate(speeds))
    found = dataclasses.replace(VNNI, cpu_cores=len(speeds), cores=cores)
    plan = _planned(found, _timing(candidate=dataclasses.replace(INT8, threads=threads)))
    engines, sound = plan.affinity.engines, plan.affinity.sound
    if not engines:
        assert not sound
        return
    assert sorted(engines + sound) == list(range(len(speeds)))
    assert min(speeds[number] for number in engines) > max(speeds[number] for number in sound)
    assert len(engines) >= max(2, plan.tasks["asr"].threads)
