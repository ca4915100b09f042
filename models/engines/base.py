"""What every backend offers: an `Engine` holds weights, a `Stream` holds one conversation's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Engine", "State", "StateTensor", "Stream"]

Array = npt.NDArray[Any]
"""Any NumPy array; each engine's docstring gives shapes and dtypes."""

State = Mapping[str, Array]
"""A snapshot of a stream: state tensor's *input* name -> host array; the same on every backend."""


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
    """One conversation's recurrent state over shared weights. Not thread-safe; cheap to open."""

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run once. `inputs` holds the non-state inputs; returns the non-state outputs and keeps the state.

        Raises `EngineError` when the backend refuses the inputs or fails.
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


class Engine(Protocol):
    """A model made executable for one machine. Weights are loaded once; streams share them."""

    def stream(self) -> Stream:
        """Open a stream with its own, initial state."""
        ...

    def close(self) -> None:
        """Release the weights; streams of a closed engine raise `EngineError`."""
        ...
