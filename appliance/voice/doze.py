"""Detectors that sleep while a quiet room has nothing for them: most of what an idle Wren would cost.

What was just before a sound is kept, and heard after: a detector that is woken knows the room as if it had listened
all the time, and no onset is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic

import numpy as np

from appliance.audio.frame import FRAME_S, Frame, Samples, level_dbfs
from appliance.voice.meter import FrameDetector, Out_co
from appliance.voice.room import RoomFloor

__all__ = ["Doze", "Dozing"]

AFTER_S: Final = 1.0
"""Quiet for so long, nobody needs to listen closely."""
ABOVE_FLOOR_DB: Final = 6.0
"""Sound this far above the room's floor is listened to: a wake word that a detector can hear stands out more."""
PIECE_SAMPLES: Final = 40
"""Within 2.5 ms neither a microphone's offset nor mains hum changes much. Detectors hear speech in spite of both, so
they must not hide it here: with an offset at -30 dBFS none of 8 quiet wake words stood out by 6 dB."""


class Doze:
    """Whether it is quiet enough to sleep. Pure: sound in, yes or no out."""

    def __init__(self) -> None:
        self._floor = RoomFloor()
        self._quiet_frames = 0

    def push(self, samples: Samples, *, resting: bool, speaking: bool) -> bool:
        """Take 10 ms, [160] float32; `resting`: nobody waits for what is heard; `speaking`: it is not known that the
        last speech has ended."""
        level = _moving_dbfs(samples)
        self._floor.follow(level)
        quiet = level <= self._floor.dbfs + ABOVE_FLOOR_DB and not speaking
        self._quiet_frames = self._quiet_frames + 1 if quiet else 0
        return resting and self._quiet_frames > AFTER_S / FRAME_S


class Dozing(Generic[Out_co]):
    """A detector that may sleep. A streaming part."""

    def __init__(self, detector: FrameDetector[Out_co], replayed_s: float, *, afresh: bool) -> None:
        """`replayed_s` of the sound before is heard when it wakes; `afresh`: where it slept for longer, without what it
        remembers from before (where its output tells times, they would be wrong)."""
        self._detector = detector
        self._afresh = afresh
        self._before: deque[Frame] = deque(maxlen=round(replayed_s / FRAME_S))
        """What it has slept through; empty while it is awake."""
        self._missed = False
        """Whether there was more of that than is kept."""

    def push(self, frame: Frame, *, dozing: bool) -> Sequence[Out_co]:
        """Hear 10 ms, or sleep through them."""
        before = self._before
        if dozing:
            self._missed |= len(before) == before.maxlen
            before.append(frame)
            return ()
        if not before:
            return self._detector.push(frame)
        if self._missed and self._afresh:
            self._detector.reset()
        sound = (*before, frame)
        self._wake()
        return [found for one in sound for found in self._detector.push(one)]

    def reset(self) -> None:
        """Forget all sound heard so far."""
        self._detector.reset()
        self._wake()

    def _wake(self) -> None:
        self._before.clear()
        self._missed = False


def _moving_dbfs(samples: Samples) -> float:
    """Level of what changes within `PIECE_SAMPLES`."""
    pieces = samples.reshape(-1, PIECE_SAMPLES)
    # NumPy's `mean` costs several times as much as a sum, for so few.
    moving: Samples = pieces - pieces.sum(axis=1, keepdims=True) / np.float32(PIECE_SAMPLES)
    return level_dbfs(moving.reshape(-1))
