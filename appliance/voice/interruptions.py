"""What may interrupt Wren while it sounds: the word "stop" without a wake word, and, where that is wanted, any speech.

The newest second of what somebody says into Wren's sound is recognised now and then; only a text that is nothing but a
wish for silence counts. It runs while Wren speaks or rings, and never else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.audio.frame import FRAME_S, Frame
from appliance.voice.asr.protocol import Cancel, Cancelled, Recogniser
from appliance.voice.hearing import Heard
from appliance.voice.loop import Phase
from appliance.voice.parts import Alarm, BargeIn, Post, StopJudged
from appliance.voice.wishes import SilenceBias, asks_for_silence, wishes_silence

__all__ = ["BargeIns", "Interruptions"]

BEFORE_S: Final = 0.35
"""Sound before voice activity is sure: it takes 64 ms to be, and soft consonants start early."""
WINDOW_S: Final = 1.3
"""Of the newest sound that is looked at: a wish for silence is short, and what is left of an echo before it is none."""
FIRST_LOOK_S: Final = 0.5
LOOK_EVERY_S: Final = 0.4
"""Speech that goes on is looked at this often: behind a television the silence after "stop" may never come."""
QUIET_S: Final = 0.15
"""Silence after which a word is over."""
SPEECH_S: Final = 0.25
"""Plain speech interrupts when it has lasted so long: a cough or a door has not."""
INTERRUPTING_S: Final = 0.5
"""An utterance that begins so soon after a reply was cut off is what cut it off."""


@dataclass(slots=True)
class _Burst:
    """Speech that began while Wren sounds."""

    began_s: float
    looked_s: float
    """When it was last handed to the recogniser, and at first when it began."""
    looked_quiet: bool = False
    """The silence that goes on was looked at already."""


class BargeIns:
    """What interrupts a session, by its setting, and what of the next utterance was said for that alone. Called on the
    session's thread."""

    def __init__(self, listener: Interruptions | None, alarm: Alarm | None, by: BargeIn) -> None:
        """`listener`: None where nothing but a wake word can interrupt; `alarm` is what rings there."""
        self._listener = None if by == "wake" else listener
        self._by_speech = by == "speech"
        self._alarm = alarm
        self._cut_off_s = float("-inf")
        self._interrupting = False
        self._began_s: float | None = None
        self.said_from_s: float | None = None
        """From when on the utterance is said, where it interrupted by being speech; None: as any other."""

    def push(self, heard: Heard, phase: Phase, since: Callable[[float], Sequence[Frame]]) -> bool:
        """10 ms were heard; `since` as for `Interruptions.push`. True where plain speech interrupts now."""
        listener = self._listener
        if listener is None:
            return False
        speaking = phase is Phase.SPEAKING
        if not speaking and not (phase is Phase.IDLE and self._rings()):
            listener.quiet()
            return False
        listener.push(heard, since)
        if not (speaking and self._by_speech and listener.speech_s(heard) >= SPEECH_S):
            return False
        self._began_s = listener.began_s
        return True

    def judged(self, message: StopJudged) -> bool:
        """Take the listener's result: True where all is to be silent; what rings is so already."""
        return self._listener is not None and self._listener.judged(message) and self._hush()

    def cut_off(self, now_s: float) -> None:
        """A reply was stopped before its end."""
        self._cut_off_s = now_s

    def begin(self, now_s: float) -> None:
        """An utterance begins."""
        self._interrupting = self._rings() or now_s - self._cut_off_s < INTERRUPTING_S
        self.said_from_s, self._began_s = self._began_s, None

    def rearm(self) -> None:
        """What was said so far counts no more."""
        self.said_from_s = None

    def was_all(self, text: str) -> bool:
        """Whether the utterance was said to interrupt, and for nothing else: no command. What rings is silent then."""
        return self._interrupting and wishes_silence(text) and self._hush()

    def _rings(self) -> bool:
        return self._alarm is not None and self._alarm.ringing

    def _hush(self) -> bool:
        if self._alarm is not None:
            self._alarm.hush()
        return True


class Interruptions:
    """A streaming part with a worker; called on the session's thread. `submit` runs work on the worker."""

    def __init__(self, recogniser: Recogniser, submit: Callable[[Callable[[Post], None]], None]) -> None:
        """The recogniser is this part's own: nobody else pushes into it."""
        self._recogniser = recogniser
        self._submit = submit
        self._bias = SilenceBias()
        self._burst: _Burst | None = None
        self._working = False
        self._cancel = Cancel()

    def push(self, heard: Heard, since: Callable[[float], Sequence[Frame]]) -> None:
        """10 ms were heard while Wren sounds; `since` gives the frames since a time, the newest among them."""
        if heard.speech.began:
            self._burst = _Burst(heard.now_s, heard.now_s)
            self._cancel = Cancel()
            return
        burst = self._burst
        if burst is None:
            return
        if heard.silence_s > WINDOW_S:
            self._burst = None
            return
        if heard.quiet_s < QUIET_S:
            burst.looked_quiet = False
        due = heard.now_s - burst.looked_s >= (FIRST_LOOK_S if burst.looked_s == burst.began_s else LOOK_EVERY_S)
        over = not burst.looked_quiet and (heard.quiet_s >= QUIET_S or heard.silence_s >= QUIET_S)
        if not self._working and (over or (due and heard.speech.speaking)):
            burst.looked_s, burst.looked_quiet = heard.now_s, over
            self._look(since(max(burst.began_s - BEFORE_S, heard.now_s - WINDOW_S) - FRAME_S / 2))

    def speech_s(self, heard: Heard) -> float:
        """For how long somebody has been speaking into Wren's own sound; 0 where nobody is."""
        return 0.0 if self._burst is None or not heard.speech.speaking else heard.now_s - self._burst.began_s

    @property
    def began_s(self) -> float | None:
        """From when on somebody has been speaking; None where nobody is."""
        return None if self._burst is None else self._burst.began_s - BEFORE_S

    def judged(self, message: StopJudged) -> bool:
        """Take a result: True where it is a wish for silence, said into the sound that still goes on."""
        self._working = False
        return self._burst is not None and message.silence

    def quiet(self) -> None:
        """Wren does not sound: nothing to interrupt."""
        if self._burst is not None:
            self._burst = None
            self._cancel.cancel()

    def _look(self, frames: Sequence[Frame]) -> None:
        self._working = True
        self._recogniser.reset()
        for frame in frames:
            self._recogniser.push(frame)
        recogniser, until, cancel = self._recogniser, self._recogniser.samples, self._cancel

        def work(post: Post) -> None:
            started_s = time.perf_counter()
            text, silence = "", False
            try:
                cancel.check()
                heard = recogniser.hypothesise(until, self._bias, cancel)
                text, silence = heard.text, asks_for_silence(heard)
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 - told in the message: what was said here is a courtesy
                post(StopJudged("", False, time.perf_counter() - started_s, error))
                return
            post(StopJudged(text, silence, time.perf_counter() - started_s))

        self._submit(work)
