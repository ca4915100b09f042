"""What a strategy is shown and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from appliance.voice.asr.protocol import Extension

__all__ = ["Decision", "EndpointStrategy", "Evidence", "Verdict"]


class Verdict(Enum):
    """What a strategy says about this moment."""

    WAIT = "wait"
    """Go on listening."""
    LIKELY = "likely"
    """Perhaps the end: worth recognising what was said, without any consequence yet."""
    END = "end"
    """The utterance is over."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and, for an end, its reason.

    Reasons: whole | whole-open | near-whole | whole-so-far | understood | silence | silence-not-understood | steady |
    no-speech | too-long.
    """

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about the utterance at the end of one 10 ms frame; times in seconds."""

    listening_s: float
    """Since listening began."""
    speech_s: float
    """Speech heard so far, pauses left out."""
    silence_s: float
    """Since the last speech sample, as the voice-activity gate sees it; 0 while it hears speech. It lets go some
    200 ms late."""
    understood: bool | None
    """Whether what was said up to this silence means something here; None while not yet known."""
    no_speech_s: float | None = None
    """How long to wait for somebody to speak, where it is not the strategy's own time (a follow-up waits less)."""
    quiet_s: float = 0.0
    """Since the sound last stood out of the room's floor; 0 before any speech."""
    faint_s: float = 0.0
    """Since the sound was last near the speaker's own level: grows under a television, too."""
    certain: bool = False
    """What was understood is near enough to what was said for an early end."""
    verbatim: bool = False
    """The words as recognised are a whole sentence of the grammar; False where they only come near one."""
    clear: bool = False
    """The recogniser was sure of its words (`acceptance.CLEAR_LOGP`): half a word is rarely heard clearly."""
    closed: bool = False
    """The recogniser put a full stop (or ? or !): to its ear, melody and words, the sentence is over."""
    unfinished: bool = False
    """The words as recognised are the beginning of a sentence, and no whole one."""
    extension: Extension = Extension.NONE
    """What may still follow what was understood."""
    steady_s: float = 0.0
    """How long one and the same whole sentence has been recognised again and again while sound goes on."""


class EndpointStrategy(Protocol):
    """Decides frame by frame. `reset` starts a new utterance; what it has learnt of the speaker may outlive it."""

    def decide(self, evidence: Evidence) -> Decision:
        """Judge this moment."""
        ...

    def reset(self) -> None:
        """A new utterance begins."""
        ...
