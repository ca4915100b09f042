"""The last rung: the same ONNX files with NumPy alone, where ONNX Runtime cannot be loaded. Slow, and right."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.engines.base import Array, State, StateTensor
from models.engines.numpy.blas import set_blas_threads
from models.engines.numpy.program import Program, compile_graph
from models.engines.tensors import Signature
from models.errors import EngineError

__all__ = ["NumpyEngine", "NumpyStream"]

_log = logging.getLogger(__name__)


class NumpyEngine:
    """An ONNX file run by NumPy. `stream` may be called from any thread.

    Inputs are read in place; outputs are arrays of their own.
    """

    def __init__(self, path: Path, states: Sequence[StateTensor] = (), *, threads: int = 1) -> None:
        """Read and compile `path`. `threads` is for the whole process (see `set_blas_threads`).

        Raises `EngineError` if the file cannot be used or does not have those states, and `UnsupportedOperatorError`,
        which names the operator, if this backend does not know all of it.
        """
        self.name = f"{path.parent.parent.name}/{path.name}"
        self._program: Program | None = compile_graph(self.name, path)
        if not set_blas_threads(threads):
            _log.info("NumPy's BLAS is none that can be told how many threads to take; it decides itself")
        self.signature = Signature(self.name, self._program.inputs, self._program.outputs, tuple(states))
        self.inputs, self.outputs = self.signature.inputs, self.signature.outputs
        self.states = self.signature.states

    def stream(self) -> NumpyStream:
        """Open a stream. Raises `EngineError` after `close`."""
        self._opened()
        return NumpyStream(self)

    def close(self) -> None:
        """Release the weights; a run in another thread ends first. Streams raise `EngineError` from then on."""
        self._program = None

    def _opened(self) -> Program:
        program = self._program
        if program is None:
            raise EngineError(f"{self.name}: the engine is closed")
        return program


class NumpyStream:
    """One conversation's state over a shared `NumpyEngine`. Not thread-safe.

    A run that fails leaves the state as it was.
    """

    def __init__(self, engine: NumpyEngine) -> None:
        self._engine = engine
        self._state: dict[str, Array] = {}
        self._before: dict[str, Array] = {}
        self.reset()

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """See `Stream.run`; names, dtypes and shapes are those of the engine's `inputs` and `outputs`."""
        engine = self._engine
        program = engine._opened()
        engine.signature.check_inputs(inputs)
        made = program.run({**inputs, **self._state})
        self._before = self._state
        self._state = {s.input: made.pop(s.output) for s in engine.states}
        return made

    def rewind(self) -> None:
        """See `Rewindable.rewind`."""
        self._state = self._before

    def snapshot(self) -> State:
        """See `Stream.snapshot`."""
        return {name: value.copy() for name, value in self._state.items()}

    def restore(self, state: State) -> None:
        """See `Stream.restore`. Raises `EngineError` if it is not a state of this model."""
        self._engine.signature.check_state(state)
        self._state = self._before = {name: np.array(value, order="C") for name, value in state.items()}

    def reset(self) -> None:
        """See `Stream.reset`."""
        self.restore({s.input: s.initial() for s in self._engine.states})
