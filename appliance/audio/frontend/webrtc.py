"""WebRTC's audio processing (AEC3, noise suppressor, AGC2) by pywebrtc-audio, loaded when it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from appliance.audio.frame import RATE_HZ, Samples
from appliance.audio.frontend.reference import LEAD_S
from appliance.errors import ApplianceError

__all__ = ["EchoProcessor", "FrontEndMissingError", "Processor", "Processors", "open_processors"]

MAX_GAIN_DB: Final = 24.0
"""Of the gain control: what somebody at the other end of a room is quieter than somebody in front of the device."""


class FrontEndMissingError(ApplianceError):
    """The library that cancels echo is not installed, or does not load on this machine."""

    code = "audio.front-end"


class Processor(Protocol):
    """Sound in, as much sound out. Not for two threads at once."""

    def process(self, audio: Samples) -> Samples:
        """[160] float32 at 16 kHz to the same."""
        ...

    def reset(self) -> None:
        """Forget all sound."""
        ...


class EchoProcessor(Protocol):
    """Sound and what was played in, sound without the echo out."""

    def process(self, near: Samples, far: Samples) -> Samples:
        """Two times [160] float32 at 16 kHz to one; `far` must come before its echo in `near`."""
        ...

    def reset(self) -> None:
        """Forget all sound, and the room."""
        ...


@dataclass(frozen=True, slots=True)
class Processors:
    """What one microphone's front end works with."""

    echo: EchoProcessor
    wake: Processor
    """Gain control."""
    voice: Processor
    """Noise suppressor."""

    def reset(self) -> None:
        """Forget all sound, and the room."""
        for processor in (self.echo, self.wake, self.voice):
            processor.reset()


def open_processors() -> Processors:
    """Load the library. Raises `FrontEndMissingError`."""
    try:
        from pywebrtc_audio import AudioProcessor, EchoCanceller
    except (ImportError, OSError) as error:
        raise FrontEndMissingError(
            f"pywebrtc-audio does not load ({error}); run `make setup`, or go on with echo that is only subtracted"
        ) from None
    return Processors(
        echo=EchoCanceller(RATE_HZ, 1, stream_delay_ms=round(LEAD_S * 1000)),
        wake=AudioProcessor(RATE_HZ, 1, auto_gain_control=True, agc_max_gain_db=MAX_GAIN_DB),
        voice=AudioProcessor(RATE_HZ, 1, noise_suppression=True, ns_level=1),
    )
