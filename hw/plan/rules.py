"""The table of rules: which backend and precision a machine deserves. The first row whose conditions hold is taken.

What they rest on: TensorRT takes only symmetric INT8 Q/DQ; ONNX Runtime's CUDA provider runs Q/DQ slower than floats;
VNNI multiplies u8 by s8, while s8 by s8 is slower there than FP32; without VNNI products may saturate, and INT8 pays on
some machines only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hw.plan.types import Backend, Precision, Scheme
from hw.probe.known import version
from hw.probe.machine import Machine

__all__ = ["CONDITIONS", "RULES", "Rule", "reason_against"]

LEAST_SM: Final = (7, 2)
LEAST_TENSORRT: Final = (10, 3)
"""Strongly typed networks and `execute_async_v3` are the same from here to 11."""
LEAST_PYTHON: Final = (3, 10)
"""TensorRT's bindings belong to the system's Python; older ones cannot be reached from ours."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row."""

    name: str
    when: tuple[str, ...]
    """Names of conditions that must all hold."""
    backend: Backend
    passed: tuple[Precision, ...]
    """Precisions allowed where INT8 passed the model's accuracy gate, first what is taken unmeasured."""
    failed: tuple[Precision, ...]
    """Precisions allowed where it did not."""
    schemes: tuple[Scheme, ...]
    """Kinds of INT8, best first."""
    reason: str


RULES: Final = (
    Rule(
        "tensorrt",
        ("nvidia", "sm", "tensorrt", "python", "tensorrt-works"),
        "tensorrt",
        passed=("int8",),
        failed=("fp16",),
        schemes=("qdq",),
        reason="a GPU of compute capability {sm} with TensorRT {tensorrt}",
    ),
    Rule(
        "card-cuda",
        ("card", "cuda-works"),
        "ort-cuda",
        passed=("fp16", "fp32"),
        failed=("fp16", "fp32"),
        schemes=(),
        reason="an NVIDIA card ({gpu}): ONNX Runtime with CUDA, in floating point, for its Q/DQ INT8 is slower",
    ),
    Rule(
        "jetson-cuda",
        ("jetson", "cuda-proved"),
        "ort-cuda",
        passed=("fp16", "fp32"),
        failed=("fp16", "fp32"),
        schemes=(),
        reason="no TensorRT that can be used, but ONNX Runtime's CUDA provider works here",
    ),
    Rule(
        "x86-vnni",
        ("x86", "vnni", "onnxruntime-works"),
        "ort-cpu",
        passed=("int8",),
        failed=("fp32",),
        schemes=("u8s8", "s8-dynamic"),
        reason="an x86 processor with VNNI, which multiplies bytes four times as fast as floats",
    ),
    Rule(
        "x86",
        ("x86", "onnxruntime-works"),
        "ort-cpu",
        passed=("fp32", "int8"),
        failed=("fp32",),
        schemes=("s8-dynamic", "u8s8", "reduce-range"),
        reason="an x86 processor without VNNI: INT8 of a range that does not saturate, or FP32, as measured",
    ),
    Rule(
        "arm-dotprod",
        ("arm", "byte-products", "onnxruntime-works"),
        "ort-cpu",
        passed=("fp32", "int8"),
        failed=("fp32",),
        schemes=("s8-dynamic", "u8s8"),
        reason="an ARM processor that has byte products (dotprod or i8mm): INT8 or FP32, as measured",
    ),
    Rule(
        "arm",
        ("arm", "onnxruntime-works"),
        "ort-cpu",
        passed=("fp32", "int8"),
        failed=("fp32",),
        schemes=("s8-dynamic", "u8s8"),
        reason="an ARM processor without byte products: INT8 only where measured to be faster",
    ),
    Rule(
        "unknown-cpu",
        ("onnxruntime-works",),
        "ort-cpu",
        passed=("fp32",),
        failed=("fp32",),
        schemes=(),
        reason="nothing is known of the processor: the choice that runs everywhere",
    ),
    Rule(
        "last",
        (),
        "numpy",
        passed=("fp32",),
        failed=("fp32",),
        schemes=(),
        reason="ONNX Runtime does not work here: the last rung",
    ),
)

Condition = Callable[[Machine], str | None]
"""None where it holds, else why it does not."""


def reason_against(rule: Rule, machine: Machine) -> str | None:
    """The first condition of a row that does not hold, in words; None where all hold."""
    for name in rule.when:
        if (why := CONDITIONS[name](machine)) is not None:
            return why
    return None


def _nvidia(machine: Machine) -> str | None:
    return None if machine.gpu is not None or machine.is_jetson else "no NVIDIA GPU is known"


def _card(machine: Machine) -> str | None:
    if machine.is_jetson:
        return "a Jetson's GPU, for which ONNX Runtime's usual build has no CUDA"
    if machine.chip is None:
        return "the chip is unknown: the GPU may be a card or part of it"
    return _nvidia(machine) or (None if machine.sm is not None else "the GPU's compute capability is unknown")


def _jetson(machine: Machine) -> str | None:
    return None if machine.is_jetson else "no Jetson"


def _sm(machine: Machine) -> str | None:
    return _least("compute capability", machine.sm, LEAST_SM)


def _tensorrt(machine: Machine) -> str | None:
    return _least("TensorRT", machine.tensorrt, LEAST_TENSORRT)


def _python(machine: Machine) -> str | None:
    return _least("the system's Python", machine.system_python, LEAST_PYTHON)


def _least(what: str, found: str | None, least: tuple[int, ...]) -> str | None:
    wanted = ".".join(map(str, least))
    if found is None:
        return f"{what} is not there or unknown, {wanted} or newer is wanted"
    return None if version(found) >= least else f"{what} is {found}, {wanted} or newer is wanted"


def _works(runtime: str, absent: str) -> Condition:
    """On the living machine it must have been tried; of another one it is taken to work."""

    def condition(machine: Machine) -> str | None:
        if machine.runtimes is None:
            return None
        return machine.runtimes.get(runtime, absent)

    return condition


def _cuda_proved(machine: Machine) -> str | None:
    name = "CUDAExecutionProvider"
    if machine.runtimes is None:
        return "ONNX Runtime's CUDA provider can only be tried on the machine itself"
    return machine.runtimes.get(name, "this build of ONNX Runtime has no CUDA")


def _x86(machine: Machine) -> str | None:
    return None if machine.arch == "x86_64" and machine.cpu is not None else "no 64-bit x86 processor is known"


def _arm(machine: Machine) -> str | None:
    return None if machine.arch == "aarch64" and machine.cpu is not None else "no 64-bit ARM processor is known"


def _any_set(*names: str) -> Condition:
    def condition(machine: Machine) -> str | None:
        return None if any((machine.cpu or {}).get(name) is True for name in names) else f"it has no {', '.join(names)}"

    return condition


CONDITIONS: Final[Mapping[str, Condition]] = {
    "nvidia": _nvidia,
    "card": _card,
    "jetson": _jetson,
    "sm": _sm,
    "tensorrt": _tensorrt,
    "python": _python,
    "tensorrt-works": _works("tensorrt", "TensorRT was not tried"),
    "cuda-works": _works("CUDAExecutionProvider", "this build of ONNX Runtime has no CUDA"),
    "cuda-proved": _cuda_proved,
    "onnxruntime-works": _works("CPUExecutionProvider", "ONNX Runtime was not tried"),
    "x86": _x86,
    "vnni": _any_set("avx512_vnni", "avx_vnni", "amx_int8"),
    "arm": _arm,
    "byte-products": _any_set("dotprod", "i8mm"),
}
