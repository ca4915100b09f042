"""When is the speaker done? Strategies are small classes that look at the evidence and decide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["Decision", "EndpointStrategy", "Evidence", "SilenceEndpoint", "Verdict"]


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
    """A verdict and, for an end, its reason: silence | silence-not-understood | no-speech | too-long."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about the utterance at the end of one 32 ms window."""

    probability: float
    """Voice activity in this window, 0..1."""
    listening_s: float
    """Since listening began."""
    speech_s: float
    """Speech heard so far, pauses left out."""
    silence_s: float
    """Since the last speech sample; 0 while speaking."""
    understood: bool | None
    """Whether what was said up to this silence means something here; None while not yet known."""
    no_speech_s: float | None = None
    """How long to wait for somebody to speak, where it is not the strategy's own time (a follow-up waits less)."""


class EndpointStrategy(Protocol):
    """Decides window by window. Holds no state beyond the utterance; `reset` starts a new one."""

    def decide(self, evidence: Evidence) -> Decision:
        """Judge this moment."""
        ...

    def reset(self) -> None:
        """A new utterance begins."""
        ...


@dataclass(frozen=True, slots=True)
class SilenceSettings:
    """Times of the plain silence rule."""

    likely_s: float = 0.2
    """Silence after which recognition is worth starting."""
    understood_s: float = 0.7
    """Silence that ends a sentence that means something."""
    not_understood_s: float = 1.5
    """Silence that ends one that does not: people pause in the middle ("set a timer for … five minutes")."""
    no_speech_s: float = 6.0
    """Nobody speaks: give up after this."""
    too_long_s: float = 28.0
    """Longest utterance: under the recogniser's length cap, so that nothing said is lost silently."""


class SilenceEndpoint:
    """Ends after a silence: a shorter one where the sentence is understood, a longer one where it is not."""

    def __init__(self, settings: SilenceSettings = SilenceSettings()) -> None:
        self._settings = settings

    def decide(self, evidence: Evidence) -> Decision:
        """Judge this moment by silence and by whether the sentence so far is understood."""
        settings = self._settings
        if evidence.speech_s == 0.0:
            patience_s = settings.no_speech_s if evidence.no_speech_s is None else evidence.no_speech_s
            waited = evidence.listening_s >= patience_s
            return Decision(Verdict.END, "no-speech") if waited else Decision(Verdict.WAIT)
        if evidence.listening_s >= settings.too_long_s:
            return Decision(Verdict.END, "too-long")
        if evidence.silence_s >= settings.not_understood_s:
            return Decision(Verdict.END, "silence-not-understood")
        if evidence.silence_s >= settings.understood_s and evidence.understood:
            return Decision(Verdict.END, "silence")
        if evidence.silence_s >= settings.likely_s:
            return Decision(Verdict.LIKELY)
        return Decision(Verdict.WAIT)

    def reset(self) -> None:
        """Nothing is remembered between windows."""
