"""The echo's reference: what was played, at 16 kHz, laid beside what the microphone heard at the same time.

Both clocks are told apart by the times they carry. Within a stretch of sound the reference runs on sample by sample;
it is moved by one sample a frame where the clocks drift, and at once where sound was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples
from appliance.audio.frontend.played import PlayedBlock
from appliance.audio.lowdelay import LowDelayResampler

__all__ = ["LEAD_S", "EchoReference"]

LEAD_S: Final = 0.030
"""The reference is laid this much before the echo: a canceller is helpless against an echo that comes first, and the
times that drivers tell are wrong by some ten milliseconds."""
BRIDGED_S: Final = 1.0
"""A shorter silence between two sounds is filled with zeros; after a longer one a new stretch begins."""
KEPT_S: Final = 4.0
_JUMP: Final = round(0.020 * RATE_HZ)
"""More than this is no drift: sound was lost, or a clock was corrected."""
_SLACK: Final = round(0.001 * RATE_HZ)
"""What jitter may do to the times; smaller moves would follow it."""


class EchoReference:
    """A streaming part with two inputs: `push` what was played, `take` what belongs to a frame of the microphone."""

    def __init__(self) -> None:
        self.jumps = 0
        """Times that the reference had to be laid anew within a stretch of sound."""
        self.reset()

    def reset(self) -> None:
        """Forget what was played."""
        self._rate_hz = 0
        self._resampler = LowDelayResampler(RATE_HZ)
        self._sound: Samples = np.empty(0, dtype=np.float32)
        self._sound_at = 0  # place of `_sound[0]` in the stretch
        self._next_index = 0
        self._start_index = 0
        self._start_s = 0.0  # when the stretch's first sample is heard, as its newest block tells
        self._at: int | None = None  # place in the stretch of the next sample to give

    def push(self, blocks: Iterable[PlayedBlock]) -> None:
        """What was played since the last time, oldest first."""
        for block in blocks:
            self._push(block)

    def take(self, time_s: float) -> Samples | None:
        """[160] float32: the sound that is heard `LEAD_S` after the frame captured from `time_s` on; None: silence."""
        end = self._sound_at + self._sound.size
        if not self._sound.size:
            return None
        wanted = round((time_s + LEAD_S - self._start_s) * RATE_HZ)
        if wanted >= end or wanted + FRAME_SAMPLES <= self._sound_at:
            self._at = None
            if wanted >= end:
                self._drop(end - round(BRIDGED_S * RATE_HZ))
            return None
        off = 0 if self._at is None else wanted - self._at
        if self._at is None or abs(off) > _JUMP:
            self.jumps += self._at is not None
            self._at = wanted
        elif abs(off) > _SLACK:
            self._at += 1 if off > 0 else -1
        first = self._at - self._sound_at
        out = np.zeros(FRAME_SAMPLES, dtype=np.float32)
        start, stop = max(first, 0), min(first + FRAME_SAMPLES, self._sound.size)
        if stop > start:
            out[start - first : stop - first] = self._sound[start:stop]
        self._at += FRAME_SAMPLES
        self._drop(self._at - 2 * _JUMP)
        return out

    def _push(self, block: PlayedBlock) -> None:
        missing = block.index - self._next_index
        if block.rate_hz != self._rate_hz or not 0 <= missing <= BRIDGED_S * block.rate_hz or not self._next_index:
            self._begin(block)
        elif missing:
            self._add(self._resampler.push(np.zeros(missing, dtype=np.float32)))
        # The newest block knows best: the jitter taken out of its time is that of all before it.
        self._start_s = block.heard_s - (block.index - self._start_index) / block.rate_hz
        self._add(self._resampler.push(block.samples))
        self._next_index = block.index + block.samples.size

    def _begin(self, block: PlayedBlock) -> None:
        self._rate_hz = block.rate_hz
        self._resampler = LowDelayResampler(block.rate_hz)
        self._sound = np.empty(0, dtype=np.float32)
        self._sound_at, self._at = 0, None
        self._start_index = block.index

    def _add(self, samples: Samples) -> None:
        self._sound = np.concatenate((self._sound, samples)) if self._sound.size else samples
        self._drop(self._sound_at + self._sound.size - round(KEPT_S * RATE_HZ))

    def _drop(self, before: int) -> None:
        count = min(before - self._sound_at, self._sound.size)
        if count > 0:
            self._sound = self._sound[count:]
            self._sound_at += count
