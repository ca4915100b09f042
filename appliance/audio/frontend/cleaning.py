"""One microphone's sound, cleaned: echo taken out while something is played, high-passed for the recogniser, and
beside it a path with noise suppressed and level evened out, for what only listens for a word or for speech.

Denoising before a recogniser hurts it, so it never gets that path. While nothing is played no canceller runs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame, Samples, level_dbfs
from appliance.audio.frontend.webrtc import Processors

__all__ = ["Cleaner", "EarFrames"]

_LOG = logging.getLogger(__name__)

HANG_S: Final = 0.4
"""The echo of a room goes on after its cause: so long the canceller runs on."""
START_S: Final = 0.02
"""The canceller holds sound back for 8 ms: its first frames are not used. The reference comes before its echo, so
nothing is heard of it in that time."""
AUDIBLE_DBFS: Final = -70.0
"""Quieter sound of the speaker has no echo that matters."""


@dataclass(frozen=True, slots=True)
class EarFrames:
    """The same 10 ms as several listeners want it."""

    speech: Frame
    """For the recogniser and for levels: high-passed, echo cancelled while Wren sounds."""
    detection: Frame
    """For wake words and voice activity: noise suppressed and level evened out too."""
    played: Frame | None = None
    """What Wren played at that time (with the microphone's time and number); None while it was silent."""

    @classmethod
    def plain(cls, frame: Frame) -> EarFrames:
        """As the microphone has it."""
        return cls(frame, frame)


class Cleaner:
    """A streaming part: a frame in, one of each out. Without processors it hands everything on as it is."""

    def __init__(self, processors: Processors | None) -> None:
        self._processors = processors
        self.faults = 0
        """Times that a processor failed: from the first on the sound is handed on as it is."""
        self._left = 0
        self._ran = 0
        self._rise = np.linspace(0.0, 1.0, FRAME_SAMPLES, dtype=np.float32)
        self._silence = np.zeros(FRAME_SAMPLES, dtype=np.float32)

    @property
    def cancelling(self) -> bool:
        """Whether echo is being cancelled just now."""
        return self._ran > 0

    def push(self, frame: Frame, reference: Samples | None = None) -> EarFrames:
        """Hear 10 ms; `reference`, [160] float32, is what was played then (some of it a little later), None silence."""
        played = None if reference is None else replace(frame, samples=reference)
        processors = self._processors
        if processors is None:
            return EarFrames(frame, frame, played)
        try:
            speech = self._speech(processors, frame.samples, reference)
            detection = processors.detection.process(speech)
        except Exception as error:  # noqa: BLE001 - a library's fault must not make Wren deaf
            self.faults += 1
            self._processors = None
            _LOG.error("the front end failed (%s): no echo is cancelled any more", error)
            return EarFrames(frame, frame, played)
        return EarFrames(replace(frame, samples=speech), replace(frame, samples=detection), played)

    def flush(self) -> tuple[EarFrames, ...]:
        """Nothing is held back but what the canceller's filters need, which is no sound of its own."""
        return ()

    def reset(self) -> None:
        """Forget all sound; the room that the canceller has learnt, too."""
        self._left = self._ran = 0
        if self._processors is not None:
            for processor in (self._processors.high_pass, self._processors.echo, self._processors.detection):
                processor.reset()

    def _speech(self, processors: Processors, raw: Samples, reference: Samples | None) -> Samples:
        passed = processors.high_pass.process(np.ascontiguousarray(raw))
        if reference is not None and level_dbfs(reference) > AUDIBLE_DBFS:
            self._left = round(HANG_S / FRAME_S)
        if not self._left:
            self._ran = 0
            return passed
        cleared = processors.echo.process(passed, self._silence if reference is None else reference)
        self._ran += 1
        self._left -= 1
        start = round(START_S / FRAME_S)
        if self._ran <= start:
            return passed
        if self._ran == start + 1:
            return passed + (cleared - passed) * self._rise
        if not self._left:
            return cleared + (passed - cleared) * self._rise
        return cleared
