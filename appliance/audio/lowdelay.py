"""Resampling for live sound: the delay of the filter and not a sample more.

soxr in streaming mode works in blocks: at 48 kHz to 16 kHz a sample comes out 6 to 37 ms after it went in (measured),
which would be added to every reply. A polyphase filter gives each sample out as soon as its last tap has come in.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd
from typing import Final

import numpy as np
import numpy.typing as npt

from appliance.audio.frame import RATE_HZ, Samples

__all__ = ["LowDelayResampler"]

STOP_DB: Final = 80.0
"""Attenuation of images and aliases: below what the room adds to any microphone."""
EDGE_SHARE: Final = 0.15
"""Width of the filter's edge as a share of half the lower rate, centred on it: 7.4 to 8.6 kHz towards 16 kHz."""


class LowDelayResampler:
    """Mono resampling whose output does not depend on how the input was chunked. A streaming part.

    Output sample k stands for the input's time k / rate_out: the filter's delay is compensated, so a sample comes out
    `delay_s` after the input that it is centred on.
    """

    def __init__(self, rate_in_hz: int, rate_out_hz: int = RATE_HZ) -> None:
        common = gcd(rate_in_hz, rate_out_hz)
        self._up, self._down = rate_out_hz // common, rate_in_hz // common
        self._same = rate_in_hz == rate_out_hz
        self.delay_s = 0.0
        if not self._same:
            self._table, self._centre = _filter(self._up, self._down)
            self.delay_s = self._centre / self._up / rate_in_hz
        self.reset()

    def push(self, block: Samples) -> Samples:
        """Take [n] float32 at the input rate, give [m] float32 at the output rate (m may be 0)."""
        if self._same:
            return block
        self._seen += block.size
        return self._run(block, None)

    def flush(self) -> Samples:
        """The tail still inside the filter. Call `reset` before pushing again."""
        if self._same:
            return np.empty(0, dtype=np.float32)
        whole = -(-self._seen * self._up // self._down)
        return self._run(np.zeros(self._centre // self._up + 1, dtype=np.float32), whole)

    def reset(self) -> None:
        """Forget everything pushed."""
        self._seen = self._given = 0
        if not self._same:
            taps = self._table.shape[1]
            self._tail: Samples = np.zeros(taps - 1, dtype=np.float32)
            self._tail_at = 1 - taps  # input index of the tail's first sample

    def _run(self, block: Samples, whole: int | None) -> Samples:
        """Outputs whose taps are all there, or those up to `whole` in number since the reset."""
        taps = self._table.shape[1]
        data = np.concatenate((self._tail, block))
        newest = self._tail_at + data.size - 1
        until = (newest * self._up + self._up - 1 - self._centre) // self._down + 1
        if whole is not None:
            until = min(until, whole)
        count = max(0, until - self._given)
        out: Samples = np.empty(0, dtype=np.float32)
        if count:
            first = self._given * self._down + self._centre
            if self._up == 1:
                windows = _windows(data, first - (taps - 1) - self._tail_at, self._down, count, taps)
                out = np.einsum("ij,j->i", windows, self._table[0])
            else:
                at = first + np.arange(count, dtype=np.int64) * self._down
                windows = _windows(data, 0, 1, data.size - taps + 1, taps)
                oldest = at // self._up - (taps - 1) - self._tail_at
                out = np.einsum("ij,ij->i", windows[oldest], self._table[at % self._up])
            self._given += count
        keep_from = (self._given * self._down + self._centre) // self._up - (taps - 1) - self._tail_at
        keep_from = min(max(keep_from, 0), data.size)
        self._tail = data[keep_from:].copy()
        self._tail_at += keep_from
        return out


def _windows(data: Samples, start: int, step: int, count: int, taps: int) -> Samples:
    """Overlapping views [count, taps]. NumPy's own `sliding_window_view` costs more than the filter does."""
    size = data.itemsize
    # The constructor itself refuses a view that would reach beyond the buffer.
    return np.ndarray((count, taps), np.float32, data.data, start * size, (step * size, size))


@lru_cache(maxsize=8)
def _filter(up: int, down: int) -> tuple[npt.NDArray[np.float32], int]:
    """Coefficients [phase, tap], oldest tap first, and the prototype's middle in steps of the upsampled rate.

    A windowed sinc with Kaiser's window, its length by Kaiser's formula (Oppenheim & Schafer, 7.6).
    """
    slower = max(up, down)  # the edge lies at half the lower rate: 1 / (2 slower) of the upsampled rate
    edge = EDGE_SHARE / (2 * slower)
    half = ceil((STOP_DB - 7.95) / (2.285 * 2 * np.pi * edge) / 2)
    steps = np.arange(-half, half + 1)
    prototype = np.sinc(steps / slower) * np.kaiser(2 * half + 1, 0.1102 * (STOP_DB - 8.7)) * (up / slower)
    taps = ceil(prototype.size / up)
    padded = np.zeros(taps * up)
    padded[: prototype.size] = prototype
    table = padded.reshape(taps, up)[::-1].T
    # Each phase passes a constant unchanged: without this the phases would differ by a whisper, at their own rate.
    table = table / table.sum(axis=1, keepdims=True)
    return np.ascontiguousarray(table, dtype=np.float32), half
