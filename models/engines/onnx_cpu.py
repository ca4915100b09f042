"""ONNX Runtime on the CPU: the backend that runs everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from models.engines.base import Array, State, StateTensor
from models.errors import EngineError

__all__ = ["OrtCpuEngine", "OrtCpuStream"]

_DTYPES = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}
_ERRORS_ONLY = 3


class OrtCpuEngine:
    """An ONNX file on onnxruntime's CPU provider.

    `states` are the recurrent tensors; every other input is given to each run, every other output comes back.
    Nothing is copied on the way in or out: an input array is read in place when it is C-contiguous and of the
    right dtype (so the cross-attention of an utterance costs nothing to pass again and again), and outputs are
    views of the runtime's own memory, alive as long as they are referenced. Treat both as read-only.
    """

    def __init__(self, path: Path, states: Sequence[StateTensor] = (), *, threads: int = 1) -> None:
        """Load the model. Raises `EngineError` if the file cannot be used or does not have those states."""
        self.name = path.stem
        try:
            self._session: Any = ort.InferenceSession(str(path), _options(threads), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise EngineError(f"{self.name}: onnxruntime cannot load {path}: {_first_line(error)}") from error
        inputs = {i.name: i for i in self._session.get_inputs()}
        outputs = [o.name for o in self._session.get_outputs()]
        for state in states:
            if state.input not in inputs or state.output not in outputs:
                raise EngineError(f"{self.name}: no recurrent tensor {state.input!r} -> {state.output!r} in {path}")
        self.states = tuple(states)
        recurrent = {s.input for s in states}
        self.inputs: Mapping[str, tuple[np.dtype[Any], tuple[int | str | None, ...]]] = {
            name: (_DTYPES[i.type], tuple(i.shape)) for name, i in inputs.items() if name not in recurrent
        }
        state_outputs = {s.output for s in states}
        self.outputs = tuple(o for o in outputs if o not in state_outputs)

    def stream(self) -> OrtCpuStream:
        """Open a stream."""
        return OrtCpuStream(self, self._live())

    def close(self) -> None:
        """Release the weights."""
        self._session = None

    def _live(self) -> Any:
        if self._session is None:
            raise EngineError(f"{self.name}: the engine is closed")
        return self._session


class OrtCpuStream:
    """One conversation's state over a shared `OrtCpuEngine`."""

    def __init__(self, engine: OrtCpuEngine, session: Any) -> None:
        self._engine = engine
        self._session = session
        self._outputs = [*engine.outputs, *(s.output for s in engine.states)]
        self._state: dict[str, Any] = {}
        self.reset()

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """See `Stream.run`."""
        engine = self._engine
        engine._live()
        if inputs.keys() != engine.inputs.keys():
            raise EngineError(f"{engine.name}: wants inputs {sorted(engine.inputs)}, got {sorted(inputs)}")
        feeds = dict(self._state)
        for name, value in inputs.items():
            feeds[name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
        try:
            values = self._session.run_with_ort_values(self._outputs, feeds)
        except Exception as error:
            raise EngineError(f"{engine.name}: {_first_line(error)}") from error
        count = len(engine.outputs)
        self._state = {s.input: v for s, v in zip(engine.states, values[count:], strict=True)}
        return {name: value.numpy() for name, value in zip(engine.outputs, values[:count], strict=True)}

    def snapshot(self) -> State:
        """See `Stream.snapshot`."""
        return {name: value.numpy().copy() for name, value in self._state.items()}

    def restore(self, state: State) -> None:
        """See `Stream.restore`."""
        self._state = {n: ort.OrtValue.ortvalue_from_numpy(a.copy()) for n, a in state.items()}

    def reset(self) -> None:
        """See `Stream.reset`."""
        self.restore({s.input: s.initial() for s in self._engine.states})


def _options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
