"""What every backend offers: an `Engine` holds weights, a `Stream` holds one conversation's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ["HELD_BYTES", "Array", "Engine", "Rewindable", "State", "StateTensor", "Stream"]

Array = npt.NDArray[Any]
"""Any NumPy array; each engine's docstring gives shapes and dtypes."""

State = Mapping[str, Array]
"""A snapshot of a stream: state tensor's *input* name -> host array; the same on every backend."""


HELD_BYTES: Final = 65_536
"""Inputs of this size and more (keys and values of the cross-attention) may be kept by reference from run to run."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One recurrent tensor: what a run writes to `output` is read from `input` by the next."""

    input: str
    """Name of the graph input that takes the state."""
    output: str
    """Name of the graph output that gives the next state."""
    shape: tuple[int, ...]
    """Shape after `reset`; a KV cache starts with a length of 0."""
    dtype: str = "float32"
    """NumPy dtype name."""

    def initial(self) -> Array:
        """A zero tensor of the reset shape."""
        return np.zeros(self.shape, dtype=self.dtype)


class Stream(Protocol):
    """One conversation's recurrent state over shared weights. Cheap to open.

    One call at a time; the calls may come from different threads.
    """

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run once. `inputs` holds the non-state inputs; returns the non-state outputs and keeps the state.

        A small input may be changed after the run; one of `HELD_BYTES` or more must stay as it is until the next
        `reset`. Raises `EngineError` when the backend refuses the inputs or fails; the state is then what it was.
        """
        ...

    def snapshot(self) -> State:
        """The state as host arrays, copied: later runs do not change it."""
        ...

    def restore(self, state: State) -> None:
        """Take over a snapshot (of this or another backend's stream of the same model)."""
        ...

    def reset(self) -> None:
        """Back to the state of a stream just opened."""
        ...


@runtime_checkable
class Rewindable(Protocol):
    """A stream that keeps what its state was before its last run."""

    def rewind(self) -> None:
        """Take the last run back. Does nothing where there is none since the last `rewind`, `restore` or `reset`, nor
        where a run that failed since has written over what was before. Costs nothing and copies nothing."""
        ...


class Engine(Protocol):
    """A model made executable for one machine. Weights are loaded once; streams share them."""

    def stream(self) -> Stream:
        """Open a stream with its own, initial state."""
        ...

    def close(self) -> None:
        """Release the weights; streams of a closed engine raise `EngineError`."""
        ...
