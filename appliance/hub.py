"""Where events go: one place that every session tells and every face listens to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from appliance.events import Event, Listener

__all__ = ["Hub"]

_LOG = logging.getLogger(__name__)


class Hub:
    """Fans events out to listeners, in order of subscription, on the thread of the session that tells.

    Listeners return at once (they put the event into a bounded queue of their own). One that raises is logged,
    counted and kept: a broken face must not silence the others, nor reach the session.
    """

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        self._lock = threading.Lock()
        self.faults = 0
        """Events that a listener failed to take."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; call what is returned to remove it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = tuple(kept for kept in self._listeners if kept is not listener)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell everyone."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - see the class
                self.faults += 1
                _LOG.exception("a listener could not take %s", type(event).__name__)
