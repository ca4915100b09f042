"""What a recogniser offers the loop, whatever model is behind it."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from appliance.audio.frame import Frame

__all__ = ["Bias", "BiasState", "Cancel", "Cancelled", "Extension", "Hypothesis", "Partial", "Reach", "Recogniser"]


class Cancelled(Exception):
    """The work was cancelled because its result is not wanted any more."""


class Cancel:
    """A flag that one thread raises and another looks at between steps of its work."""

    def __init__(self) -> None:
        self._flag = threading.Event()

    def cancel(self) -> None:
        """Ask the work to stop at its next look."""
        self._flag.set()

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked."""
        return self._flag.is_set()

    def check(self) -> None:
        """Raise `Cancelled` if somebody asked."""
        if self._flag.is_set():
            raise Cancelled


@dataclass(frozen=True, slots=True)
class Partial:
    """Text of a recogniser that writes along while it hears."""

    text: str
    until_sample: int


class Extension(IntEnum):
    """Whether more may follow a sentence, in this grammar."""

    NONE = 0
    """Nothing may."""
    RARE = 1
    """Only what people add now and then, and seldom after a pause: "turn on the lamp" "at fifty percent"."""
    LIKELY = 2
    """What people do pause before: the sentence is unfinished, a place is still to come ("turn on the light" "in the
    kitchen"), a number or name goes on ("twenty" "five"), or it ends in free words ("play the beatles")."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a text gets in the grammar."""

    inside: bool
    """Whether every word of it can be read: it is the beginning of a phrase, or a whole one."""
    complete: bool
    """Whether it is a whole phrase."""
    extension: Extension
    """What may follow; NONE where it is not inside."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was probably said."""

    text: str
    """Free text as the model writes it; empty where nothing was said."""
    logp: float
    """Log-probability of the text, summed over its tokens (natural logarithm)."""
    tokens: int = 0
    phrase: str | None = None
    """Best whole phrase of the bias grammar, as the model writes it; equal to `text` where that is a phrase itself.
    None without a bias, and where no phrase comes near what was heard."""
    phrase_logp: float | None = None
    """Log-probability of the phrase; None where there is none."""
    reach: Reach | None = None
    """How far the free text gets in the grammar; None without a bias."""
    phrase_reach: Reach | None = None
    """Likewise the phrase; None where there is none."""
    cut: str | None = None
    """Why decoding was stopped early: repetition | length; None where the model ended by itself."""
    light: bool = False
    """Whether a lighter recogniser than the planned one heard it, for this machine was too busy."""

    @property
    def complete(self) -> bool | None:
        """Whether what was heard is, or comes near, a whole phrase; None without a bias."""
        return None if self.reach is None else self.reach.complete or self.phrase is not None

    @property
    def extendable(self) -> bool | None:
        """Whether something people pause before may follow; None without a bias."""
        reach = self.reach if self.phrase_reach is None else self.phrase_reach
        return None if reach is None else reach.extension is Extension.LIKELY


BiasState = Hashable
"""A place in the grammar; opaque, valid as long as it is held."""


class Bias(Protocol):
    """What this home's people are likely to say; built from a `HomeView`. Shared by all sessions, from any thread.

    It speaks of letters, not of a model's tokens, so that every way to cut a phrase into tokens is allowed; `Letters`
    (bias_tokens.py) says which letters a token stands for. An attention decoder asks, for the likeliest tokens of each
    beam, where they lead, and drops those that lead nowhere. A transducer or CTC search steps along with every label
    that a path emits and drops (or handicaps) the paths that fall out; it may call `step` after each one, at any time.
    """

    @property
    def version(self) -> int:
        """Version of the view that it was built from."""
        ...

    @property
    def start(self) -> BiasState:
        """Before the first letter."""
        ...

    def step(self, state: BiasState, letters: str) -> BiasState | None:
        """Where more letters lead, lower case and plain as `plain_letters` gives them; None: nowhere."""
        ...

    def complete(self, state: BiasState) -> bool:
        """Whether a whole phrase may end here."""
        ...

    def extension(self, state: BiasState) -> Extension:
        """What may follow here, after the word that was just read."""
        ...

    def look(self, text: str) -> Reach:
        """How far a whole text gets; cheap (microseconds a letter)."""
        ...


class Recogniser(Protocol):
    """One session's hearing. `push`, `flush`, `reset` belong to the session's thread; `hypothesise` may run on
    another while frames go on being pushed."""

    def push(self, frame: Frame) -> Sequence[Partial]:
        """Take 10 ms; a streaming model may give text."""
        ...

    @property
    def samples(self) -> int:
        """Samples heard since `reset`: the `until_sample` of "all of it"."""
        ...

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        """Say what was heard up to a sample. Looks, and consumes nothing. Raises `Cancelled`, `SpeechError`."""
        ...

    def flush(self) -> Hypothesis:
        """Say what was heard in all; no sample is left out."""
        ...

    def reset(self) -> None:
        """A new utterance."""
        ...
