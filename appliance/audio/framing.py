"""Blocks of a device to frames: channels mixed, one resampling step, capture times from the stream's clock.

Lost sound is never spliced over: the resampler starts anew, and the numbers of the frames have a hole of its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from appliance.audio.clock import StreamClock
from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.audio.lowdelay import LowDelayResampler
from appliance.audio.resample import mix_to_mono
from appliance.audio.spsc import Block

__all__ = ["CaptureFramer", "Cause", "Gap", "GapListener"]

Cause = Literal["device", "overrun", "lost", "closed"]

_LEAST_STEP_S: Final = FRAME_S / 2
"""The clock's idea of the past may improve by more than a frame; the times of frames still go forward."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Sound that was lost."""

    time_s: float
    """Monotonic time from which on it is missing; up to 1.5 s late on a jittery stream, where it is found late."""
    lost_s: float
    cause: Cause
    """device: it or its driver dropped it; overrun: we were too slow; lost: the device was away; closed: we let it go
    (the sound was not wanted, so nothing is amiss)."""


GapListener = Callable[[Gap], None]


class CaptureFramer:
    """A streaming part over all the streams of one microphone, one after the other: numbers and times go on."""

    def __init__(self, channel: int | None = None) -> None:
        self._channel = channel
        self._channels = 1
        self._rate_hz = RATE_HZ
        self._clock = StreamClock(RATE_HZ)
        self._resampler = LowDelayResampler(RATE_HZ)
        self._rest: Samples = np.empty(0, dtype=np.float32)
        self._start = 0
        self._frames = 0
        self._seq = 0
        self._end_s: float | None = None
        self._broken: Cause | None = None
        self._closed = False

    @property
    def clock(self) -> StreamClock:
        """Of the stream that runs."""
        return self._clock

    def open(self, rate_hz: int, channels: int) -> None:
        """A stream begins."""
        self._rate_hz, self._channels = rate_hz, channels
        self._clock = StreamClock(rate_hz)
        self._resampler = LowDelayResampler(rate_hz)
        self._begin("closed" if self._closed else "lost")
        self._closed = False

    def close(self) -> None:
        """What is missing until the next stream is missing on purpose."""
        self._closed = True

    def push(self, block: Block) -> tuple[list[Frame], list[Gap]]:
        """Take a block; give the frames that are now whole, and the gap that lies before them, if one does."""
        length = block.samples.size // self._channels
        lost_s = self._clock.push(length, block.arrival_s, block.age_s, block.dropped // self._channels)
        if lost_s > 0.0:
            self._begin("device", length)
        elif block.dropped:
            self._begin("overrun", length)
        sound = self._resampler.push(self._mono(block.samples))
        data = np.concatenate((self._rest, sound)) if self._rest.size else sound
        whole = data.size // FRAME_SAMPLES
        self._rest = data[whole * FRAME_SAMPLES :].copy()
        frames: list[Frame] = []
        gaps: list[Gap] = []
        for i in range(whole):
            time_s = self._next_time_s(gaps)
            frames.append(Frame(data[i * FRAME_SAMPLES : (i + 1) * FRAME_SAMPLES], time_s, self._seq))
            self._seq += 1
            self._frames += 1
            self._end_s = time_s + FRAME_S
        return frames, gaps

    def _begin(self, cause: Cause, back: int = 0) -> None:
        """Start anew at the block just counted, `back` samples ago; what is not yet a whole frame is given up."""
        self._broken = cause
        self._start = self._clock.samples - back
        self._frames = 0
        self._resampler.reset()
        self._rest = np.empty(0, dtype=np.float32)

    def _next_time_s(self, gaps: list[Gap]) -> float:
        time_s = self._clock.time_of(self._start + self._frames * FRAME_SAMPLES * self._rate_hz / RATE_HZ)
        if self._end_s is None:
            self._broken = None
            return time_s
        if self._broken is not None:
            lost_s = time_s - self._end_s
            # However short the loss: a number is left out, for that is what says that sound is missing.
            self._seq += max(1, round(lost_s / FRAME_S))
            gaps.append(Gap(self._end_s, max(0.0, lost_s), self._broken))
            self._broken = None
        return max(time_s, self._end_s - FRAME_S + _LEAST_STEP_S)

    def _mono(self, samples: Samples) -> Samples:
        if self._channels == 1:
            return samples
        block = samples.reshape(-1, self._channels)
        if self._channel is not None:
            return np.ascontiguousarray(block[:, min(self._channel, self._channels - 1)])
        # Two channels are one sound twice; an array's microphones, averaged, would cancel each other's high tones.
        return mix_to_mono(block) if self._channels == 2 else np.ascontiguousarray(block[:, 0])
