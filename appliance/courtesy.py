"""Who steps back for whom on the machine's own speaker, read off what happens: holds of the ducking.

A hold ends with the playback, not with the making of it; one that is never let go of ends by its own limit.
"""

from __future__ import annotations

from typing import Final

from appliance import events
from appliance.audio.ducking import Cause, Duck, Ducking
from appliance.events import Event

__all__ = ["Courtesy"]

_BEGIN: Final[dict[type[Event], Cause]] = {
    events.ListeningStarted: Cause.LISTENING,
    events.FirstAudio: Cause.SPEECH,
}
_END: Final[dict[type[Event], tuple[Cause, ...]]] = {
    events.EndpointReached: (Cause.LISTENING,),
    events.PlaybackEnded: (Cause.SPEECH,),
    events.UtteranceEnded: (Cause.LISTENING, Cause.SPEECH),
}


class Courtesy:
    """A listener of one session's events; called on that session's thread."""

    def __init__(self, ducking: Ducking, session: str) -> None:
        self._ducking = ducking
        self._session = session
        self._holds: dict[Cause, Duck] = {}

    def __call__(self, event: Event) -> None:
        """Take or let go of what an event asks for."""
        if event.session != self._session:
            return
        for cause in _END.get(type(event), ()):
            self._let_go(cause)
        begun = _BEGIN.get(type(event))
        if begun is not None:
            self._let_go(begun)
            self._holds[begun] = self._ducking.hold(begun)

    def _let_go(self, cause: Cause) -> None:
        hold = self._holds.pop(cause, None)
        if hold is not None:
            hold.release()
