"""Whether somebody has finished: what is known of it after each frame, and when it is worth a guess. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from appliance.voice.asr.acceptance import Accepted, clearly_heard
from appliance.voice.asr.protocol import Extension, Hypothesis
from appliance.voice.endpoint import Evidence
from appliance.voice.guesses import Steadiness
from appliance.voice.hearing import Heard

__all__ = ["Ending"]

_NEVER: Final = float("-inf")
_SURE_QUIET_S: Final = 0.3
"""Behind so much quiet, nothing read is nothing said. Sooner, the end of a short word may not be there yet."""
_CLOSING: Final = (".", "?", "!")


class Ending:
    """Of one utterance after the other. Capture times but for `now_s`, which is the session's clock."""

    def __init__(self, sure_s: float, may_guess: Callable[[], bool]) -> None:
        """A silence of `sure_s` is worth a guess in any case, a shorter one where `may_guess`."""
        self._sure_s, self._may_guess = sure_s, may_guess
        self.started_s = 0.0
        """When listening began."""
        self._no_speech_s: float | None = None
        self._went_on_s = _NEVER
        self._guess_from_s = _NEVER
        self._steady = Steadiness()
        self.near_only = False
        """The newest guess was made into sound that goes on: only the speaker's own level says that speech does."""

    def begin(self, started_s: float, no_speech_s: float | None) -> None:
        """A new utterance; `no_speech_s`: see `Evidence`."""
        self.started_s, self._no_speech_s, self._went_on_s = started_s, no_speech_s, _NEVER

    def rearm(self) -> None:
        """What was read so far counts no more."""
        self._steady = Steadiness()

    def went_on(self, now_s: float) -> None:
        """Speech was heard behind a guess."""
        self._went_on_s = now_s

    def judged(self, partial: Accepted, now_s: float) -> None:
        """It is known what a partial text means."""
        self._steady.add(partial, now_s)

    def guess_due(self, heard: Heard, silence_s: float) -> bool:
        """Whether what looks like an end is to be recognised now."""
        due = heard.now_s >= self._guess_from_s and (silence_s >= self._sure_s or self._may_guess())
        if due:
            self.near_only = heard.quiet_s == 0.0 and heard.silence_s == 0.0
        return due

    def too_soon_for(self, hypothesis: Hypothesis, heard: Heard) -> bool:
        """Whether nothing was read where it may yet be: then the next guess is due once it is surely quiet."""
        if hypothesis.text or hypothesis.phrase or not 0.0 < heard.quiet_s < _SURE_QUIET_S:
            return False
        self._guess_from_s = heard.now_s - heard.quiet_s + _SURE_QUIET_S
        return True

    def evidence(
        self, heard: Heard, hypothesis: Hypothesis | None, accepted: Accepted | None, now_s: float
    ) -> Evidence:
        """For the decision; the newest guess, and what it was taken for, as far as they are known."""
        reach = None if hypothesis is None else hypothesis.reach
        return Evidence(
            listening_s=heard.now_s - self.started_s,
            speech_s=heard.speech.speech_s,
            silence_s=min(heard.silence_s, heard.now_s - self._went_on_s),
            understood=None if accepted is None else accepted.understanding.intent is not None,
            no_speech_s=self._no_speech_s,
            quiet_s=heard.quiet_s,
            faint_s=heard.faint_s,
            certain=accepted is not None and accepted.certain,
            verbatim=reach is not None and reach.complete,
            clear=hypothesis is not None and clearly_heard(hypothesis),
            closed=hypothesis is not None and hypothesis.text.endswith(_CLOSING),
            unfinished=hypothesis is not None and _unfinished(hypothesis),
            extension=Extension.NONE if accepted is None else accepted.extension,
            steady_s=self._steady.lasted_s(now_s),
        )


def _unfinished(hypothesis: Hypothesis) -> bool:
    """Whether the text is the beginning of a phrase and no whole one, and the phrase found for it goes further (or
    less far) than what was heard."""
    reach = hypothesis.reach
    if reach is None or reach.complete or not reach.inside:
        return False
    return len((hypothesis.phrase or "").split()) != len(hypothesis.text.split())
