"""The last seconds of sound, kept so that what was said before the wake word fired is not lost."""

from __future__ import annotations

from collections import deque
from itertools import islice

from appliance.audio.frame import FRAME_S, Frame

__all__ = ["PreRoll"]


class PreRoll:
    """A bounded queue of the newest frames; when full, the oldest is dropped (its purpose, so not counted)."""

    def __init__(self, length_s: float) -> None:
        self._frames: deque[Frame] = deque(maxlen=max(1, round(length_s / FRAME_S)))

    def push(self, frame: Frame) -> None:
        """Keep a frame."""
        self._frames.append(frame)

    def last(self, length_s: float) -> list[Frame]:
        """The newest `length_s` seconds that are there, oldest first."""
        count = min(len(self._frames), round(length_s / FRAME_S))
        return list(islice(self._frames, len(self._frames) - count, None))

    def since(self, time_s: float) -> list[Frame]:
        """Those of the kept frames that end after a time, oldest first."""
        return [frame for frame in self._frames if frame.end_s > time_s]

    def clear(self) -> None:
        """Forget everything: sound from before must not reach the next utterance."""
        self._frames.clear()
