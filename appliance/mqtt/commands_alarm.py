"""The alarm: a sound again and again until somebody ends it. No thread: whoever owns it calls `tick`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from appliance.audio.sounds import Sound
from appliance.errors import ApplianceError

__all__ = ["LONGEST_S", "Alarm"]

SOUND: Final = Sound.TEST
"""The longest and fullest of Wren's sounds."""
EVERY_S: Final = 1.4
"""The sound and a breath."""
LONGEST_S: Final = 600.0
"""An alarm that nobody ends has been heard or will not be."""


class Alarm:
    """Owned by one thread."""

    def __init__(self, play: Callable[[Sound], None]) -> None:
        self._play = play
        self._until_s: float | None = None
        self._next_s = 0.0

    @property
    def on(self) -> bool:
        """It sounds."""
        return self._until_s is not None

    def start(self, now_s: float, duration_s: float | None) -> None:
        """Begin, or go on for so long from now."""
        if not self.on:
            self._next_s = now_s
        self._until_s = now_s + (LONGEST_S if duration_s is None else duration_s)

    def end(self) -> None:
        """Silence after the sound that is being played."""
        self._until_s = None

    def tick(self, now_s: float) -> None:
        """Play when it is time. Raises what playing raises, and is off then."""
        if self._until_s is None:
            return
        if now_s >= self._until_s:
            self.end()
        elif now_s >= self._next_s:
            try:
                self._play(SOUND)
            except ApplianceError:
                self.end()
                raise
            self._next_s = now_s + EVERY_S
