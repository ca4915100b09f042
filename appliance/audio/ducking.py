"""Who makes whom quieter: while somebody is listened to, or something more important sounds, the rest steps back.

A hold is taken by whoever needs the quiet and let go of when the *playback* has ended; holds nest, the deepest counts,
and each ends by itself after its limit, so that an owner that died cannot leave the speaker quiet for ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final

__all__ = ["Cause", "Duck", "Ducking", "Layer"]

_LOG = logging.getLogger(__name__)


class Layer(Enum):
    """What Wren plays and may make quieter. Small sounds are never: they are what the rest steps back for."""

    REPLY = "reply"
    """Speech of a session: an answer, an announcement."""
    ALARM = "alarm"
    """What goes on until somebody ends it: a timer that rings, a siren."""


class Cause(Enum):
    """Why something is to be quieter."""

    LISTENING = "listening"
    """Somebody is being listened to."""
    ANNOUNCEMENT = "announcement"
    """Something is being announced that nobody asked for just now, from its first sound to its last."""
    SPEECH = "speech"
    """Wren speaks."""


@dataclass(frozen=True, slots=True)
class _Rule:
    limit_s: float
    """Longer than it can take where all is well."""
    gains_db: dict[Layer, float]


_RULES: Final[dict[Cause, _Rule]] = {
    # An utterance ends after 30 s at the latest. The sound that says "I heard you" is part of listening.
    Cause.LISTENING: _Rule(40.0, {Layer.REPLY: -24.0, Layer.ALARM: -24.0}),
    # No more than 120 s of speech wait to be played.
    Cause.ANNOUNCEMENT: _Rule(150.0, {Layer.REPLY: -18.0, Layer.ALARM: -18.0}),
    Cause.SPEECH: _Rule(150.0, {Layer.ALARM: -18.0}),
}


class Duck:
    """One hold; a context manager. Letting go twice, or after its limit, does no harm."""

    def __init__(self, ducking: Ducking, cause: Cause, until_s: float, *, planned: bool = False) -> None:
        self._ducking = ducking
        self.planned = planned
        """It was made to end by itself."""
        self.cause = cause
        self.until_s = until_s
        """When it ends by itself."""

    def release(self) -> None:
        """Let go; any thread."""
        self._ducking._let_go(self)

    def __enter__(self) -> Duck:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Ducking:
    """See the module. `hold` and `release` from any thread; `gain` from an audio callback too: it takes no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: tuple[Duck, ...] = ()
        """Replaced, never changed: whoever reads it has a whole one."""
        self.expired = 0
        """Holds that nobody let go of in time: each is a fault of its owner."""

    def hold(self, cause: Cause) -> Duck:
        """Duck what this cause ducks until it is released, or for as long as it can sensibly take."""
        return self._add(Duck(self, cause, self._clock() + _RULES[cause].limit_s))

    def duck_for(self, cause: Cause, seconds: float) -> None:
        """A hold that nobody need let go of, for something whose length is known (a small sound)."""
        self._add(Duck(self, cause, self._clock() + seconds, planned=True))

    def gain(self, layer: Layer) -> float:
        """What to multiply this layer by just now, 0..1."""
        holds = self._holds
        if not holds:
            return 1.0
        now_s = self._clock()
        lowest_db = 0.0
        for duck in holds:
            if now_s < duck.until_s:
                lowest_db = min(lowest_db, _RULES[duck.cause].gains_db.get(layer, 0.0))
        return float(10.0 ** (lowest_db / 20.0))

    def held(self) -> tuple[Cause, ...]:
        """Causes that hold just now, oldest first."""
        with self._lock:
            self._drop_expired(self._clock())
            return tuple(duck.cause for duck in self._holds)

    def _add(self, duck: Duck) -> Duck:
        with self._lock:
            self._drop_expired(self._clock())
            self._holds = (*self._holds, duck)
        return duck

    def _let_go(self, duck: Duck) -> None:
        with self._lock:
            self._drop_expired(self._clock())
            self._holds = tuple(held for held in self._holds if held is not duck)

    def _drop_expired(self, now_s: float) -> None:
        kept = tuple(duck for duck in self._holds if now_s < duck.until_s)
        for duck in self._holds:
            if not duck.planned and now_s >= duck.until_s:
                self.expired += 1
                _LOG.warning("nobody ended what was made quieter for: %s", duck.cause.value)
        self._holds = kept
