"""A browser's microphone as frames: bytes in, resampled 10 ms frames with capture times out.

A browser does not say when it captured a sample on our clock. Blocks can only be late, never early, so the least
late block tells when its sound was captured, and all others are placed by counting samples from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from appliance.audio.frame import Frame, Framer, Samples
from appliance.audio.resample import MonoResampler
from appliance.web.errors import ProtocolError
from appliance.web.messages import Encoding

__all__ = ["BrowserCapture"]

DRIFT_WINDOW_S: Final = 1.0
"""Blocks that are all late for this long are not delayed: sound is missing, or the browser's clock is slow."""
DRIFT_S: Final = 0.05
"""Lateness, below that window's least, that is left alone."""

_INT16_SCALE: Final = 1.0 / 32768.0
_WIDTHS: Final = {"s16le": 2, "f32le": 4}


class BrowserCapture:
    """A streaming part, but for the clock that it is given."""

    def __init__(self, rate_hz: int, encoding: Encoding, now: Callable[[], float]) -> None:
        self._rate_hz = rate_hz
        self._encoding = encoding
        self._now = now
        self._resampler = MonoResampler(rate_hz)
        self._framer = Framer()
        self._taken = 0
        self._zero_s: float | None = None
        self._window_until_s = 0.0
        self._window_least_s = np.inf

    def seconds(self, data: bytes) -> float:
        """How long a block is."""
        return len(data) / _WIDTHS[self._encoding] / self._rate_hz

    def push(self, data: bytes) -> list[Frame]:
        """Take a block as it came. Raises `ProtocolError` where it holds no whole samples, or none that are numbers."""
        block = self._samples(data)
        self._taken += block.size
        zero_s = self._place()
        frames = self._framer.push(self._resampler.push(block))
        return [Frame(frame.samples, zero_s + frame.time_s, frame.seq) for frame in frames]

    def _samples(self, data: bytes) -> Samples:
        width = _WIDTHS[self._encoding]
        if not data or len(data) % width:
            raise ProtocolError(f"a block of {len(data)} bytes does not hold whole {self._encoding} samples")
        if self._encoding == "s16le":
            return np.frombuffer(data, dtype="<i2").astype(np.float32) * np.float32(_INT16_SCALE)
        block = np.frombuffer(data, dtype="<f4").astype(np.float32)
        if not np.isfinite(block).all():
            raise ProtocolError("a block holds samples that are not numbers (NaN or infinite)")
        return np.clip(block, -1.0, 1.0)

    def _place(self) -> float:
        """Time of the stream's first sample, as far as is known by now."""
        now_s, taken_s = self._now(), self._taken / self._rate_hz
        if self._zero_s is None or now_s - taken_s < self._zero_s:
            self._zero_s = now_s - taken_s
            self._open_window(now_s)
        self._window_least_s = min(self._window_least_s, now_s - taken_s - self._zero_s)
        if now_s >= self._window_until_s:
            if self._window_least_s > DRIFT_S:
                self._zero_s += self._window_least_s
            self._open_window(now_s)
        return self._zero_s

    def _open_window(self, now_s: float) -> None:
        self._window_until_s, self._window_least_s = now_s + DRIFT_WINDOW_S, np.inf
