"""Any rate to 16 kHz mono (or back out), as a streaming part around soxr."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import soxr

from appliance.audio.frame import RATE_HZ, Samples

__all__ = ["MonoResampler", "mix_to_mono"]


def mix_to_mono(block: npt.NDArray[np.float32]) -> Samples:
    """Average the channels of a [n, channels] block; [n] and [n, 1] come back as a view."""
    if block.ndim == 1:
        return block
    if block.shape[1] == 1:
        return block[:, 0]
    mixed: Samples = block.mean(axis=1, dtype=np.float32)
    return mixed


class MonoResampler:
    """Mono resampling whose output does not depend on how the input was chunked.

    The filter's delay is compensated by soxr; `flush` gives its tail.
    """

    def __init__(self, rate_in_hz: int, rate_out_hz: int = RATE_HZ) -> None:
        self._rates = (rate_in_hz, rate_out_hz)
        self._stream = None if rate_in_hz == rate_out_hz else self._open()

    def push(self, block: Samples) -> Samples:
        """Take [n] float32 at the input rate, give [m] float32 at the output rate (m may be 0)."""
        if self._stream is None:
            return block
        out: Samples = self._stream.resample_chunk(np.ascontiguousarray(block))
        return out

    def flush(self) -> Samples:
        """The tail still inside the filter. Call `reset` before pushing again."""
        if self._stream is None:
            return np.empty(0, dtype=np.float32)
        out: Samples = self._stream.resample_chunk(np.empty(0, dtype=np.float32), last=True)
        return out

    def reset(self) -> None:
        """Forget everything pushed."""
        if self._stream is not None:
            self._stream = self._open()

    def _open(self) -> soxr.ResampleStream:
        rate_in_hz, rate_out_hz = self._rates
        return soxr.ResampleStream(rate_in_hz, rate_out_hz, num_channels=1, dtype="float32", quality="HQ")
