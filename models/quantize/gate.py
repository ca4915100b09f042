"""The accuracy gate: what an evaluation says of a set of engines, and how much worse than FP32 it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.engines.base import Engine

__all__ = ["DEFAULT_TOLERANCE", "Evaluate", "Score", "passes"]

DEFAULT_TOLERANCE = 0.01
"""One point: of word error rate, or of a share of agreement."""


@dataclass(frozen=True, slots=True)
class Score:
    """A task's figure on material that calibration never saw."""

    measure: str
    """What it is, as `word error rate`."""
    value: float
    """A share, 0 … 1 (a word error rate may be more)."""
    lower_is_better: bool
    items: int
    """Clips, sentences or windows it rests on."""
    details: Mapping[str, float] = field(default_factory=dict)
    """The figure of each group of the material."""


Evaluate = Callable[[Mapping[str, Engine]], Score]
"""Injected by the appliance: graph part -> engine (every part of the pack) to a score."""


def passes(score: Score, fp32: Score, tolerance: float = DEFAULT_TOLERANCE) -> bool:
    """Whether a variant is at most `tolerance` worse than FP32 was in the same run."""
    worse_by = score.value - fp32.value if score.lower_is_better else fp32.value - score.value
    return worse_by <= tolerance + 1e-9
