"""What may interrupt Wren while it sounds: the word "stop" without a wake word, and, where that is wanted, any speech.

Short stretches of speech are cut out of what the microphone hears and recognised; only a text that is nothing but a
wish for silence counts. It runs while Wren speaks or rings, and never else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.audio.frame import FRAME_S, Frame
from appliance.voice.asr.protocol import Cancel, Cancelled, Recogniser
from appliance.voice.hearing import Heard
from appliance.voice.parts import Post, StopJudged

__all__ = ["BEFORE_S", "Interruptions", "wishes_silence"]

BEFORE_S: Final = 0.35
"""Sound before voice activity is sure: it takes 64 ms to be, and soft consonants start early."""
LONGEST_S: Final = 2.4
"""Whoever says more than this wants more than silence, or speaks to somebody else."""
FIRST_LOOK_S: Final = 0.5
LOOK_EVERY_S: Final = 0.4
"""Speech that goes on is looked at this often: behind a television the silence after "stop" may never come."""
QUIET_S: Final = 0.15
"""Silence after which a word is over."""
SPEECH_S: Final = 0.25
"""Plain speech interrupts when it has lasted so long: a cough or a door has not."""

_WORDS: Final = re.compile(r"[a-z']+")
_WISHES: Final = frozenset({"stop", "quiet", "silence", "enough", "hush", "cancel"})
_PHRASES: Final = frozenset({"shut up", "never mind", "shush"})
_BESIDES: Final = frozenset(
    {
        *(
            "please",
            "okay",
            "ok",
            "now",
            "it",
            "this",
            "that",
            "that's",
            "thats",
            "the",
            "be",
            "just",
            "hey",
            "oh",
            "no",
        ),
        *("talking", "speaking", "ringing", "alarm", "timer", "thanks", "thank", "you", "all", "right", "wren", "nabu"),
    }
)
_MOST_WORDS: Final = 6


def wishes_silence(text: str) -> bool:
    """Whether a text asks for silence and for nothing else."""
    words = _WORDS.findall(text.lower())
    if not words or len(words) > _MOST_WORDS:
        return False
    rest = " ".join(words)
    for phrase in _PHRASES:
        rest = rest.replace(phrase, "stop")
    words = rest.split()
    return not _WISHES.isdisjoint(words) and all(word in _WISHES or word in _BESIDES for word in words)


@dataclass(slots=True)
class _Burst:
    """Speech that began while Wren sounds."""

    began_s: float
    number: int
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
        self._burst: _Burst | None = None
        self._count = 0
        self._working = False
        self._cancel = Cancel()

    def push(self, frame: Frame, heard: Heard, before: Callable[[float], Sequence[Frame]]) -> None:
        """Hear 10 ms while Wren sounds; `before` gives the frames since a time, this one among them."""
        burst = self._burst
        if heard.speech.began and (burst is None or not self._working):
            self._begin(heard.now_s, before)
            return
        if burst is None:
            return
        self._recogniser.push(frame)
        if heard.now_s - burst.began_s > LONGEST_S:
            self._burst = None
            return
        if heard.quiet_s < QUIET_S:
            burst.looked_quiet = False
        due = heard.now_s - burst.looked_s >= (FIRST_LOOK_S if burst.looked_s == burst.began_s else LOOK_EVERY_S)
        over = not burst.looked_quiet and (heard.quiet_s >= QUIET_S or heard.silence_s >= QUIET_S)
        if not self._working and (over or (due and heard.speech.speaking)):
            burst.looked_s, burst.looked_quiet = heard.now_s, over
            self._look(burst)

    def speech_s(self, now_s: float) -> float:
        """For how long somebody has been speaking into Wren's own sound; 0 where nobody is."""
        return 0.0 if self._burst is None else now_s - self._burst.began_s

    @property
    def began_s(self) -> float | None:
        """From when on somebody has been speaking; None where nobody is."""
        return None if self._burst is None else self._burst.began_s - BEFORE_S

    def judged(self, message: StopJudged) -> bool:
        """Take a result: True where it is a wish for silence, said into the sound that still goes on."""
        self._working = False
        return self._burst is not None and self._burst.number == message.number and wishes_silence(message.text)

    def quiet(self) -> None:
        """Wren does not sound: nothing to interrupt."""
        if self._burst is not None:
            self._burst = None
            self._cancel.cancel()

    def _begin(self, now_s: float, before: Callable[[float], Sequence[Frame]]) -> None:
        self._count += 1
        self._burst = _Burst(now_s, self._count, now_s)
        self._cancel = Cancel()
        self._recogniser.reset()
        for earlier in before(now_s - BEFORE_S - FRAME_S / 2):
            self._recogniser.push(earlier)

    def _look(self, burst: _Burst) -> None:
        self._working = True
        recogniser, until, cancel = self._recogniser, self._recogniser.samples, self._cancel

        def work(post: Post) -> None:
            started_s = time.perf_counter()
            text = ""
            try:
                cancel.check()
                text = recogniser.hypothesise(until, None, cancel).text
            except Cancelled:
                pass
            except Exception as error:  # noqa: BLE001 - told in the message: what was said here is a courtesy
                post(StopJudged(burst.number, "", time.perf_counter() - started_s, error))
                return
            post(StopJudged(burst.number, text, time.perf_counter() - started_s))

        self._submit(work)
