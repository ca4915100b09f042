"""How long each stage of a conversation may take, and what is raised where it takes longer."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.errors import SpeechError

__all__ = ["LIMITS", "StageRestingError", "StageTimeoutError", "TimeLimits"]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds. Far above what even a slow machine takes: beyond them something hangs."""

    recognition_s: float = 6.0
    recognition_factor: float = 1.0
    """More for each second of sound."""
    turn_s: float = 8.0
    """To wait for other conversations' recognitions."""
    intent_s: float = 3.0
    home_s: float = 6.0
    """For the home to carry a command out."""
    commit_s: float = 10.0
    """For all of it, with the wait for other conversations' commands."""
    piece_s: float = 6.0
    """For the next piece of a reply."""
    whole_s: float = 8.0
    """A reply that is to be made whole before it begins begins after this all the same."""
    playback_s: float = 8.0
    """How much later than due a loudspeaker may say that it has played a reply."""


LIMITS = TimeLimits()


class StageTimeoutError(SpeechError):
    """A stage did not answer in time; what it was doing is given up."""

    code = "voice.timeout"
    retry = True


class StageRestingError(SpeechError):
    """A stage has failed so often that it is left alone for a while."""

    code = "voice.resting"
    retry = True
