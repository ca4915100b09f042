"""An ONNX graph as a list of steps: parsed once, constants folded, each value let go after its last use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from models.engines.base import Array
from models.engines.numpy import convolution, elementwise, indexing, products, recurrent, shaping
from models.engines.numpy.node import Kernel, Maker, Node
from models.engines.tensors import TensorInfo
from models.errors import EngineError, UnsupportedOperatorError

__all__ = ["MAKERS", "Program", "compile_graph"]

MAKERS: Final[Mapping[str, Maker]] = {
    **convolution.MAKERS,
    **elementwise.MAKERS,
    **indexing.MAKERS,
    **products.MAKERS,
    **recurrent.MAKERS,
    **shaping.MAKERS,
}
"""Every operator that the backend knows."""
_NEVER_FOLDED: Final = frozenset({"RandomNormalLike"})
_LEAST_OPSET: Final = 11


@dataclass(frozen=True, slots=True)
class _Step:
    kernel: Kernel
    label: str
    """Operator and node, for errors."""
    inputs: tuple[int, ...]
    """Slots; -1 for an input that is left out."""
    outputs: tuple[int, ...]
    """Slots; -1 for an output nobody asked for."""
    frees: tuple[int, ...]
    """Slots whose value is not needed any more."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled graph. Immutable: any number of threads may `run` it."""

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    _steps: tuple[_Step, ...]
    _constants: tuple[Array | None, ...]
    """A value a slot: weights, and what could be computed beforehand."""
    _slots: Mapping[str, int]
    _shared: frozenset[str]
    """Outputs that may lie in an input's or a constant's memory, and so are copied."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs, C-contiguous, of all inputs. Raises `EngineError` that names the operator that failed."""
        values: list[Any] = [*self._constants, None]  # the last one is what -1 reads
        for name, value in inputs.items():
            values[self._slots[name]] = value
        with np.errstate(all="ignore"):  # what is not finite shows in the outputs, and the ladder looks at them
            for step in self._steps:
                try:
                    made = step.kernel(*[values[slot] for slot in step.inputs])
                except UnsupportedOperatorError:
                    raise
                except Exception as error:
                    raise EngineError(f"{self.name}: {step.label}: {error}") from error
                if isinstance(made, tuple):
                    for slot, value in zip(step.outputs, made, strict=True):
                        values[slot] = value
                    values[-1] = None
                else:
                    values[step.outputs[0]] = made
                for slot in step.frees:
                    values[slot] = None
        return {
            name: np.array(values[self._slots[name]], order="C", copy=True if name in self._shared else None)
            for name in self.outputs
        }


def compile_graph(name: str, path: Path) -> Program:
    """Read and compile an ONNX file.

    Raises `EngineError` for a file that is no model, `UnsupportedOperatorError` for what the backend does not know.
    """
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's errors are not onnx's
        raise EngineError(f"{name}: cannot be loaded: {error or type(error).__name__}") from error
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opset = opsets.get("", 0)
    if opset < _LEAST_OPSET:
        raise EngineError(f"{name}: is written in opset {opset}, the NumPy backend reads {_LEAST_OPSET} and newer")
    return _Compiler(name, model.graph, opset).compile()


class _Compiler:
    """One graph."""

    def __init__(self, name: str, graph: Any, opset: int) -> None:
        self._name, self._graph, self._opset = name, graph, opset
        self._slots: dict[str, int] = {}
        self._constants: dict[str, Array] = {t.name: _array(t) for t in graph.initializer}
        self._shared: set[str] = set()
        """Names that may lie in memory which is not the run's own."""

    def compile(self) -> Program:
        inputs = {v.name: _info(v) for v in self._graph.input if v.name not in self._constants}
        outputs = {v.name: _info(v) for v in self._graph.output}
        self._shared.update(inputs)
        steps = [step for node in self._graph.node if (step := self._step(node)) is not None]
        named = {self._slot(n) for n in chain(inputs, outputs)}
        used = {slot for step in steps for slot in step.inputs} | named
        constants: list[Array | None] = [None] * len(self._slots)
        for name, value in self._constants.items():
            slot = self._slots.get(name)
            if slot is not None and slot in used:
                constants[slot] = value
        copied = frozenset(n for n in outputs if n in self._shared or n in self._constants)
        keep = named | {slot for slot, value in enumerate(constants) if value is not None}
        return Program(
            self._name, inputs, outputs, _with_frees(steps, keep), tuple(constants), dict(self._slots), copied
        )

    def _step(self, proto: Any) -> _Step | None:
        """The node compiled, or None where it could be computed at once."""
        names = list(proto.input)
        while names and not names[-1]:
            names.pop()
        known = {i: self._constants[n] for i, n in enumerate(names) if n in self._constants}
        label = f"{proto.op_type} ({proto.name or proto.output[0]})"
        maker = None if proto.domain not in ("", "ai.onnx") else MAKERS.get(proto.op_type)
        if maker is None:
            operator = f"{proto.domain}.{proto.op_type}" if proto.domain else proto.op_type
            raise UnsupportedOperatorError(
                f"{self._name}: {operator} ({proto.name or proto.output[0]}) is not known to the NumPy backend"
            )
        node = Node(
            op=proto.op_type,
            name=proto.name or proto.output[0],
            opset=self._opset,
            attributes={a.name: _attribute(a) for a in proto.attribute},
            constants=known,
            inputs=len(names),
            outputs=len(proto.output),
        )
        kernel = maker(node)
        if len(known) == len([n for n in names if n]) and proto.op_type not in _NEVER_FOLDED:
            self._fold(proto, kernel, [None if i in node.taken else known.get(i) for i in range(len(names))], label)
            return None
        if proto.op_type in shaping.VIEWS and any(n in self._shared or n in self._constants for n in names):
            self._shared.update(proto.output)
        inputs = tuple(-1 if not n or i in node.taken else self._slot(n) for i, n in enumerate(names))
        outputs = tuple(self._slot(n) if n else -1 for n in proto.output)
        return _Step(kernel, label, inputs, outputs, ())

    def _fold(self, proto: Any, kernel: Kernel, inputs: Sequence[Array | None], label: str) -> None:
        try:
            with np.errstate(all="ignore"):
                made = kernel(*inputs)
        except Exception as error:
            raise EngineError(f"{self._name}: {label}: {error}") from error
        values = made if isinstance(made, tuple) else (made,)
        for name, value in zip(proto.output, values, strict=True):
            self._constants[name] = np.asarray(value)

    def _slot(self, name: str) -> int:
        return self._slots.setdefault(name, len(self._slots))


def _with_frees(steps: Sequence[_Step], keep: set[int]) -> tuple[_Step, ...]:
    """The steps, each knowing what it reads or makes last."""
    seen = {-1} | keep
    done: list[_Step] = []
    for step in reversed(steps):
        last = {slot for slot in (*step.inputs, *step.outputs) if slot not in seen}
        seen |= last
        done.append(_Step(step.kernel, step.label, step.inputs, step.outputs, tuple(sorted(last))))
    return tuple(reversed(done))


def _info(value: Any) -> TensorInfo:
    tensor = value.type.tensor_type
    dims = tuple(d.dim_param or None if not d.HasField("dim_value") else int(d.dim_value) for d in tensor.shape.dim)
    return TensorInfo(value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), dims)


def _array(tensor: Any) -> Array:
    """A tensor as an array. Where the file has plain bytes they are taken as they are, and the message lets them go:
    otherwise every weight would be in memory twice."""
    if not tensor.HasField("raw_data") or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")
    made = np.frombuffer(tensor.raw_data, dtype=dtype).reshape(tuple(tensor.dims))
    tensor.ClearField("raw_data")
    return made


def _attribute(attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    return _array(value) if isinstance(value, onnx.TensorProto) else value
