"""Memory that choices take, and what a machine can spare. Estimates: an engine's true size shows when it is built."""

from __future__ import annotations

from typing import Final

from hw.plan.types import Backend, Precision, TaskNeed
from hw.probe.machine import Machine

__all__ = ["PROGRAM_MB", "budget_mb", "choice_mb", "once_mb"]

PROGRAM_MB: Final = 250
"""Python, libraries, the home, the page and sound, without any model."""
RESERVE_MB: Final = 3072
"""Left to the system and its desktop: an Orin Nano's takes 1.3 GB after its start and 2.8 GB in use (tegrastats)."""
RESERVE_SHARE: Final = 0.4
"""The same on small machines, whose desktops are smaller, or none."""

_GROWTH: Final = 1.3
"""Resident memory a byte of weights, opened by onnxruntime and used (measured: 182 MB for 150 MB of files)."""
_ENGINE_MB: Final[dict[Backend, int]] = {"tensorrt": 60, "ort-cuda": 60, "ort-cpu": 10, "numpy": 10, "tflite": 3}
"""Activations and tables of one model."""
_ONCE_MB: Final[dict[Backend, int]] = {"tensorrt": 700, "ort-cuda": 700}
"""What the first engine of a kind brings: CUDA's context and its libraries, on a Jetson in the same memory."""
_SIZE: Final[dict[Precision, float]] = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0}
"""Bytes a weight."""


def budget_mb(machine: Machine) -> int | None:
    """What Wren may take of a machine's memory; None where that is unknown."""
    if machine.ram_total_kib is None:
        return None
    total = machine.ram_total_kib // 1024
    return int(total - min(RESERVE_MB, total * RESERVE_SHARE))


def choice_mb(need: TaskNeed, backend: Backend, precision: Precision) -> int:
    """Memory of one task's engines."""
    weights = need.weights_mb.get(precision)
    if weights is None:
        # From the nearest precision there is: what INT8 leaves in floating point makes this a little low.
        known = next(((p, mb) for p, mb in need.weights_mb.items()), None)
        weights = 0.0 if known is None else known[1] * _SIZE[precision] / _SIZE[known[0]]
    return round(weights * _GROWTH) + _ENGINE_MB[backend]


def once_mb(backends: set[Backend]) -> int:
    """Memory that is taken once for all engines of a kind."""
    return max((_ONCE_MB.get(backend, 0) for backend in backends), default=0)
