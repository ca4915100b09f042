"""A room on the simulated clock: what a session says comes back to its microphone, and somebody speaks into it.

Deterministic, and independent of how busy the machine is: compute is measured as this thread's own time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from appliance import events
from appliance.app import Wren
from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.audio.frontend.cleaning import Cleaner, EarFrames
from appliance.audio.frontend.reference import LEAD_S
from appliance.audio.frontend.webrtc import open_processors
from appliance.audio.resample import MonoResampler
from appliance.voice.runner import SimulatedPlayer, SimulatedRunner
from tests.audio.frontend.rooms import hum, room

__all__ = ["SimulatedRoom", "Told"]

LONGEST_S = 120.0


@dataclass
class Told:
    """What the session told, with the times."""

    events: list[events.Event] = field(default_factory=list)

    def of(self, kind: type[events.Event]) -> list[events.Event]:
        """Those of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


class _Loudspeaker(SimulatedPlayer):
    """Lays what it plays on a time line at 16 kHz; a stop silences what lies in the future."""

    def __init__(self, runner: SimulatedRunner) -> None:
        super().__init__(runner)
        self.line: Samples = np.zeros(round(LONGEST_S * RATE_HZ), dtype=np.float32)
        self._resampler = MonoResampler(RATE_HZ)
        self._at = 0

    def begin(self, generation: int, rate_hz: int) -> None:
        super().begin(generation, rate_hz)
        self._resampler = MonoResampler(rate_hz)
        self._at = round(self._runner.now() * RATE_HZ)

    def write(self, samples: Samples) -> None:
        super().write(samples)
        sound = self._resampler.push(samples)
        self.line[self._at : self._at + sound.size] = sound
        self._at += sound.size

    def stop(self) -> None:
        super().stop()
        self.line[round(self._runner.now() * RATE_HZ) :] = 0.0


class SimulatedRoom:
    """A session, its loudspeaker, and the way from there to its microphone."""

    def __init__(
        self,
        wren: Wren,
        *,
        delay_s: float = 0.04,
        level_db: float = -6.0,
        room_dbfs: float = -62.0,
        cancel: bool = True,
    ) -> None:
        self.told = Told()
        self._runner = SimulatedRunner(time.thread_time)
        self._player = _Loudspeaker(self._runner)
        self._cleaner = Cleaner(open_processors()) if cancel else None
        self.session = wren.session("room", self._runner, self._player, self.told.events.append, ears=self)
        self._runner.attach(self.session)
        self._delay = round(delay_s * RATE_HZ)
        self._response = (room() * np.float32(10 ** (level_db / 20)))[::-1].copy()
        self._noise = hum(round(LONGEST_S * RATE_HZ), room_dbfs)
        self._said: Samples = np.zeros(round(LONGEST_S * RATE_HZ), dtype=np.float32)
        self._number = 0

    @property
    def now_s(self) -> float:
        """Simulated time."""
        return self._number * FRAME_S

    def announce(self, text: str) -> None:
        """Begin to say something."""
        self._runner.call(lambda: self.session.announce(text))

    def say(self, sound: Samples, in_s: float = 0.0) -> float:
        """Somebody says [n] float32 at 16 kHz; returns when he has."""
        at = self._number * FRAME_SAMPLES + round(in_s * RATE_HZ)
        self._said[at : at + sound.size] += sound
        return (at + sound.size) / RATE_HZ

    def run(self, seconds: float) -> None:
        """Let time go by."""
        for _ in range(round(seconds / FRAME_S)):
            at = self._number * FRAME_SAMPLES
            heard = self._noise[at : at + FRAME_SAMPLES] + self._said[at : at + FRAME_SAMPLES] + self._echo(at)
            frame = Frame(heard.astype(np.float32), self._number * FRAME_S, self._number)
            self._number += 1
            self._runner.push(frame)

    def stop(self) -> None:
        """End what goes on, and let the room come to rest."""
        self._runner.call(self.session.stop)
        self.run(0.6)

    def push(self, frame: Frame) -> EarFrames:
        """The session's ears."""
        if self._cleaner is None:
            return EarFrames.plain(frame)
        at = frame.seq * FRAME_SAMPLES + round(LEAD_S * RATE_HZ)
        reference = self._player.line[at : at + FRAME_SAMPLES].copy()
        return self._cleaner.push(frame, reference if reference.any() else None)

    def _echo(self, at: int) -> Samples:
        back = self._response.size - 1
        start = at - self._delay - back
        played = self._player.line[max(start, 0) : max(at - self._delay + FRAME_SAMPLES, 0)]
        if not played.any():
            return np.zeros(FRAME_SAMPLES, dtype=np.float32)
        played = np.concatenate((np.zeros(back + FRAME_SAMPLES - played.size, dtype=np.float32), played))
        return np.correlate(played, self._response, "valid").astype(np.float32)
