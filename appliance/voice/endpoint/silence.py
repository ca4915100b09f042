"""The plain rule: a fixed silence ends the utterance, as in most voice assistants. The baseline."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.voice.endpoint.evidence import Decision, Evidence, Verdict

__all__ = ["SilenceEndpoint", "SilenceSettings"]


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
        """Nothing is remembered from moment to moment."""
