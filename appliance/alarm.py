"""What rings until somebody ends it: a sound of the machine's own speaker, again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from appliance.audio.sounds import Sound

__all__ = ["RingingAlarm"]


class RingingAlarm:
    """A session's `Alarm`. From any thread."""

    def __init__(self, play: Callable[[Sound | None], None]) -> None:
        """`play` begins a sound that repeats, or ends it (None)."""
        self._play = play
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    @property
    def ringing(self) -> bool:
        """Whether it does."""
        return self._timer is not None

    def ring(self, seconds: float) -> None:
        """Ring for so long, or so much longer where it rings already."""
        with self._lock:
            self._end_timer()
            self._timer = threading.Timer(seconds, self._run_out)
            self._timer.daemon = True
            self._timer.start()
            self._play(Sound.RING)

    def hush(self) -> None:
        """Silence; no error where it does not ring."""
        with self._lock:
            if self._timer is not None:
                self._end_timer()
                self._play(None)

    def _run_out(self) -> None:
        with self._lock:
            # One that ran out while `ring` was being called again is not the one that counts any more.
            if self._timer is threading.current_thread():
                self._timer = None
                self._play(None)

    def _end_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
