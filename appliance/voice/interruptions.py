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
from appliance.voice.parts import Post, StopJudged
from appliance.voice.wishes import SilenceBias, asks_for_silence

__all__ = ["Interruptions"]

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


@dataclass(slots=True)
class _Burst:
    """Speech that began while Wren sounds."""

    began_s: float
    looked_s: float
    """When it was last handed to the recogniser, and at first when it began."""
    looked_quiet: bool = False
    """The silence that goes on was looked at already."""


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
