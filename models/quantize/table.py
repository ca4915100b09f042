"""The variants that a graph may come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["VARIANTS", "WORTH_IT", "Variant"]

WORTH_IT: Final = 1.2
"""A variant for the CPU must be this many times as fast as FP32 to be chosen: two runs differ by less, and fewer bits
never hear better."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to store and multiply."""

    name: str
    precision: Literal["fp16", "int8"]
    scheme: Literal["half", "qdq", "u8s8", "s8-dynamic"]
    """As the plan names it."""
    target: Literal["cpu", "tensorrt"]
    equalised: bool
    """Outliers are moved into the weights first (`equalise`): a static scale must cover all that may come."""


VARIANTS: tuple[Variant, ...] = (
    Variant("fp16", "fp16", "half", "tensorrt", equalised=False),
    Variant("int8-trt", "int8", "qdq", "tensorrt", equalised=True),
    Variant("int8-cpu-static", "int8", "u8s8", "cpu", equalised=True),
    Variant("int8-cpu-dynamic", "int8", "s8-dynamic", "cpu", equalised=False),
)
