"""The frame: 10 ms of 16 kHz mono sound with the time it was captured, and the part that cuts blocks into frames."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["FRAME_S", "FRAME_SAMPLES", "RATE_HZ", "Frame", "Framer", "Samples", "level_dbfs"]

RATE_HZ: Final = 16_000
"""Rate that everything which hears works at."""
FRAME_SAMPLES: Final = 160
FRAME_S: Final = FRAME_SAMPLES / RATE_HZ

Samples = npt.NDArray[np.float32]
"""Mono sound, shape [n], full scale at ±1."""

_SILENCE_POWER: Final = 1e-12  # keeps the logarithm finite: -120 dBFS


@dataclass(frozen=True, slots=True)
class Frame:
    """160 samples of sound."""

    samples: Samples
    """Shape [160], float32, full scale ±1."""
    time_s: float
    """Monotonic capture time of the first sample, in seconds."""
    seq: int
    """Number of the frame in its stream; a hole in the numbers is lost sound."""

    @property
    def end_s(self) -> float:
        """Capture time just after the last sample."""
        return self.time_s + FRAME_S


class Framer:
    """Cuts 16 kHz blocks of any length into frames. A streaming part: no clock, no I/O.

    Times count samples from `start_s`, so a frame's time does not depend on how the sound was chunked.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._start_s = start_s
        self._seq = 0
        self._rest: Samples = np.empty(0, dtype=np.float32)

    def push(self, block: Samples) -> list[Frame]:
        """Take a block, shape [n] float32; give the frames that are now whole (views where possible)."""
        data = np.concatenate((self._rest, block)) if self._rest.size else block
        whole = data.size // FRAME_SAMPLES
        frames = [self._frame(data[i * FRAME_SAMPLES : (i + 1) * FRAME_SAMPLES]) for i in range(whole)]
        # A copy, so that a block of minutes is not kept alive by its last few samples.
        self._rest = data[whole * FRAME_SAMPLES :].copy()
        return frames

    def flush(self) -> list[Frame]:
        """The tail, filled up with silence to a whole frame; nothing where there is no tail."""
        if not self._rest.size:
            return []
        last = np.zeros(FRAME_SAMPLES, dtype=np.float32)
        last[: self._rest.size] = self._rest
        self._rest = np.empty(0, dtype=np.float32)
        return [self._frame(last)]

    def reset(self, start_s: float = 0.0) -> None:
        """Forget the tail and start counting anew."""
        self.__init__(start_s)  # type: ignore[misc]

    def _frame(self, samples: Samples) -> Frame:
        frame = Frame(samples, self._start_s + self._seq * FRAME_S, self._seq)
        self._seq += 1
        return frame


def level_dbfs(samples: Samples) -> float:
    """Root-mean-square level in dB below full scale; -120 for digital silence."""
    if not samples.size:
        return -120.0
    power = float(np.dot(samples, samples)) / samples.size
    # One number: NumPy's logarithm costs ten times as much for it.
    return 10.0 * math.log10(max(power, _SILENCE_POWER))
