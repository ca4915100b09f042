"""What a recogniser offers the loop, whatever model is behind it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.audio.frame import Frame

__all__ = ["Bias", "Cancel", "Cancelled", "Hypothesis", "Partial", "Recogniser"]


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


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was probably said."""

    text: str
    """Free text as the model writes it; empty where nothing was said."""
    logp: float
    """Log-probability of the text, summed over its tokens (natural logarithm)."""
    tokens: int = 0
    phrase: str | None = None
    """Best phrase of the bias grammar; None without a bias."""
    phrase_logp: float | None = None
    complete: bool | None = None
    """Whether the phrase is a whole sentence of the grammar; None without a bias."""
    extendable: bool | None = None
    """Whether the phrase could go on; None without a bias."""
    cut: str | None = None
    """Why decoding was stopped early: repetition | length; None where the model ended by itself."""


class Bias(Protocol):
    """What this home's people are likely to say; built from a `HomeView`."""

    @property
    def version(self) -> int:
        """Version of the view that it was built from."""
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
