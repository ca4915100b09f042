"""Whether an engine's outputs are numbers, at the price of one sum."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from models.engines.base import Array

__all__ = ["not_finite"]


def not_finite(outputs: Mapping[str, Array]) -> str | None:
    """Name of the first output that holds an infinity or no number; None where all are finite.

    A sum carries both through, so the elements are looked at one by one only where it is not finite (large numbers
    may overflow it).
    """
    with np.errstate(all="ignore"):
        for name, value in outputs.items():
            if value.dtype.kind == "f":
                total = np.add.reduce(value, axis=None, dtype=np.float32 if value.dtype == np.float16 else None)
                if not math.isfinite(total) and not bool(np.isfinite(value).all()):
                    return name
    return None
