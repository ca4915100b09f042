"""What waits to be said: in order of priority, one at a time, each answered when its last sample has been heard.

A queue without a thread: whoever owns it calls `tick`, and the end of a speech comes in by `Speaker.say`'s callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.audio.sounds import Sound
from appliance.errors import ApplianceError
from appliance.mqtt.controls import Speaker

__all__ = ["MAX_WAITING", "Outcome", "Speech", "SpeechQueue"]

_LOG = logging.getLogger(__name__)

MAX_WAITING: Final = 20
"""Half an hour of messages at a minute each; a flood must not be read out for a day."""
BUSY_S: Final = 120.0
"""Longest wait for a quiet moment."""
STUCK_S: Final = 180.0
"""Longest that one speech may take: three times what the longest text needs."""
PRE_ANNOUNCE: Final = Sound.END
PRE_ANNOUNCE_S: Final = 0.6
"""From the start of the sound to the first word."""

Outcome = str
"""`done` (its last sample has been heard), `stopped`, `failed`, `busy` (no quiet moment came) or `dropped`."""

_ENDED: Final = {"answered": "done", "stopped": "stopped"}


@dataclass(frozen=True, slots=True)
class Speech:
    """Something to be said."""

    text: str
    answer: Callable[[Outcome], None]
    """Called once, on the thread that ticks."""
    pre_announce: bool = False
    urgent: bool = False


@dataclass(slots=True)
class _Current:
    speech: Speech
    since_s: float
    speak_at_s: float
    speaking: bool = False
    outcome: str | None = None


class SpeechQueue:
    """Owned by one thread; only `_ended` is called from others."""

    def __init__(self, speaker: Speaker, play: Callable[[Sound], None]) -> None:
        self._speaker = speaker
        self._play = play
        self._waiting: list[Speech] = []
        self._current: _Current | None = None

    @property
    def busy(self) -> bool:
        """Something is said or waits."""
        return self._current is not None or bool(self._waiting)

    def add(self, speech: Speech) -> bool:
        """False where too much waits already."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        if speech.urgent:
            place = next((i for i, other in enumerate(self._waiting) if not other.urgent), len(self._waiting))
            self._waiting.insert(place, speech)
        else:
            self._waiting.append(speech)
        return True

    def drop(self) -> None:
        """Forget what waits; what is being said is ended by `Speaker.stop`."""
        waiting, self._waiting = self._waiting, []
        for speech in waiting:
            speech.answer("dropped")
        current = self._current
        if current is not None and not current.speaking:
            self._current = None
            current.speech.answer("dropped")

    def tick(self, now_s: float) -> None:
        """Do what is due."""
        current = self._current
        if current is not None and self._settle(current, now_s):
            current = self._current = None
        if current is None and self._waiting:
            current = self._current = self._begin(self._waiting.pop(0), now_s)
        if current is not None and not current.speaking and now_s >= current.speak_at_s:
            self._speak(current, now_s)

    def _begin(self, speech: Speech, now_s: float) -> _Current:
        if speech.urgent:
            self._speaker.stop()
        return _Current(speech, now_s, now_s)

    def _speak(self, current: _Current, now_s: float) -> None:
        """Try; where somebody is busy, the next tick tries again."""
        if self._speaker.busy():
            return
        if current.speech.pre_announce and current.speak_at_s == current.since_s:
            current.speak_at_s = now_s + PRE_ANNOUNCE_S
            try:
                self._play(PRE_ANNOUNCE)
            except ApplianceError as error:
                _LOG.warning("said without the sound before it: %s", error)
            return
        current.outcome = None
        current.speaking = self._speaker.say(current.speech.text, lambda outcome: self._ended(current, outcome))

    def _ended(self, current: _Current, outcome: str) -> None:
        current.outcome = outcome

    def _settle(self, current: _Current, now_s: float) -> bool:
        """Whether it is over, answered."""
        outcome = current.outcome
        if outcome == "busy":
            # Somebody began to speak in the moment between asking and saying.
            current.speaking, current.outcome = False, None
        elif outcome is not None:
            if outcome == "answered" and not self._speaker.audible():
                outcome = "failed"  # the speaker was unplugged: time went on without anybody hearing it
            current.speech.answer(_ENDED.get(outcome, "failed"))
            return True
        waited_s = now_s - current.since_s
        if not current.speaking and waited_s > BUSY_S:
            current.speech.answer("busy")
            return True
        if current.speaking and waited_s > BUSY_S + STUCK_S:
            current.speech.answer("failed")
            return True
        return False
