"""A recording's own noise floor, and noise like it: a file's end is not an endpoint, the room goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples, level_dbfs

__all__ = ["FloorMeter", "noise_blocks"]

_LOWEST_DBFS: Final = -120
_QUIET_SHARE: Final = 0.1  # the tenth-quietest frame stands for the room
MAX_TAIL_DBFS: Final = -50.0
MIN_TAIL_DBFS: Final = -80.0


class FloorMeter:
    """Collects the levels of 10 ms frames in 1 dB bins: bounded, however long the recording is."""

    def __init__(self) -> None:
        self._bins = np.zeros(-_LOWEST_DBFS + 1, dtype=np.int64)

    def push(self, frame: Samples) -> None:
        """Count one frame, shape [160]."""
        level = round(level_dbfs(frame))
        self._bins[min(max(level - _LOWEST_DBFS, 0), len(self._bins) - 1)] += 1

    def floor_dbfs(self) -> float:
        """Level that a tenth of the frames stay under; the lowest where nothing was pushed."""
        total = int(self._bins.sum())
        if not total:
            return float(_LOWEST_DBFS)
        return float(np.searchsorted(np.cumsum(self._bins), max(1, total * _QUIET_SHARE)) + _LOWEST_DBFS)


def noise_blocks(level_dbfs: float, seconds: float, seed: int = 0) -> Iterator[Samples]:
    """White noise in frames at a level kept within -80..-50 dBFS; the same for the same seed."""
    rms = 10.0 ** (min(max(level_dbfs, MIN_TAIL_DBFS), MAX_TAIL_DBFS) / 20.0)
    generator = np.random.default_rng(seed)
    for _ in range(round(seconds * RATE_HZ / FRAME_SAMPLES)):
        yield generator.standard_normal(FRAME_SAMPLES, dtype=np.float32) * np.float32(rms)
