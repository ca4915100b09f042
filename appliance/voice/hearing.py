"""What a session hears: frames in, and after each one what is known of speech and silence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from appliance.audio.frame import Frame, level_dbfs
from appliance.voice.doze import Doze, Dozing
from appliance.voice.energy import EnergyEdge
from appliance.voice.meter import FrameDetector
from appliance.voice.vad import SpeechGate, SpeechState, VadWindow

__all__ = ["Heard", "Hearing"]

REPLAYED_S: Final = 0.4
"""Of the sound before that voice activity hears when it is woken: it knows a room after less."""

_NOTHING = SpeechState(False, False, None, None, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Heard:
    """After one frame."""

    now_s: float
    """Capture time just after it."""
    speech: SpeechState
    """Of the newest window; `began` only in the frame that completed it."""
    quiet_s: float
    """As `EnergyEdge.quiet_s`."""
    faint_s: float
    """As `EnergyEdge.faint_s`."""

    @property
    def silence_s(self) -> float:
        """Since the last speech sample, by voice activity; 0 while it hears speech."""
        ended_s = self.speech.ended_s
        return 0.0 if self.speech.speaking or ended_s is None else self.now_s - ended_s


class Hearing:
    """Voice activity every 32 ms and energy every 10 ms, put together. A streaming part.

    While its owner rests and the room is quiet, voice activity dozes: it could say only that nobody speaks.
    """

    def __init__(self, vad: FrameDetector[VadWindow]) -> None:
        self._vad = Dozing(vad, REPLAYED_S, afresh=True)
        self._doze = Doze()
        self._gate = SpeechGate()
        self._edge = EnergyEdge()
        self._speech = _NOTHING
        self._probability = 0.0
        self.dozing = False
        """The room is quiet and nobody waits: of the newest frame nothing but the level was looked at."""

    def push(self, frame: Frame, cleaned: Frame | None = None, *, resting: bool = False) -> Heard:
        """Hear 10 ms; `cleaned` is the same sound for voice activity alone (levels are judged as they are), `resting`
        says that nobody waits for what voice activity says."""
        began = False
        level, speaking = level_dbfs(frame.samples), self._speech.speaking
        self.dozing = self._doze.push(frame.samples, resting=resting, speaking=speaking)
        if self.dozing:
            self._gate.follow(frame.end_s, level)
        for window in self._vad.push(frame if cleaned is None else cleaned, dozing=self.dozing):
            self._speech = self._gate.push(window)
            self._probability = window.probability
            # One that wakes gives several at once: speech may have begun in any of them.
            began |= self._speech.began
        self._edge.push(level, frame.end_s, self._probability, speaking=self._speech.speaking)
        speech = self._speech
        if speech.began is not began:
            speech = replace(speech, began=began)
        return Heard(frame.end_s, speech, self._edge.quiet_s, self._edge.faint_s)

    def goes_on(self, since_s: float, *, near: bool = False) -> bool:
        """Whether speech was heard after a moment; see `EnergyEdge.goes_on`."""
        return self._edge.goes_on(since_s, near=near)

    @property
    def loud_s(self) -> float | None:
        """When sound last stood out of the room; None before any speech."""
        return self._edge.loud_s

    def reset(self) -> None:
        """A new utterance; the room is the same, and the detector hears on."""
        self._gate.reset()
        self._edge.reset()
        self._speech = _NOTHING

    def forget(self) -> None:
        """Sound was lost: what the detector remembers is about sound that was not followed by this."""
        self._vad.reset()
        self._probability = 0.0
