"""ONNX Runtime on an NVIDIA GPU: the CUDA provider, or TensorRT's through ONNX Runtime. The state stays on the device.

Nothing here has run on a GPU yet. What could be tested without one is the binding: the same class with ONNX Runtime's
CPU provider and host memory as the device.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from models.engines.base import HELD_BYTES, Array, State, StateTensor
from models.engines.onnx_cpu import runtime_text, tensor_infos
from models.engines.tensors import Signature
from models.errors import EngineError, QuantisationRefusedError

__all__ = ["OrtCudaEngine", "OrtCudaStream", "Target", "TensorRtCache", "cuda_target", "tensorrt_target"]

CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"
HOST: Final = "CPUExecutionProvider"
MEMORY_LIMIT: Final = 2 << 30
"""Bytes that a session's arena may take of the device."""
_BYTE_OPERATORS: Final = frozenset(
    ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv")
)
_FATAL_ONLY: Final = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Providers to ask for, best first, and where states lie."""

    provider: str
    """The one that must have been taken."""
    device: str
    """ONNX Runtime's name for the memory: `cuda`, or `cpu` in tests."""
    providers: tuple[tuple[str, Mapping[str, str]], ...]
    device_id: int = 0
    takes_bytes: bool = False
    """Whether quantised graphs may be given to it."""


@dataclass(frozen=True, slots=True)
class TensorRtCache:
    """How ONNX Runtime's TensorRT provider builds and keeps engines."""

    folder: Path
    """Engines, timings and context models; whoever owns it drops what other versions have left."""
    least: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Input -> smallest shape. All three must name every input of free shape, or shapes are learnt by rebuilding."""
    usual: Mapping[str, Sequence[int]] = field(default_factory=dict)
    most: Mapping[str, Sequence[int]] = field(default_factory=dict)
    workspace_bytes: int = 512 << 20
    fp16: bool = False
    """Let TensorRT choose 16 bits for an FP32 graph; for graphs that are FP16 already it changes nothing."""
    context_model: bool = True
    """Also write a small ONNX file that names the engine: opening it skips parsing and optimising."""


def cuda_target(device_id: int = 0, memory_limit: int = MEMORY_LIMIT) -> Target:
    """The CUDA provider. Its arena grows by what is asked for, up to the limit."""
    return Target(CUDA, "cuda", ((CUDA, _cuda_options(device_id, memory_limit)), (HOST, {})), device_id)


def tensorrt_target(cache: TensorRtCache, device_id: int = 0, memory_limit: int = MEMORY_LIMIT) -> Target:
    """TensorRT through ONNX Runtime, with the CUDA provider for what TensorRT does not take."""
    options = {
        "device_id": str(device_id),
        "trt_max_workspace_size": str(cache.workspace_bytes),
        "trt_engine_cache_enable": "1",
        # With a context model the path is read as relative to it, so that the model cannot name files elsewhere.
        "trt_engine_cache_path": "." if cache.context_model else str(cache.folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(cache.folder),
        "trt_fp16_enable": "1" if cache.fp16 else "0",
        "trt_context_memory_sharing_enable": "1",
    }
    for name, shapes in (("min", cache.least), ("opt", cache.usual), ("max", cache.most)):
        if shapes:
            options[f"trt_profile_{name}_shapes"] = ",".join(
                f"{tensor}:{'x'.join(map(str, shape))}" for tensor, shape in shapes.items()
            )
    if cache.context_model:
        options |= {"trt_dump_ep_context_model": "1", "trt_ep_context_file_path": str(cache.folder)}
    rest: tuple[tuple[str, Mapping[str, str]], ...] = ((CUDA, _cuda_options(device_id, memory_limit)), (HOST, {}))
    return Target(TENSORRT, "cuda", ((TENSORRT, options), *rest), device_id, takes_bytes=True)


def _cuda_options(device_id: int, memory_limit: int) -> dict[str, str]:
    return {
        "device_id": str(device_id),
        "gpu_mem_limit": str(memory_limit),
        "arena_extend_strategy": "kSameAsRequested",
        # The exhaustive search takes seconds at every new length of sound.
        "cudnn_conv_algo_search": "HEURISTIC",
        "do_copy_in_default_stream": "1",
    }


class OrtCudaEngine:
    """An ONNX file, FP32 or FP16, on a GPU by ONNX Runtime. `stream` may be called from any thread.

    Outputs come back as host arrays, states do not leave the device. An input of `HELD_BYTES` or more is copied to the
    device once, and used again as long as the same array is given.
    """

    def __init__(self, path: Path, states: Sequence[StateTensor] = (), *, target: Target | None = None) -> None:
        """Load `path`. States take the width of floats that the graph has; `self.states` says which.

        Raises `QuantisationRefusedError` for a graph of bytes (this provider runs them slower than floats), and
        `EngineError` if the file cannot be used, or if ONNX Runtime went to another provider: it does so silently.
        """
        self.name = f"{path.parent.parent.name}/{path.name}"
        self.target = target = cuda_target() if target is None else target
        if target.provider not in ort.get_available_providers():
            raise EngineError(
                f"{self.name}: this build of ONNX Runtime has no {target.provider} "
                f"(it has {', '.join(ort.get_available_providers())})"
            )
        if not target.takes_bytes:
            _refuse_bytes(self.name, path)
        try:
            self._session: Any = ort.InferenceSession(
                str(path), _options(), providers=[(name, dict(options)) for name, options in target.providers]
            )
        except Exception as error:  # onnxruntime's exceptions have no base class of their own
            raise EngineError(f"{self.name}: cannot be loaded: {runtime_text(error)}") from error
        self._session.disable_fallback()
        taken = self._session.get_providers()
        if target.provider not in taken:
            self._session = None
            raise EngineError(
                f"{self.name}: ONNX Runtime did not take {target.provider} and went to {', '.join(taken)}: "
                "its libraries do not load here or do not fit; run: wren doctor"
            )
        inputs = tensor_infos(self.name, self._session.get_inputs())
        outputs = tensor_infos(self.name, self._session.get_outputs())
        self.signature = Signature(self.name, inputs, outputs, tuple(_of_graph(s, inputs) for s in states))
        self.states, self.inputs, self.outputs = self.signature.states, self.signature.inputs, self.signature.outputs
        self.fixed_states = frozenset(
            s.input for s in self.states if all(isinstance(d, int) for d in outputs[s.output].dims)
        )
        """States whose shape never changes: written into two buffers in turn."""

    def stream(self) -> OrtCudaStream:
        """Open a stream. Raises `EngineError` after `close`."""
        self.session()
        return OrtCudaStream(self)

    def close(self) -> None:
        """Release the weights; a run in another thread ends first. Streams raise `EngineError` from then on."""
        self._session = None

    def session(self) -> Any:
        """The runtime's session. Raises `EngineError` after `close`."""
        session = self._session
        if session is None:
            raise EngineError(f"{self.name}: the engine is closed")
        return session

    def on_device(self, value: Array) -> Any:
        """A copy in the device's memory. What is empty stays where it is: there is nothing to allocate."""
        device = self.target.device if value.size else "cpu"
        # Copied on the host as well: in tests the device is the host, and the value would be the caller's own memory.
        return ort.OrtValue.ortvalue_from_numpy(np.array(value, order="C"), device, self.target.device_id)


class OrtCudaStream:
    """One conversation's state over a shared `OrtCudaEngine`. One call at a time.

    A run reads one side of the state and writes the other; only when it has succeeded do the sides swap. So a failed
    run leaves the state as it was, and `rewind` costs nothing.
    """

    def __init__(self, engine: OrtCudaEngine) -> None:
        self._engine = engine
        self._sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        self._side = 0
        self._can_rewind = False
        self._held: dict[str, tuple[weakref.ReferenceType[Array], Any]] = {}
        self.reset()

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """See `Stream.run`; names, dtypes and shapes are those of the engine's `inputs` and `outputs`."""
        engine = self._engine
        session = engine.session()
        engine.signature.check_inputs(inputs)
        device, device_id = engine.target.device, engine.target.device_id
        source, target = self._sides[self._side], self._sides[1 - self._side]
        self._can_rewind = False  # the run writes over what the last one began with
        try:
            binding = session.io_binding()
            for name, value in inputs.items():
                if value.nbytes >= HELD_BYTES:
                    binding.bind_ortvalue_input(name, self._device_copy(name, value))
                else:
                    binding.bind_cpu_input(name, np.ascontiguousarray(value))
            for name in engine.outputs:
                binding.bind_output(name)
            for state in engine.states:
                binding.bind_ortvalue_input(state.input, source[state.input])
                if state.input in engine.fixed_states:
                    binding.bind_ortvalue_output(state.output, target[state.input])
                else:
                    binding.bind_output(state.output, device, device_id)
            session.run_with_iobinding(binding)
            values = binding.get_outputs()
            made = {name: value.numpy() for name, value in zip(engine.outputs, values, strict=False)}
        except Exception as error:
            raise EngineError(f"{engine.name}: {runtime_text(error)}") from error
        for state, value in zip(engine.states, values[len(engine.outputs) :], strict=True):
            if state.input not in engine.fixed_states:
                target[state.input] = value
        self._side = 1 - self._side
        self._can_rewind = True
        return made

    def rewind(self) -> None:
        """See `Rewindable.rewind`: the other side is still what it was."""
        if self._can_rewind:
            self._side, self._can_rewind = 1 - self._side, False

    def snapshot(self) -> State:
        """See `Stream.snapshot`. Raises `EngineError` if the device does not give it."""
        try:
            return {name: np.array(value.numpy()) for name, value in self._sides[self._side].items()}
        except Exception as error:
            raise EngineError(f"{self._engine.name}: the state cannot be read: {runtime_text(error)}") from error

    def restore(self, state: State) -> None:
        """See `Stream.restore`. Raises `EngineError` if it is not a state of this model."""
        engine = self._engine
        engine.signature.check_state(state)
        here, there = self._sides[self._side], self._sides[1 - self._side]
        try:
            for name, value in state.items():
                known = here.get(name)
                if name in engine.fixed_states and known is not None and tuple(known.shape()) == value.shape:
                    known.update_inplace(np.array(value, order="C"))  # nothing is allocated between utterances
                else:
                    here[name] = engine.on_device(value)
                    there[name] = engine.on_device(value)
        except Exception as error:
            raise EngineError(f"{engine.name}: the state cannot be written: {runtime_text(error)}") from error
        self._can_rewind = False

    def reset(self) -> None:
        """See `Stream.reset`."""
        self._held.clear()
        self.restore({s.input: s.initial() for s in self._engine.states})

    def _device_copy(self, name: str, value: Array) -> Any:
        """The value on the device; made anew only if another array is given."""
        held = self._held.get(name)
        if held is not None and held[0]() is value:
            return held[1]
        copy = self._engine.on_device(value)
        self._held[name] = (weakref.ref(value), copy)
        return copy


def _of_graph(state: StateTensor, inputs: Mapping[str, Any]) -> StateTensor:
    """The state in the graph's own width of floats."""
    info = inputs.get(state.input)
    if info is None or info.dtype.kind != "f" or np.dtype(state.dtype).kind != "f":
        return state
    return StateTensor(state.input, state.output, state.shape, info.dtype.name)


def _refuse_bytes(name: str, path: Path) -> None:
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # protobuf's errors are not onnx's
        raise EngineError(f"{name}: cannot be loaded: {error or type(error).__name__}") from error
    for node in graph.node:
        if node.op_type in _BYTE_OPERATORS:
            raise QuantisationRefusedError(
                f"{name}: {node.op_type} ({node.name or node.output[0]}): ONNX Runtime's CUDA provider runs graphs of "
                "bytes slower than floats; give it FP16 or FP32"
            )


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
