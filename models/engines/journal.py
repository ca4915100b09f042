"""What a stream was given since its state was last known: enough to make the state again on another engine."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from models.engines.base import HELD_BYTES, Array, State
from models.errors import StreamLostError

__all__ = ["Journal"]

LIMIT: Final = 256
"""Runs: eight seconds of voice activity, a longer answer than a recogniser ever gives."""

_Kept = Array | weakref.ReferenceType[Array]


class Journal:
    """A state and the inputs of the runs after it.

    Small inputs are copied. Large ones are not even held: whoever runs a stream keeps them as long as it needs them
    (the keys and values of an utterance), and afterwards nobody shall.
    """

    def __init__(self) -> None:
        self._base: State | None = None
        self._runs: list[dict[str, _Kept]] = []

    @property
    def base(self) -> State | None:
        """The state that the runs began with; None for that of a stream just opened."""
        return self._base

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to lose."""
        return self._base is None and not self._runs

    @property
    def is_full(self) -> bool:
        """Whether it is time for a new base."""
        return len(self._runs) >= LIMIT

    def restart(self, base: State | None) -> None:
        """From here on."""
        self._base = base
        self._runs.clear()

    def add(self, inputs: Mapping[str, Array]) -> None:
        """A run that went well."""
        self._runs.append(
            {
                name: weakref.ref(value) if value.nbytes >= HELD_BYTES else np.array(value, order="C")
                for name, value in inputs.items()
            }
        )

    def runs(self) -> Iterator[dict[str, Array]]:
        """The inputs of each run, in order. Raises `StreamLostError` where a large one is gone."""
        for run in self._runs:
            made: dict[str, Array] = {}
            for name, kept in run.items():
                value = kept() if isinstance(kept, weakref.ReferenceType) else kept
                if value is None:
                    raise StreamLostError(f"the stream cannot be made again: its input {name} is gone; begin it anew")
                made[name] = value
            yield made
