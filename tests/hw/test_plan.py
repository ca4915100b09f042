"""The plan: the table of rules, measurement where they leave a choice, memory, overrides; the same every time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.errors import PlanError
from hw.plan import Candidate, Override, Overrides, TaskNeed, Timing, make_plan, thread_counts
from hw.plan.budget import budget_mb
from hw.plan.chunks import LARGEST, USUAL, chunk_frames
from hw.plan.rules import CONDITIONS, RULES
from hw.plan.types import Backend, Choice, Precision, Scheme
from hw.probe import Machine

AVX2 = {"name": "x", "avx2": True, "avx512f": False, "avx512_vnni": False, "avx_vnni": False, "amx_int8": False}
NEON = {"name": "x", "dotprod": False, "i8mm": False, "sve": False, "bf16": False}
GPU = {"fp16": True, "int8": True, "fp8": False, "bf16": True}

X86 = Machine(arch="x86_64", chip="x86_64", cpu=AVX2, cpu_cores=4, ram_total_kib=16_000_000)
ARM = Machine(arch="aarch64", chip="bcm2712", cpu=NEON, cpu_cores=4, ram_total_kib=8_000_000)
ORIN = Machine(
    arch="aarch64", chip="tegra234", cpu={**NEON, "dotprod": True}, cpu_cores=6, ram_total_kib=7_802_880, sm="8.7",
    gpu="Ampere", gpu_memory="shared", tensorrt="10.3.0.30", system_python="3.10.12", precision_support=GPU,
    tensor_cores=True,
)  # fmt: skip
CARD = dataclasses.replace(
    X86, sm="8.6", gpu="NVIDIA GeForce RTX 3060", precision_support=GPU, tensor_cores=True, system_python="3.12.3"
)
WORKS = {"CPUExecutionProvider": None, "tensorrt": None}

ASR = TaskNeed(task="asr", model="m", weights_mb={"fp32": 300.0, "int8": 87.0}, int8_gate=True, job="a command",
               int8_schemes=("s8-dynamic",))  # fmt: skip


def _choice(machine: Machine, need: TaskNeed = ASR, user: Overrides | None = None, **ms: float) -> Choice:
    """The choice; timings as `int8_1=120.0` (precision and threads)."""
    timings = []
    for name, value in ms.items():
        precision, threads = name.split("_")
        scheme: Scheme | None = "s8-dynamic" if precision == "int8" else None
        candidate = Candidate("ort-cpu", "int8" if precision == "int8" else "fp32", scheme, int(threads))
        timings.append(Timing(candidate, value))
    return make_plan(machine, [need], {need.task: tuple(timings)}, user).tasks[need.task]


def _with(machine: Machine, **sets: bool) -> Machine:
    return dataclasses.replace(machine, cpu={**(machine.cpu or {}), **sets})


def _gate(passed: bool | None) -> TaskNeed:
    return dataclasses.replace(ASR, int8_gate=passed)


# ---- the table ----------------------------------------------------------------------------------------------------


def test_a_kind_of_int8_that_failed_the_gate_is_not_used_where_another_passed() -> None:
    failed = dataclasses.replace(ASR, int8_failed=("qdq",))
    assert _choice(ORIN, failed).precision == "fp16"
    assert _choice(ORIN).precision == "int8"
    other = dataclasses.replace(ASR, int8_schemes=(), int8_failed=("u8s8",))
    assert _choice(_with(X86, avx512_vnni=True), other).scheme == "s8-dynamic"


@pytest.mark.parametrize("found", ["avx512_vnni", "avx_vnni", "amx_int8"])
def test_x86_with_vnni_multiplies_bytes(found: str) -> None:
    machine = _with(X86, **{found: True})
    choice = _choice(machine)
    assert (choice.backend, choice.precision, choice.rule) == ("ort-cpu", "int8", "x86-vnni")
    assert choice.scheme == "s8-dynamic"  # the one that exists
    assert _choice(machine, dataclasses.replace(ASR, int8_schemes=())).scheme == "u8s8"
    assert _choice(machine, _gate(False)).precision == "fp32"
    assert _choice(machine, _gate(None)).precision == "fp32"


def test_x86_without_vnni_takes_int8_only_where_it_measured_faster() -> None:
    assert (_choice(X86).precision, _choice(X86).measured) == ("fp32", False)
    fast = _choice(X86, fp32_1=300.0, int8_1=130.0)
    assert (fast.precision, fast.scheme, fast.measured) == ("int8", "s8-dynamic", True)
    assert fast.times_faster_than_worst == 2.31
    assert _choice(X86, fp32_1=300.0, int8_1=290.0).precision == "fp32"  # not worth its error
    assert _choice(X86, _gate(False), fp32_1=300.0, int8_1=130.0).precision == "fp32"


@pytest.mark.parametrize("sets", [{}, {"dotprod": True}, {"i8mm": True}])
def test_arm_by_measurement(sets: dict[str, bool]) -> None:
    machine = _with(ARM, **sets)
    assert (_choice(machine).backend, _choice(machine).precision) == ("ort-cpu", "fp32")
    assert _choice(machine, fp32_1=900.0, int8_1=300.0).precision == "int8"
    assert _choice(machine, fp32_1=300.0, int8_1=900.0).precision == "fp32"
    assert _choice(machine, _gate(False), fp32_1=900.0, int8_1=300.0).precision == "fp32"
    assert _choice(machine).rule == ("arm-dotprod" if sets else "arm")


def test_an_unknown_machine_gets_what_runs_everywhere() -> None:
    choice = _choice(Machine())
    assert (choice.backend, choice.precision, choice.scheme, choice.threads) == ("ort-cpu", "fp32", None, 1)


def test_tensorrt_where_everything_for_it_is_there() -> None:
    choice = _choice(ORIN)
    assert (choice.backend, choice.precision, choice.scheme) == ("tensorrt", "int8", "qdq")
    assert choice.fallback is not None
    assert (choice.fallback.backend, choice.fallback.precision) == ("ort-cpu", "fp32")
    failed = _choice(ORIN, _gate(False))
    assert (failed.precision, failed.scheme) == ("fp16", None)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sm": "6.2"}, "compute capability is 6.2"),
        ({"sm": None}, "compute capability is not there"),
        ({"tensorrt": "8.5.2"}, "TensorRT is 8.5.2"),
        ({"tensorrt": None}, "TensorRT is not there"),
        ({"system_python": "3.8.10"}, "Python is 3.8.10"),
        ({"system_python": None}, "Python is not there"),
        ({"runtimes": {"CPUExecutionProvider": None, "tensorrt": "no such module"}}, "no such module"),
    ],
)
def test_what_tensorrt_lacks_is_said(change: dict[str, object], word: str) -> None:
    choice = _choice(dataclasses.replace(ORIN, **change))
    assert choice.backend == "ort-cpu"
    assert any(text.startswith("tensorrt: ") and word in text for text in choice.passed_over)


@pytest.mark.parametrize(("tensorrt", "taken"), [("10.3", True), ("10.2.9", False), ("11.4.0.1", True), ("9.9", False)])
def test_versions_are_compared_as_numbers(tensorrt: str, taken: bool) -> None:
    assert (_choice(dataclasses.replace(ORIN, tensorrt=tensorrt)).backend == "tensorrt") is taken


@pytest.mark.parametrize("gate", [True, False, None])
def test_cuda_of_onnxruntime_never_gets_int8(gate: bool | None) -> None:
    choice = _choice(CARD, _gate(gate))
    assert (choice.backend, choice.precision) == ("ort-cuda", "fp16")
    old = dataclasses.replace(CARD, sm="6.1", precision_support={**GPU, "fp16": False}, tensor_cores=False)
    assert _choice(old, _gate(gate)).precision == "fp32"


def test_cuda_must_have_worked_on_the_machine_itself() -> None:
    without = dataclasses.replace(CARD, runtimes=WORKS)
    assert _choice(without).backend == "ort-cpu"
    broken = dataclasses.replace(CARD, runtimes={**WORKS, "CUDAExecutionProvider": "no libcudnn"})
    assert _choice(broken).backend == "ort-cpu"
    assert any("no libcudnn" in text for text in _choice(broken).passed_over)
    assert _choice(dataclasses.replace(CARD, runtimes={**WORKS, "CUDAExecutionProvider": None})).backend == "ort-cuda"


def test_an_old_jetson_uses_cuda_only_if_it_was_proved() -> None:
    old = dataclasses.replace(ORIN, tensorrt="8.5.2", system_python="3.8.10", sm="7.2")
    assert _choice(old).backend == "ort-cpu"
    assert _choice(dataclasses.replace(old, runtimes={**WORKS, "CUDAExecutionProvider": None})).backend == "ort-cuda"


def test_without_a_working_onnxruntime_numpy_is_the_last_rung() -> None:
    choice = _choice(dataclasses.replace(X86, runtimes={"CPUExecutionProvider": "it crashed"}))
    assert (choice.backend, choice.precision, choice.fallback) == ("numpy", "fp32", None)


def test_every_row_of_the_table_can_be_taken_or_passed_over_in_words() -> None:
    assert {name for rule in RULES for name in rule.when} == set(CONDITIONS)
    assert RULES[-1].when == ()
    for rule in RULES:
        assert rule.passed
        assert rule.failed
        assert "int8" not in rule.failed
        assert rule.schemes or "int8" not in rule.passed
    for condition in CONDITIONS.values():
        for machine in (Machine(), X86, ARM, ORIN, CARD):
            why = condition(machine)
            assert why is None or why


def test_a_task_without_a_choice_keeps_its_way() -> None:
    need = TaskNeed(
        task="wake", model="w", fixed=Candidate("tflite", "int8", None, 1), why="it comes so", window_samples=160
    )
    choice = _choice(ORIN, need)
    assert (choice.backend, choice.precision, choice.reason, choice.measured) == (
        "tflite",
        "int8",
        "it comes so",
        False,
    )
    assert choice.chunks is not None
    assert choice.chunks.sizes == (160,)


def test_a_reason_of_the_model_s_own_is_told_instead_of_its_gate() -> None:
    need = dataclasses.replace(ASR, int8_gate=False, why="no INT8, for its pieces would not join")
    plan = make_plan(X86, [need], {}, Overrides(tasks={"asr": Override(precision="int8")}))
    choice = plan.tasks["asr"]
    assert choice.precision == "fp32"
    assert "its pieces would not join" in choice.reason
    assert any("int8 was set" in text and "its pieces would not join" in text for text in plan.warnings)
    assert not any("accuracy gate" in text for text in (choice.reason, *plan.warnings))
    passed = _choice(X86, dataclasses.replace(need, int8_gate=True))  # as `wren plan --gate passed` asks
    assert "its pieces" not in passed.reason


def test_a_need_that_nothing_can_run_is_a_mistake() -> None:
    with pytest.raises(PlanError, match="asr"):
        make_plan(X86, [dataclasses.replace(ASR, backends=("tflite",))], {})


# ---- threads ------------------------------------------------------------------------------------------------------


def test_more_threads_only_where_they_pay() -> None:
    assert _choice(X86, fp32_1=300.0, fp32_2=170.0).threads == 2
    assert _choice(X86, fp32_1=300.0, fp32_2=250.0).threads == 1
    assert _choice(X86, fp32_1=300.0, fp32_2=170.0, fp32_4=160.0).threads == 2


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (3, 1), (4, 2), (12, 2)])
def test_unmeasured_threads_leave_cores_free(cores: int | None, threads: int) -> None:
    assert _choice(dataclasses.replace(X86, cpu_cores=cores)).threads == threads


def test_counts_worth_trying() -> None:
    assert [thread_counts(cores) for cores in (1, 2, 4, 6, 64)] == [(1,), (1, 2), (1, 2), (1, 2, 4), (1, 2, 4)]


def test_heat_takes_threads_away() -> None:
    assert _choice(X86, user=Overrides(max_threads=1), fp32_1=300.0, fp32_2=100.0).threads == 1
    assert _choice(X86, user=Overrides(max_threads=1)).threads == 1


# ---- what the user sets -------------------------------------------------------------------------------------------


def _user(backend: Backend | None = None, precision: Precision | None = None, threads: int | None = None) -> Overrides:
    return Overrides(tasks={"asr": Override(backend, precision, threads)})


def test_a_setting_is_kept_where_it_can_be() -> None:
    choice = _choice(ORIN, user=_user(backend="ort-cpu", threads=4))
    assert (choice.backend, choice.threads) == ("ort-cpu", 4)
    assert "setting" in choice.reason
    assert _choice(X86, user=_user(precision="fp32"), fp32_1=300.0, int8_1=100.0).precision == "fp32"
    assert _choice(X86, user=_user(threads=1), fp32_1=300.0, fp32_2=100.0).threads == 1


def test_a_setting_that_cannot_be_kept_is_told() -> None:
    plan = make_plan(X86, [_gate(False)], {}, _user(backend="tensorrt", precision="int8"))
    assert plan.tasks["asr"].backend == "ort-cpu"
    assert plan.tasks["asr"].precision == "fp32"
    assert any("tensorrt was set, and is not used: no NVIDIA GPU" in text for text in plan.warnings)
    assert any("int8 was set" in text and "accuracy gate" in text for text in plan.warnings)


# ---- memory -------------------------------------------------------------------------------------------------------

NEEDS = (
    ASR,
    TaskNeed(task="tts", model="v", weights_mb={"fp32": 63.0}, hop_ms=11.6, overlap_frames=22),
    TaskNeed(task="vad", model="s", weights_mb={"fp32": 1.3}, fixed=Candidate("ort-cpu", "fp32", None, 1)),
    TaskNeed(task="wake", model="w", weights_mb={"int8": 0.1}, fixed=Candidate("tflite", "int8", None, 1)),
)


def test_all_fits_an_orin_nano_beside_its_desktop() -> None:
    plan = make_plan(ORIN, NEEDS, {})
    assert plan.tasks["asr"].backend == plan.tasks["tts"].backend == "tensorrt"
    assert plan.memory.fits
    assert plan.memory.budget_mb is not None
    # What a desktop in use takes there (tegrastats: 2850 MB of 7486) and the plan together.
    assert plan.memory.planned_mb + 2850 < 7486


def test_smaller_choices_where_memory_is_short() -> None:
    plan = make_plan(X86, NEEDS, {}, Overrides(memory_mb=500))
    assert plan.tasks["asr"].precision == "int8"
    assert "fits" in plan.tasks["asr"].reason
    assert plan.memory.fits
    small = make_plan(ORIN, NEEDS, {}, Overrides(memory_mb=700))
    assert {choice.backend for choice in small.tasks.values()} == {"ort-cpu", "tflite"}
    assert small.memory.fits


def test_what_fits_nowhere_is_said() -> None:
    plan = make_plan(X86, NEEDS, {}, Overrides(memory_mb=100))
    assert plan.memory.fits is False
    assert any("100 MB may be taken" in text for text in plan.warnings)


def test_the_budget_leaves_room_and_is_unknown_with_the_memory() -> None:
    assert budget_mb(Machine()) is None
    assert make_plan(Machine(), NEEDS, {}).memory.fits is None
    assert budget_mb(dataclasses.replace(ORIN, ram_total_kib=2_000_000)) == 1171
    assert budget_mb(dataclasses.replace(ORIN, ram_total_kib=64_000_000)) == 62500 - 3072


def test_memory_that_others_have_taken_is_a_warning() -> None:
    plan = make_plan(dataclasses.replace(X86, ram_available_kib=200_000), NEEDS, {})
    assert any("195 MB are free now" in text for text in plan.warnings)


# ---- chunks -------------------------------------------------------------------------------------------------------


def test_unmeasured_chunks_are_the_usual_ones() -> None:
    assert chunk_frames(None, 11.6, 22) == USUAL


def test_a_slow_voice_speaks_in_few_long_pieces() -> None:
    assert chunk_frames(11.0, 11.6, 22) == (120,)


@given(st.floats(0.01, 20), st.floats(5, 20), st.integers(0, 80))
def test_no_chunk_comes_too_late(frame_ms: float, hop_ms: float, overlap: int) -> None:
    sizes = chunk_frames(frame_ms, hop_ms, overlap)
    assert all(0 < size <= max(LARGEST, 120) for size in sizes)
    assert list(sizes) == sorted(set(sizes))
    if sizes != (120,):
        # While one sounds, the next (the last again and again) is made in half the time.
        for before, after in zip(sizes, (*sizes[1:], sizes[-1]), strict=True):
            assert (after + overlap) * frame_ms <= 0.5 * before * hop_ms + frame_ms * 1.01


def test_the_voice_s_own_pace_decides() -> None:
    candidate = Candidate("ort-cpu", "fp32", None, 1)
    timings = {"tts": (Timing(candidate, 80.0, 1.3),)}
    chunks = make_plan(X86, NEEDS, timings).tasks["tts"].chunks
    assert chunks is not None
    assert chunks.unit == "frames"
    assert chunks.sizes[0] == 12
    assert chunks.sizes[-1] == 60


# ---- the whole ----------------------------------------------------------------------------------------------------

machines = st.builds(
    Machine,
    arch=st.sampled_from([None, "x86_64", "aarch64", "armv7l"]),
    chip=st.sampled_from([None, "x86_64", "tegra234", "bcm2712"]),
    cpu=st.sampled_from([None, AVX2, NEON, {**AVX2, "avx_vnni": True}, {**NEON, "i8mm": True}]),
    cpu_cores=st.one_of(st.none(), st.integers(1, 64)),
    sm=st.sampled_from([None, "5.3", "7.2", "8.7", "11.0"]),
    gpu=st.sampled_from([None, "Ampere"]),
    tensorrt=st.sampled_from([None, "8.5.2", "10.3.0.30"]),
    system_python=st.sampled_from([None, "3.8.10", "3.12.3"]),
    precision_support=st.sampled_from([None, GPU]),
    ram_total_kib=st.one_of(st.none(), st.integers(0, 10**9)),
    runtimes=st.sampled_from([None, WORKS, {"CPUExecutionProvider": "no"}]),
)


@given(machines, st.sampled_from([True, False, None]), st.lists(st.floats(0.1, 5000), min_size=4, max_size=4))
def test_a_plan_is_the_same_every_time_and_can_be_written(machine: Machine, gate: bool | None, ms: list[float]) -> None:
    needs = [dataclasses.replace(need, int8_gate=gate) for need in NEEDS]
    kinds: list[tuple[Precision, Scheme | None, int]] = [
        ("fp32", None, 1), ("fp32", None, 2), ("int8", "s8-dynamic", 1), ("int8", "s8-dynamic", 2)
    ]  # fmt: skip
    timings: Mapping[str, tuple[Timing, ...]] = {
        "asr": tuple(Timing(Candidate("ort-cpu", *kind), value) for kind, value in zip(kinds, ms, strict=True))
    }
    plan, again = (make_plan(machine, needs, timings) for _ in range(2))
    assert plan == again
    assert json.loads(json.dumps(plan.to_dict())) == json.loads(json.dumps(again.to_dict()))
    for choice in plan.tasks.values():
        assert choice.precision != "int8" or gate or choice.task == "wake"
        assert (choice.scheme is None) == (choice.precision != "int8" or choice.task == "wake")
        assert choice.threads >= 1
