"""What is said where a stage failed: an answer instead of silence. What cannot be said stands on the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from appliance import events
from appliance.events import Event

__all__ = ["SENTENCES", "Apology"]

SENTENCES: Final[Mapping[str, str]] = {
    "recognise": "I could not hear that in time. Please say that again.",
    "match": "I cannot work that out just now.",
    "commit": "I cannot reach the home just now.",
}
"""Stage of a `SessionFault` to what is said; the others are those that speak."""


class Apology:
    """A listener that has a session say what failed, once its utterance is over. Announcements fail silently: they are
    tried again by whoever announces, and an apology that fails gets no apology."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        """`say` is given session and sentence."""
        self._say = say
        self._faults: dict[str, str] = {}
        """Utterance to stage, until the utterance ends a moment later on the same thread."""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, events.SessionFault) and event.utterance is not None:
            self._faults[event.utterance] = event.stage
        elif isinstance(event, events.UtteranceEnded):
            sentence = SENTENCES.get(self._faults.pop(event.utterance, ""))
            if sentence is not None and event.outcome == "failed":
                self._say(event.session, sentence)
