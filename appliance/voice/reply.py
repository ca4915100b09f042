"""A reply's sound: its start may be made ahead, before it is decided to say it; the rest is made while it plays.

Pieces are made one by one, each as work of its own, so that what is wanted more (a recognition, the command itself)
never waits behind a whole reply, and a reply that is not wanted any more costs one piece at most.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from appliance.audio.frame import Samples
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.parts import ChunkMade, Player, Post, SpeechMade, Synthesiser, TakeFailed

__all__ = ["ReplyVoice"]

_AHEAD_S: Final = 0.1
"""Sound made before it is wanted: the first piece is longer than this, and gives time for the second."""


@dataclass(slots=True)
class _Take:
    """One synthesis of one text."""

    number: int
    generation: int
    text: str
    pieces: Iterator[Samples]
    cancel: Cancel = field(default_factory=Cancel)
    ready: deque[Samples] = field(default_factory=deque)
    """Pieces that nobody has asked for yet: `_AHEAD_S` and the piece that passed it, at most."""
    made_s: float = 0.0
    """Seconds of sound made so far."""
    wanted: bool = False
    """It is to be played."""
    in_flight: bool = False
    """A piece is being made."""
    complete: bool = False


class ReplyVoice:
    """One session's replies. Called on the session's thread; pieces are made on its worker."""

    def __init__(
        self,
        synthesiser: Synthesiser,
        player: Player,
        submit: Callable[[Callable[[Post], None]], None],
        played: Callable[[int], None],
        first_audio: Callable[[], None],
    ) -> None:
        """`submit` runs work on the worker; `played` is told the generation of a reply without any sound;
        `first_audio` is called when the player gets the first piece."""
        self._synthesiser = synthesiser
        self._player = player
        self._submit = submit
        self._played = played
        self._first_audio = first_audio
        self._take: _Take | None = None
        self._count = 0
        self._playing = False

    def prepare(self, generation: int, text: str) -> bool:
        """Have the start of a text ready; False where it is (or is being made) already."""
        take = self._take
        if take is not None and take.text == text and not take.wanted:
            # What an earlier guess prepared: sound has no generation.
            take.generation = generation
            return False
        self._begin(generation, text)
        return True

    def play(self, generation: int, text: str) -> bool:
        """Play a text; True where the start of it was ready, or on its way."""
        take = self._take
        ahead = take is not None and take.text == text and not take.wanted
        if take is None or not ahead:
            take = self._begin(generation, text)
        take.generation, take.wanted = generation, True
        while take.ready:
            self._write(take.ready.popleft())
        self._go_on(take)
        return ahead

    def chunk_made(self, message: ChunkMade) -> bool:
        """A piece is done; True where it was made ahead."""
        take = self._current(message.take)
        if take is None:
            return False
        take.in_flight = False
        take.made_s += message.samples.size / self._synthesiser.rate_hz
        ahead = not take.wanted
        if ahead:
            take.ready.append(message.samples)
        else:
            self._write(message.samples)
        self._go_on(take)
        return ahead

    def speech_made(self, message: SpeechMade) -> None:
        """There are no more pieces."""
        take = self._current(message.take)
        if take is not None:
            take.in_flight, take.complete = False, True
            self._go_on(take)

    def failed(self, message: TakeFailed) -> int | None:
        """A piece could not be made. The generation that fails of it; None where nobody had asked for it yet (it is
        tried again when somebody does)."""
        take = self._current(message.take)
        if take is None:
            return None
        self._take = None
        return take.generation if take.wanted else None

    def drop(self) -> bool:
        """What plays is not wanted any more: True where something was playing, which stops at once. Sound that was
        made ahead is kept until the utterance ends (the next guess may be answered alike); its making stops."""
        take = self._take
        if take is not None and (take.wanted or take.in_flight):
            take.cancel.cancel()
            self._take = None
        playing, self._playing = self._playing, False
        if playing:
            self._player.stop()
        return playing

    def close(self) -> bool:
        """The utterance is over; True where a reply had been playing."""
        if self._take is not None:
            self._take.cancel.cancel()
            self._take = None
        playing, self._playing = self._playing, False
        return playing

    def _begin(self, generation: int, text: str) -> _Take:
        if self._take is not None:
            self._take.cancel.cancel()
        self._count += 1
        cancel = Cancel()
        self._take = _Take(self._count, generation, text, self._synthesiser.stream(text, cancel), cancel)
        self._go_on(self._take)
        return self._take

    def _current(self, number: int) -> _Take | None:
        take = self._take
        return take if take is not None and take.number == number else None

    def _go_on(self, take: _Take) -> None:
        if not take.complete:
            if not take.in_flight and (take.wanted or take.made_s < _AHEAD_S):
                take.in_flight = True
                self._submit(lambda post: _make(take, post))
        elif take.wanted and self._playing:
            self._player.finish()
        elif take.wanted:
            self._played(take.generation)

    def _write(self, samples: Samples) -> None:
        if self._playing:
            self._player.write(samples)
            return
        assert self._take is not None
        self._playing = True
        self._player.begin(self._take.generation, self._synthesiser.rate_hz)
        self._player.write(samples)
        self._first_audio()


def _make(take: _Take, post: Post) -> None:
    """On the worker: the next piece. One piece of one take is made at a time, so the iterator has one user."""
    started_s = time.perf_counter()
    try:
        take.cancel.check()
        samples = next(take.pieces, None)
    except Cancelled:
        return
    except Exception as error:  # noqa: BLE001 - a stage's fault becomes a message, whatever it is
        post(TakeFailed(take.number, error))
        return
    if samples is None:
        post(SpeechMade(take.number))
    else:
        post(ChunkMade(take.number, samples, time.perf_counter() - started_s))
