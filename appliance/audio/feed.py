"""One reply on its way from a session's pieces to the ring that the audio callback reads; and how it comes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

import numpy as np

from appliance.audio.frame import Samples
from appliance.audio.lowdelay import LowDelayResampler
from appliance.audio.mixer import QueuedReply

__all__ = ["Pace", "ReplyFeed"]

MAX_QUEUED_S: Final = 120.0
"""Speech that may wait to be played; what is written beyond it is refused, and counted by the player."""
RING_S: Final = 0.5
"""Sound ready for the callback: what the player's thread may be late by."""
PIECE_S: Final = 0.1
"""Resampled at once: the first piece of a reply must not wait for the last to be converted."""


class Pace:
    """How the pieces of one reply come, beside how they play."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._due_s: float | None = None
        self._last_s = 0.0

    def piece(self, now_s: float, samples: int) -> tuple[float, float] | None:
        """A piece came. How late it was for a player that begins with the first and keeps nothing ready (0 or more),
        and its real-time factor; None for the first. Each lateness counts once: the player has paused for it."""
        due_s, last_s = self._due_s, self._last_s
        length_s = samples / self._rate_hz
        self._last_s = now_s
        if due_s is None or not samples:
            self._due_s = now_s + length_s if due_s is None else due_s
            return None
        self._due_s = max(due_s, now_s) + length_s
        return max(0.0, now_s - due_s), (now_s - last_s) / length_s


class ReplyFeed:
    """`write` and `finish` from the session's thread, `aim` and `fill` from the player's."""

    def __init__(self, generation: int, rate_hz: int, prebuffer_s: float) -> None:
        self.generation = generation
        self.rate_hz = rate_hz
        self.pace = Pace(rate_hz)
        """Told by who writes."""
        self.underruns_told = 0
        """Of those that `queued` counts, how many the depth knows of."""
        self.queued: QueuedReply
        """What the mixer plays; there once the feed is aimed."""
        self._prebuffer_s = prebuffer_s
        self._lock = threading.Lock()
        self._pieces: deque[Samples] = deque()  # bounded in `write`: a `maxlen` would lose speech unseen
        self._waiting = 0
        self._finished = False
        self._flushed = False
        self._pending: Samples = np.empty(0, dtype=np.float32)
        self._resampler: LowDelayResampler

    def aim(self, rate_hz: int) -> QueuedReply:
        """Lead it to a device's rate; what an earlier ring still held is lost."""
        self._resampler = LowDelayResampler(self.rate_hz, rate_hz)
        self._out_hz = rate_hz
        self.underruns_told = 0
        self._pending = np.empty(0, dtype=np.float32)
        self.queued = QueuedReply(self.generation, round(RING_S * rate_hz), round(self._prebuffer_s * rate_hz))
        return self.queued

    def write(self, samples: Samples) -> bool:
        """The next piece, [n] float32; False if too much is waiting and it was refused."""
        size = max(1, round(PIECE_S * self.rate_hz))
        with self._lock:
            if (self._waiting + samples.size) / self.rate_hz > MAX_QUEUED_S:
                return False
            self._waiting += samples.size
            self._pieces.extend(samples[at : at + size] for at in range(0, samples.size, size))
        return True

    def deepen(self, prebuffer_s: float) -> None:
        """Have so much ready before it goes on, or begins."""
        self._prebuffer_s = prebuffer_s
        self.queued.prebuffer = round(prebuffer_s * self._out_hz)

    def finish(self) -> None:
        """No more pieces."""
        self._finished = True

    def fill(self) -> None:
        """Resample into the ring for as long as there is something and it fits."""
        ring = self.queued.ring
        while True:
            finished = self._finished  # asked before the pieces: what is finished gets no more of them
            if self._pending.size:
                self._pending = self._pending[ring.write(self._pending) :]
                if self._pending.size:
                    return
            elif self._pieces:
                with self._lock:
                    piece = self._pieces.popleft()
                    self._waiting -= piece.size
                self._pending = self._resampler.push(piece)
            elif finished and not self._flushed:
                self._flushed = True
                self._pending = self._resampler.flush()
            else:
                if self._flushed:
                    self.queued.end = ring.written
                return
