"""Detectors that sleep while a quiet room has nothing for them: most of what an idle Wren would cost.

What was just before a sound is kept, and heard after: a detector that is woken knows the room as if it had listened
all the time, and no onset is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic

from appliance.audio.frame import FRAME_S, Frame
from appliance.voice.meter import FrameDetector, Out_co

__all__ = ["Doze", "Dozing"]

AFTER_S: Final = 1.0
"""Quiet for so long, nobody needs to listen closely."""
ABOVE_FLOOR_DB: Final = 6.0
"""Sound this far above the room's floor is listened to: a wake word that a detector can hear stands out more."""


class Doze:
    """Whether it is quiet enough to sleep. Pure: levels in, yes or no out."""

    def __init__(self) -> None:
        self._quiet_frames = 0

    def push(self, level_dbfs: float, floor_dbfs: float, *, resting: bool, speaking: bool) -> bool:
        """Take the level of 10 ms and of the room; `resting`: nobody waits for what is heard; `speaking`: it is not
        known that the last speech has ended."""
        quiet = level_dbfs <= floor_dbfs + ABOVE_FLOOR_DB and not speaking
        self._quiet_frames = self._quiet_frames + 1 if quiet else 0
        return resting and self._quiet_frames > AFTER_S / FRAME_S


class Dozing(Generic[Out_co]):
    """A detector that may sleep. A streaming part."""

    def __init__(self, detector: FrameDetector[Out_co], replayed_s: float, *, afresh: bool) -> None:
        """`replayed_s` of the sound before is heard when it wakes; `afresh`: without what it remembers from before it
        slept (where its output tells times, they would be wrong)."""
        self._detector = detector
        self._afresh = afresh
        self._before: deque[Frame] = deque(maxlen=round(replayed_s / FRAME_S))
        self._asleep = False

    def push(self, frame: Frame, *, dozing: bool) -> Sequence[Out_co]:
        """Hear 10 ms, or sleep through them."""
        if dozing:
            self._before.append(frame)
            self._asleep = True
            return ()
        if not self._asleep:
            return self._detector.push(frame)
        self._asleep = False
        if self._afresh:
            self._detector.reset()
        sound = (*self._before, frame)
        self._before.clear()
        return [found for one in sound for found in self._detector.push(one)]

    def reset(self) -> None:
        """Forget all sound heard so far."""
        self._detector.reset()
        self._before.clear()
