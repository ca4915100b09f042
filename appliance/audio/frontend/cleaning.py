"""One microphone's sound as several listeners want it, 10 ms at a time.

While nothing is played the recogniser and voice activity get it bit for bit: the words must be those of a machine
without a front end. While something is played the echo is subtracted for the recogniser and nothing else is done to it,
for suppressing and denoising hurt it; voice activity also gets AEC3's and the noise suppressor's work. What listens
for wake words always has the level evened out. No canceller runs while nothing is played.

With a denoiser, wake words hear half of what it makes of the same sound, 30 ms later, and still the times of the
microphone. While Wren sounds they hear as without one (what is left of an echo is voice to it), as late.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame, Samples, level_dbfs
from appliance.audio.frontend.denoise import Denoiser, QuietPath
from appliance.audio.frontend.linear import LinearCanceller
from appliance.audio.frontend.webrtc import Processors

__all__ = ["Cleaner", "EarFrames"]

_LOG = logging.getLogger(__name__)

HANG_S: Final = 0.4
"""The echo of a room goes on after its cause: so long the canceller runs on."""
WRONG_DB: Final = 12.0
"""Where AEC3 takes so much more away than was subtracted, what is left is echo and nobody's voice."""
WRONG_S: Final = 0.15
"""After so long of that the room is not what it was: the speaker stumbled, or somebody moved it."""
AUDIBLE_DBFS: Final = -70.0
"""Quieter sound of the speaker has no echo that matters."""


@dataclass(frozen=True, slots=True)
class EarFrames:
    """The same 10 ms as several listeners want it; behind a denoiser wake words get those of 30 ms before."""

    speech: Frame
    """For the recogniser and for levels: as it came, the echo subtracted while Wren sounds."""
    wake: Frame
    """For wake words: the same with its level evened out. (Noise suppressed, fewer are heard.)"""
    voice: Frame
    """For voice activity: the same, without noise and what is left of the echo while Wren sounds."""
    played: Frame | None = None
    """What Wren played at that time (with the microphone's time and number); None while it was silent."""

    @classmethod
    def plain(cls, frame: Frame) -> EarFrames:
        """As the microphone has it."""
        return cls(frame, frame, frame)


class Cleaner:
    """A streaming part: a frame in, one of each out. Without processors only the echo is subtracted."""

    def __init__(self, processors: Processors | None, denoiser: Denoiser | None = None) -> None:
        self._processors = processors
        self._quiet = None if denoiser is None else QuietPath(denoiser)
        self._linear = LinearCanceller()
        self.faults = 0
        """Times that a processor failed: from the first on it goes on without them."""
        self._left = 0
        self._wrong = 0
        self._rise = np.linspace(0.0, 1.0, FRAME_SAMPLES, dtype=np.float32)
        self._silence = np.zeros(FRAME_SAMPLES, dtype=np.float32)

    @property
    def cancelling(self) -> bool:
        """Whether echo is being cancelled just now."""
        return self._left > 0

    @property
    def noisy(self) -> str | None:
        """Why the sound is not denoised any more; None while it is, and where that was not wanted."""
        return None if self._quiet is None else self._quiet.fault

    def push(self, frame: Frame, reference: Samples | None = None) -> EarFrames:
        """Hear 10 ms; `reference`, [160] float32, is what was played then (some of it a little later), None silence."""
        subtracted = self._subtract(np.ascontiguousarray(frame.samples), reference)
        # What nothing was done to is handed on as it is: this runs all day long, and mostly Wren is silent.
        speech = frame if subtracted is frame.samples else replace(frame, samples=subtracted)
        suppressed = self._suppressed(frame.samples, subtracted, reference)
        voice = speech if suppressed is subtracted else replace(frame, samples=suppressed)
        wake = speech if self._quiet is None else self._quiet.push(speech, as_it_is=self.cancelling)
        wake = replace(wake, samples=self._levelled(wake.samples))
        return EarFrames(speech, wake, voice, None if reference is None else replace(frame, samples=reference))

    def flush(self) -> tuple[EarFrames, ...]:
        """No words are held back; what is still being denoised is let go of."""
        return ()

    def reset(self) -> None:
        """Forget all sound; the room that the cancellers have learnt, too."""
        self._left = self._wrong = 0
        self._linear.reset()
        if self._processors is not None:
            self._processors.reset()
        if self._quiet is not None:
            self._quiet.reset()

    def _suppressed(self, near: Samples, subtracted: Samples, reference: Samples | None) -> Samples:
        """What is left of the echo and noise suppressed too, while echo is cancelled."""
        processors = self._processors
        if processors is None or not self._left:
            return subtracted
        try:
            left = processors.echo.process(subtracted, self._silence if reference is None else reference)
            self._doubt(level_dbfs(near), level_dbfs(subtracted), level_dbfs(left))
            return processors.voice.process(left)
        except Exception as error:  # noqa: BLE001 - a library's fault must not make Wren deaf
            return self._without_processors(error, subtracted)

    def _levelled(self, samples: Samples) -> Samples:
        if self._processors is None:
            return samples
        try:
            return self._processors.wake.process(samples)
        except Exception as error:  # noqa: BLE001 - as above
            return self._without_processors(error, samples)

    def _without_processors(self, error: Exception, samples: Samples) -> Samples:
        self.faults += 1
        self._processors = None
        _LOG.error("the front end failed (%s); from now on the echo is only subtracted", error)
        return samples

    def _doubt(self, near_dbfs: float, speech_dbfs: float, left_dbfs: float) -> None:
        """Have the linear filter learn the room anew where it takes away far less than there was to take."""
        little = near_dbfs > AUDIBLE_DBFS + WRONG_DB and speech_dbfs > near_dbfs - WRONG_DB / 2
        self._wrong = self._wrong + 1 if little and left_dbfs < speech_dbfs - WRONG_DB else max(0, self._wrong - 1)
        if self._wrong >= WRONG_S / FRAME_S:
            self._wrong = 0
            self._linear.doubt()

    def _subtract(self, near: Samples, reference: Samples | None) -> Samples:
        """`near` without its echo, while there is one: from the first frame of sound on until the room is quiet."""
        began = self._left == 0
        if reference is not None and level_dbfs(reference) > AUDIBLE_DBFS:
            self._left = round(HANG_S / FRAME_S) + 1
        if not self._left:
            return near
        self._left -= 1
        cleared = self._linear.process(near, self._silence if reference is None else reference)
        if began:
            return near + (cleared - near) * self._rise
        if not self._left:
            return cleared + (near - cleared) * self._rise
        return cleared
