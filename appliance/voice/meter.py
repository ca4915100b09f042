"""What a session's stages took, gathered for whoever watches the strain: next to nothing a frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from appliance.audio.frame import FRAME_S, Frame
from appliance.voice.wake import WakeHit

__all__ = ["FrameDetector", "Metered", "MeteredWake", "Report", "SessionMeter", "WakeListener"]

REPORT_FRAMES: Final = 50
"""What works on every frame reports twice a second."""

Report = Callable[[str, float, float, float], None]
"""Stage, seconds of compute, seconds of sound that it was for, seconds that it came too late: any thread."""

Out_co = TypeVar("Out_co", covariant=True)


class FrameDetector(Protocol[Out_co]):
    """A streaming part that looks at every frame."""

    def push(self, frame: Frame) -> Sequence[Out_co]:
        """Hear 10 ms."""
        ...

    def reset(self) -> None:
        """Forget all sound heard so far."""
        ...


class WakeListener(FrameDetector[WakeHit], Protocol):
    """What listens for wake words."""

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the words listened for."""
        ...


class SessionMeter:
    """One session's. Its runner sets the ages, its stages read them, each on the thread that they share."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.frame_age_s = 0.0
        """How late the frame is that is being heard."""
        self.work_age_s = 0.0
        """How long the work has waited that is being done."""
        self.heard_s = 0.0
        """Sound that the newest recognition was about."""
        self.announced = ""
        """The newest text that somebody wanted said: nothing else may be said in its place."""


class Metered(FrameDetector[Out_co]):
    """A detector, and what it takes."""

    def __init__(self, stage: str, detector: FrameDetector[Out_co], meter: SessionMeter) -> None:
        self._stage, self._detector, self._meter = stage, detector, meter
        self._frames = 0
        self._cost_s = self._age_s = 0.0

    def push(self, frame: Frame) -> Sequence[Out_co]:
        """Hear 10 ms."""
        started_s = time.perf_counter()
        found = self._detector.push(frame)
        self._cost_s += time.perf_counter() - started_s
        self._age_s = max(self._age_s, self._meter.frame_age_s)
        self._frames += 1
        if self._frames == REPORT_FRAMES:
            self._meter.report(self._stage, self._cost_s, REPORT_FRAMES * FRAME_S, self._age_s)
            self._frames, self._cost_s, self._age_s = 0, 0.0, 0.0
        return found

    def reset(self) -> None:
        """Forget all sound heard so far."""
        self._detector.reset()


class MeteredWake(Metered[WakeHit]):
    """A wake word detector, and what it takes."""

    def __init__(self, detector: WakeListener, meter: SessionMeter) -> None:
        super().__init__("wake", detector, meter)
        self.words = detector.words
