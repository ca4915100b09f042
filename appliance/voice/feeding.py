"""Feeding a loudspeaker, watched: how late pieces come, and that the end of a reply does come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from appliance.audio.frame import Samples
from appliance.voice.limits import LIMITS, StageTimeoutError, TimeLimits
from appliance.voice.meter import SessionMeter
from appliance.voice.parts import Message, Player, fault_of
from appliance.voice.relief import Relief

__all__ = ["WatchedPlayer"]

NEAR_S: Final = 0.03
"""A piece that comes with less sound than this left to play came too late, or nearly so."""


class WatchedPlayer:
    """See `Player`. Called, like what it calls, on the session's thread."""

    def __init__(
        self,
        player: Player,
        meter: SessionMeter,
        now: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], None],
        deliver: Callable[[Message], None],
        relief: Callable[[], Relief],
        limits: TimeLimits = LIMITS,
    ) -> None:
        """`call_at` does something on the session's thread later, in place of what was to be done before; `deliver`
        hands the session a message there; `relief` says what the ladder asks for."""
        self._player, self._meter, self._now, self._call_at = player, meter, now, call_at
        self._deliver, self._relief, self._limits = deliver, relief, limits
        self._begun_under = relief()
        self._generation = 0
        self._rate_hz = 0
        self._end_s: float | None = None
        self.gaps = 0
        """Pieces that came after the one before had been played to its end."""

    def begin(self, generation: int, rate_hz: int) -> None:
        """See `Player`."""
        self._generation, self._rate_hz, self._end_s = generation, rate_hz, None
        self._begun_under = self._relief()
        self._player.begin(generation, rate_hz)

    def write(self, samples: Samples) -> None:
        """See `Player`."""
        now_s = self._now()
        started_s = time.perf_counter()
        self._player.write(samples)
        cost_s = time.perf_counter() - started_s
        late_s = 0.0
        if self._end_s is not None:
            late_s = max(0.0, now_s + NEAR_S - self._end_s)
            self.gaps += now_s > self._end_s
        sound_s = samples.size / self._rate_hz
        self._end_s = max(now_s, self._end_s or now_s) + sound_s
        # A step that was taken meanwhile is for the next reply: this one says nothing of what it brings.
        if sound_s and self._relief() is self._begun_under:
            self._meter.report("playback", cost_s, sound_s, late_s)
        self._watch()

    def finish(self) -> None:
        """See `Player`."""
        self._player.finish()
        self._watch()

    def stop(self) -> None:
        """See `Player`."""
        self._end_s = None
        self._player.stop()

    def _watch(self) -> None:
        generation, end_s = self._generation, max(self._now(), self._end_s or 0.0)

        def overdue() -> None:
            if self._end_s is not None and self._generation == generation:
                late_s = self._limits.playback_s
                error = StageTimeoutError(f"the end of the reply has not been heard of {late_s:g} s after it was due")
                # Changes nothing where the end has been told of meanwhile: that generation is over.
                self._deliver(fault_of(generation, "play", error))

        self._call_at(end_s + self._limits.playback_s, overdue)
