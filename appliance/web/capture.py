"""A browser's microphone as frames: bytes in, resampled 10 ms frames with capture times out.

A browser does not say when it captured a sample on our clock. Blocks can only be late, never early, so the least
late blocks tell when their sound was captured, and all others are placed by counting samples from there; that
follows a browser's clock as it drifts. What a page could not send it says, and it is made up for, or left out as a
hole in the numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from appliance.audio.adaptive import NETWORK, DepthController
from appliance.audio.clock import Envelope
from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Frame, Framer, Samples
from appliance.audio.jitter import JitterBuffer
from appliance.audio.lowdelay import LowDelayResampler
from appliance.audio.resample import MonoResampler
from appliance.web.errors import ProtocolError
from appliance.web.messages import Encoding

__all__ = ["BrowserCapture", "BrowserCaptureStats"]

MOST_PHASES: Final = 640
"""Of the low-delay filter's table: enough for all usual rates (11.025 kHz); others go through soxr."""
MOST_AT_ONCE: Final = RATE_HZ // 2
"""Samples handed in before they are taken: less than the buffer lets wait, however long a block a page sends."""
_INT16_SCALE: Final = 1.0 / 32768.0
_WIDTHS: Final = {"s16le": 2, "f32le": 4}


@dataclass(frozen=True, slots=True)
class BrowserCaptureStats:
    """What came of a page's microphone so far."""

    missing_s: float
    """Sound that the page could not send."""
    concealed_s: float
    """Of that, made up for."""
    lost_s: float
    """Found missing by the clock, not told: the page was asleep, or its clock is far off."""
    jitter_s: float
    """Largest lateness of a block of late."""


class BrowserCapture:
    """A streaming part, but for the clock that it is given."""

    def __init__(self, rate_hz: int, encoding: Encoding, now: Callable[[], float]) -> None:
        self._rate_hz = rate_hz
        self._encoding = encoding
        self._now = now
        low = RATE_HZ // gcd(rate_hz, RATE_HZ) <= MOST_PHASES
        self._resampler = LowDelayResampler(rate_hz) if low else MonoResampler(rate_hz)
        # A WebSocket keeps the order: nothing has to be waited for, and nothing is.
        self._buffer = JitterBuffer(DepthController(NETWORK), ordered=True)
        self._framer = Framer()
        self._skipped = 0
        self._clock = Envelope()
        self._taken = self._put = 0
        self._lost_s = 0.0

    def seconds(self, data: bytes) -> float:
        """How long a block is."""
        return len(data) / _WIDTHS[self._encoding] / self._rate_hz

    def stats(self) -> BrowserCaptureStats:
        """Counts since it was made."""
        stats = self._buffer.stats()
        missing_s, concealed_s = stats.missing / RATE_HZ, stats.concealed / RATE_HZ
        return BrowserCaptureStats(missing_s, concealed_s, self._lost_s, self._clock.jitter_s)

    def push(self, data: bytes) -> list[Frame]:
        """Take a block as it came. Raises `ProtocolError` where it holds no whole samples, or none that are numbers."""
        block = self._samples(data)
        now_s = self._now()
        self._taken += block.size
        self._lost_s += self._clock.push(now_s, now_s - self._taken / self._rate_hz)
        sound = self._resampler.push(block)
        frames: list[Frame] = []
        for at in range(0, sound.size, MOST_AT_ONCE):
            self._hand_in(sound[at : at + MOST_AT_ONCE], now_s)
            for run in self._buffer.drain(now_s):
                self._skipped += run.skipped // FRAME_SAMPLES
                zero_s = self._clock.base_s + self._skipped * FRAME_S
                whole = self._framer.push(run.samples)
                frames += [Frame(frame.samples, zero_s + frame.time_s, frame.seq + self._skipped) for frame in whole]
        return frames

    def missed(self, samples: int) -> None:
        """The page had so many samples before the next block, and could not send them."""
        self._hand_in(self._resampler.flush(), self._now())
        self._resampler.reset()
        self._taken += samples
        self._put = max(self._put, round(self._taken * RATE_HZ / self._rate_hz))

    def _hand_in(self, sound: Samples, now_s: float) -> None:
        self._buffer.put(self._put, sound, now_s)
        self._put += sound.size

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
