"""Voice activity: Silero's probability per 32 ms window, and the gate with hysteresis that makes speech of it.

Silero VAD (MIT): 512 new samples per run behind the last 64 of the run before, one recurrent state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Frame, Samples, level_dbfs
from appliance.voice.room import RoomFloor
from models.engines.base import Array, Engine

__all__ = [
    "WINDOW_S",
    "GateSettings",
    "SpeechGate",
    "SpeechState",
    "VadTensors",
    "VadWindow",
    "VoiceActivity",
]

WINDOW_SAMPLES: Final = 512
CONTEXT_SAMPLES: Final = 64
WINDOW_S: Final = WINDOW_SAMPLES / RATE_HZ

_LOOK_BACK_FRAMES: Final = 30  # 300 ms: longer than Silero hangs on
_ABOVE_FLOOR_DB: Final = 8.0
_BELOW_PEAK_DB: Final = 32.0
_NO_PEAK_DBFS: Final = -120.0


@dataclass(frozen=True, slots=True)
class VadWindow:
    """Judgement of one window."""

    probability: float
    start_s: float
    """Capture time of the window's first sample."""
    levels: tuple[tuple[float, float], ...] = ()
    """(capture time just after it, level in dBFS) of each 10 ms frame that came in with the window."""

    @property
    def end_s(self) -> float:
        """Capture time just after the window's last sample."""
        return self.start_s + WINDOW_S


@dataclass(frozen=True, slots=True)
class VadTensors:
    """Names of the graph's tensors other than the state's."""

    audio: str = "input"
    probability: str = "output"


class VoiceActivity:
    """A streaming part: frames in, one `VadWindow` per 32 ms out."""

    def __init__(self, engine: Engine, tensors: VadTensors = VadTensors()) -> None:
        self._stream = engine.stream()
        self._tensors = tensors
        self._buffer: Samples = np.zeros((1, CONTEXT_SAMPLES + WINDOW_SAMPLES), dtype=np.float32)
        self._filled = 0
        self._start_s = 0.0
        self._levels: list[tuple[float, float]] = []

    def push(self, frame: Frame) -> Sequence[VadWindow]:
        """Hear 10 ms; gives at most one window."""
        if self._filled == 0:
            self._start_s = frame.time_s
        self._levels.append((frame.end_s, level_dbfs(frame.samples)))
        at, room = CONTEXT_SAMPLES + self._filled, WINDOW_SAMPLES - self._filled
        if room > FRAME_SAMPLES:
            self._buffer[0, at : at + FRAME_SAMPLES] = frame.samples
            self._filled += FRAME_SAMPLES
            return ()
        self._buffer[0, at:] = frame.samples[:room]
        window = self._judge()
        rest = FRAME_SAMPLES - room
        self._buffer[0, :CONTEXT_SAMPLES] = self._buffer[0, -CONTEXT_SAMPLES:]
        self._buffer[0, CONTEXT_SAMPLES : CONTEXT_SAMPLES + rest] = frame.samples[room:]
        self._filled = rest
        self._start_s = frame.time_s + room / RATE_HZ
        return (window,)

    def flush(self) -> Sequence[VadWindow]:
        """Judge the unfinished window, filled up with silence."""
        if not self._filled:
            return ()
        self._buffer[0, CONTEXT_SAMPLES + self._filled :] = 0.0
        self._filled = 0
        return (self._judge(),)

    def reset(self) -> None:
        """Forget all sound heard so far."""
        self._stream.reset()
        self._buffer[:] = 0.0
        self._filled = 0
        self._levels.clear()

    def _judge(self) -> VadWindow:
        outputs: Mapping[str, Array] = self._stream.run({self._tensors.audio: self._buffer})
        probability = float(outputs[self._tensors.probability].reshape(-1)[0])
        levels = tuple(self._levels)
        self._levels.clear()
        return VadWindow(probability, self._start_s, levels)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """When probability becomes speech, and when it stops being speech."""

    on: float = 0.5
    off: float = 0.35
    """Lower than `on`: between the two, what was goes on."""
    start_windows: int = 2
    """Windows, the first over `on` and the others over `off`, before speech counts as begun: a click is one long."""


@dataclass(frozen=True, slots=True)
class SpeechState:
    """What the gate says after a window."""

    speaking: bool
    began: bool
    """Speech began with this window (first time, or again after a pause)."""
    started_s: float | None
    """First speech sample since `reset`; None while there was none."""
    ended_s: float | None
    """Just after the last speech sample so far."""
    silence_s: float
    """How long it has been silent since `ended_s`; 0 while speaking or before any speech."""
    speech_s: float
    """Speech heard since `reset`, pauses left out."""


class SpeechGate:
    """Hysteresis over windows. A streaming part: windows in, state out.

    Silero hangs on for some 150 ms after speech, so the last speech sample is taken from the energy: the last
    10 ms that stand out of the room's floor and are not far below the utterance's peak.
    """

    def __init__(self, settings: GateSettings = GateSettings()) -> None:
        self._settings = settings
        self._levels: deque[tuple[float, float]] = deque(maxlen=_LOOK_BACK_FRAMES)
        self._floor = RoomFloor()
        self._speaking = False
        self._run = 0
        self._candidate_s = 0.0
        self._started_s: float | None = None
        self._ended_s: float | None = None
        self._speech_s = 0.0
        self._peak_dbfs = _NO_PEAK_DBFS

    def push(self, window: VadWindow) -> SpeechState:
        """Take a window, tell what it means."""
        settings = self._settings
        self._follow(window)
        began = False
        if self._speaking:
            if window.probability < settings.off:
                self._speaking = False
                self._run = 0
        else:
            # One window must be sure; those that follow it need only not deny it ("pause" is two windows long).
            threshold = settings.off if self._run else settings.on
            self._run = self._run + 1 if window.probability >= threshold else 0
            if self._run == 1:
                self._candidate_s = window.start_s
            if self._run >= settings.start_windows:
                self._speaking = began = True
                self._started_s = self._candidate_s if self._started_s is None else self._started_s
        if self._speaking:
            self._speech_s += WINDOW_S * (settings.start_windows if began else 1)
            if began or window.probability >= settings.on:
                self._ended_s = self._last_loud_s(window)
        silence_s = 0.0 if self._speaking or self._ended_s is None else window.end_s - self._ended_s
        return SpeechState(self._speaking, began, self._started_s, self._ended_s, silence_s, self._speech_s)

    def follow(self, end_s: float, level_dbfs: float) -> None:
        """Take the level of a frame that nobody judged: the room's floor is known all the same."""
        self._levels.append((end_s, level_dbfs))
        self._floor.follow(level_dbfs)

    def reset(self) -> None:
        """A new utterance: no speech so far. The room's floor is kept: the room has not changed."""
        self._speaking = False
        self._run = 0
        self._candidate_s = 0.0
        self._started_s = None
        self._ended_s = None
        self._speech_s = 0.0
        self._peak_dbfs = _NO_PEAK_DBFS

    def _follow(self, window: VadWindow) -> None:
        for end_s, level in window.levels:
            self.follow(end_s, level)
            if window.probability >= self._settings.on:
                self._peak_dbfs = max(self._peak_dbfs, level)

    def _last_loud_s(self, window: VadWindow) -> float:
        threshold = max(self._floor.dbfs + _ABOVE_FLOOR_DB, self._peak_dbfs - _BELOW_PEAK_DB)
        for end_s, level in reversed(self._levels):
            if level >= threshold:
                return end_s
        return window.end_s
