"""What sessions share when several compete: who may work ahead, and whose recognition is next."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from appliance.errors import SpeechError
from appliance.voice.asr.protocol import Cancel

__all__ = ["CrowdedError", "Lead", "Turns"]

HEAD_START_S: Final = 2.0
"""The machine's own microphone goes before whoever has waited less than this longer: it is preferred, and starves
nobody."""
_LOOK_S: Final = 0.02
"""Between looks at whether the wait is still wanted."""


class CrowdedError(SpeechError):
    """Other conversations have kept the recogniser busy for too long."""

    code = "voice.crowded"
    retry = True


class Lead:
    """Which of the conversations that go on may work ahead: the machine's own, else the one that began first. Pure."""

    def __init__(self, own: str) -> None:
        """`own` is the name of the machine's own session."""
        self._own = own
        self._busy: dict[str, None] = {}
        """In the order in which they began."""

    def began(self, session: str) -> None:
        """It listens, or answers."""
        self._busy.setdefault(session)

    def ended(self, session: str) -> None:
        """It is idle, or gone."""
        self._busy.pop(session, None)

    @property
    def busy(self) -> int:
        """Conversations that go on."""
        return len(self._busy)

    def leads(self, session: str) -> bool:
        """Whether that one may work ahead."""
        if self._own in self._busy:
            return session == self._own
        return next(iter(self._busy), session) == session


class Turns:
    """So many at once, and no more; the rest wait in the order of their arrival, with a head start for some."""

    def __init__(self, slots: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = slots
        self._clock = clock
        self._waiting: list[tuple[float, int]] = []
        self._count = 0
        self._condition = threading.Condition()
        self.refused = 0
        """Waits that were too long."""

    @contextlib.contextmanager
    def turn(self, head_start_s: float, limit_s: float, cancel: Cancel) -> Iterator[None]:
        """Wait for a turn and keep it. Raises `Cancelled`, `CrowdedError`."""
        self._take(head_start_s, limit_s, cancel)
        try:
            yield
        finally:
            with self._condition:
                self._free += 1
                self._condition.notify_all()

    def _take(self, head_start_s: float, limit_s: float, cancel: Cancel) -> None:
        arrived_s = self._clock()
        with self._condition:
            self._count += 1
            me = (arrived_s - head_start_s, self._count)
            self._waiting.append(me)
            try:
                while not (self._free and min(self._waiting) == me):
                    cancel.check()
                    if self._clock() - arrived_s > limit_s:
                        self.refused += 1
                        raise CrowdedError("other conversations keep Wren busy; say that again in a moment")
                    self._condition.wait(_LOOK_S)
                self._free -= 1
            finally:
                self._waiting.remove(me)
                self._condition.notify_all()
