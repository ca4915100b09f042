"""Ends by what was said: a whole sentence early, one that may go on a little later, anything else late.

People leave some 200 ms between turns (Stivers et al. 2009, PNAS 106:10587). Silence alone cannot decide that early:
stops and pauses within a sentence are as long. So an early end needs a sentence that is whole, cannot go on, and was
clearly heard; the less of that is known, the longer the silence must be. Half a word is mostly heard as another whole
one ("open the sliding door in the o…"), but the recogniser is less sure of it (`CLEAR_LOGP`). Pitch, the level at
which the sound stopped and how sure voice activity still is were measured on the recordings, too, and tell ends from
pauses no better.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from appliance.voice.asr.protocol import Extension
from appliance.voice.endpoint.evidence import Decision, Evidence, Verdict
from appliance.voice.endpoint.pauses import PauseSettings, SpeakerPauses

__all__ = ["PATIENT", "QUICK", "MeaningEndpoint", "MeaningSettings"]


@dataclass(frozen=True, slots=True)
class MeaningSettings:
    """Silences, in seconds, after which each kind of sentence is over. Round numbers: see docs/benchmarks.md."""

    likely_s: float = 0.05
    """Worth recognising what was said. Stops within words ("ligh·t") are mostly shorter."""
    whole_s: float = 0.15
    """Ends a sentence of the grammar, word for word, clearly heard and with a full stop, that seldom goes on after a
    pause."""
    open_s: float = 0.3
    """Ends one without the full stop: the recogniser puts none behind short ones ("turn on garage light")."""
    near_whole_s: float = 0.45
    """Ends one that was heard less clearly, or clearly but only almost so. At 0.35, nine of 94 commands with a pause of
    400 ms put into them were cut off for it."""
    clear_so_far_s: float = 0.5
    """Ends one, whole and clearly heard, that may well go on ("turn on the light" "in the kitchen")."""
    may_go_on_s: float = 0.6
    """Ends one that may well go on, or that was heard neither clearly nor quite so."""
    unsure_s: float = 0.7
    """Ends one that is understood less surely: half a sentence is like a whole one at times."""
    not_understood_s: float = 1.2
    """Ends one that means nothing (yet): people pause in the middle ("set a timer for … five minutes")."""
    faint_discount_s: float = 0.6
    """Sound that goes on well below the speaker's level (a television) counts as silence, less this much."""
    steady_s: float = 1.5
    """Ends a sentence that was recognised the same all this time though sound goes on as loud as the speaker."""
    no_speech_s: float = 6.0
    """Nobody speaks: give up after this."""
    too_long_s: float = 28.0
    """Longest utterance: under the recogniser's length cap, so that nothing said is lost silently."""
    pauses: PauseSettings = field(default_factory=PauseSettings)


QUICK: Final = MeaningSettings()
PATIENT: Final = replace(
    QUICK,
    whole_s=0.4,
    open_s=0.5,
    near_whole_s=0.6,
    clear_so_far_s=0.8,
    may_go_on_s=0.9,
    unsure_s=1.2,
    not_understood_s=2.0,
)
"""For people who speak slowly or search for words."""


class MeaningEndpoint:
    """See the module. One a session: it follows that speaker's pauses from utterance to utterance."""

    def __init__(self, settings: MeaningSettings = QUICK) -> None:
        self._settings = settings
        self._pauses = SpeakerPauses(settings.pauses)
        self._silence_s = 0.0

    @property
    def extra_s(self) -> float:
        """Patience learnt from this speaker, seconds."""
        return self._pauses.extra_s

    def decide(self, evidence: Evidence) -> Decision:
        """Judge this moment."""
        settings = self._settings
        if evidence.speech_s == 0.0:
            patience_s = settings.no_speech_s if evidence.no_speech_s is None else evidence.no_speech_s
            waited = evidence.listening_s >= patience_s
            return Decision(Verdict.END, "no-speech") if waited else Decision(Verdict.WAIT)
        if evidence.listening_s >= settings.too_long_s:
            return Decision(Verdict.END, "too-long")
        silence_s = max(evidence.quiet_s, evidence.silence_s, evidence.faint_s - settings.faint_discount_s)
        if silence_s < self._silence_s:
            self._pauses.observe(self._silence_s)
        self._silence_s = max(silence_s, 0.0)
        wait_s, reason = self._patience(evidence)
        if silence_s >= wait_s:
            return Decision(Verdict.END, reason)
        if evidence.steady_s >= settings.steady_s:
            return Decision(Verdict.END, "steady")
        return Decision(Verdict.LIKELY if silence_s >= settings.likely_s else Verdict.WAIT)

    def reset(self) -> None:
        """A new utterance; the speaker is thought to be the same."""
        self._pauses.utterance_over()
        self._silence_s = 0.0

    def _patience(self, evidence: Evidence) -> tuple[float, str]:
        settings, extra_s = self._settings, self._pauses.extra_s
        if not evidence.understood:
            return settings.not_understood_s + extra_s, "silence-not-understood"
        if not evidence.certain or evidence.unfinished:
            return settings.unsure_s + extra_s, "understood"
        surely = evidence.verbatim and evidence.clear
        if evidence.extension is Extension.LIKELY:
            wait_s = settings.clear_so_far_s if surely and evidence.closed else settings.may_go_on_s
            return wait_s + extra_s, "whole-so-far"
        if surely:
            return (settings.whole_s, "whole") if evidence.closed else (settings.open_s, "whole-open")
        if evidence.verbatim or evidence.clear:
            return settings.near_whole_s, "near-whole"
        return settings.may_go_on_s, "near-whole"
