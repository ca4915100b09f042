"""A microphone's front end put together: what is played, laid beside what the microphone hears, and cleaning."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from appliance.audio.frame import Frame
from appliance.audio.frontend.cleaning import Cleaner, EarFrames
from appliance.audio.frontend.denoise import DenoiserMissingError, OpenDenoiser
from appliance.audio.frontend.played import PlayedTap
from appliance.audio.frontend.reference import EchoReference
from appliance.audio.frontend.webrtc import FrontEndMissingError, open_processors

__all__ = ["Ears", "EarsState"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarsState:
    """What came of the front end so far."""

    cancelling: bool
    """Whether echo is being cancelled just now."""
    missing: str | None
    """Why there is no front end, a sentence; None where there is one, or none is wanted."""
    noisy: str | None
    """Why the sound is not denoised, a sentence; None where it is, or where that is not wanted."""
    jumps: int
    """Times that the reference had to be laid anew while something sounded."""
    dropped: int
    """Blocks of what was played that were read too late."""


class Ears:
    """What a session hears through. One thread pushes; `state` may be asked from any."""

    def __init__(self, tap: PlayedTap, *, wanted: bool = True, denoiser: OpenDenoiser | None = None) -> None:
        """`wanted` False: no echo is cancelled. Without a `denoiser` too, the sound is handed on as it is."""
        self._wanted = wanted
        self._tap = tap
        self._reference = EchoReference()
        self._missing: str | None = None
        processors = None
        if wanted:
            try:
                processors = open_processors()
            except FrontEndMissingError as error:
                self._missing = str(error)
                _LOG.warning("Wren hears its own voice more than it should: %s", error)
        self._noisy: str | None = None
        quiet = None
        if denoiser is not None:
            try:
                quiet = denoiser()
            except DenoiserMissingError as error:
                self._noisy = str(error)
                _LOG.warning("the sound is not denoised: %s", error)
        self._plain = not wanted and quiet is None
        self._cleaner = Cleaner(processors, quiet)

    def push(self, frame: Frame) -> EarFrames:
        """Hear 10 ms."""
        if self._plain:
            return EarFrames.plain(frame)
        if not self._wanted:
            return self._cleaner.push(frame)
        self._reference.push(self._tap.read())
        return self._cleaner.push(frame, self._reference.take(frame.time_s))

    def state(self) -> EarsState:
        """Counts since it was made, and what is amiss."""
        missing = self._missing
        if self._cleaner.faults:
            missing = "the front end failed; echo is only subtracted until Wren is started again"
        noisy = self._noisy
        if self._cleaner.noisy is not None:
            noisy = f"the denoiser failed ({self._cleaner.noisy}); nothing is denoised until Wren is started again"
        return EarsState(self._cleaner.cancelling, missing, noisy, self._reference.jumps, self._tap.dropped)
