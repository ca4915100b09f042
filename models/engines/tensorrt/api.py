"""The part of TensorRT's Python API that Wren uses, written down: what exists, unchanged, from 10.3 to 11.4.

A protocol here has the name of TensorRT's class, and names nothing else than what our code calls. mypy holds our code
to the protocols; `tests/models/engines/tensorrt/test_api.py` holds these to the real signatures of every version.
TensorRT-RTX has the same names, and builds without a GPU.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar, cast

from models.errors import EngineError, TensorRtMissingError

__all__ = [
    "Builder",
    "Flavour",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "INetworkDefinition",
    "IOptimizationProfile",
    "ITensor",
    "ITimingCache",
    "LogLines",
    "OnnxParser",
    "ParserError",
    "Runtime",
    "TensorRt",
    "checked",
    "load_tensorrt",
]

Flavour = Literal["tensorrt", "tensorrt_rtx"]
"""Which package: TensorRT, or TensorRT-RTX (which the tests build with)."""

Shape = Sequence[int]
_T = TypeVar("_T")

_LOG_LINES = 40
_LOG_CHARACTERS = 1_500
_NO_GPU = "checkMacros.cpp::catchCudaError"
_WARNING = 2
"""TensorRT's severities: 0 internal error, 1 error, 2 warning, 3 information, 4 everything."""


class IHostMemory(Protocol):
    """A built plan or a serialised cache; `bytes()` copies it."""

    @property
    def nbytes(self) -> int: ...


class ITensor(Protocol):
    """An input or output of a network being defined."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Any: ...


class INetworkDefinition(Protocol):
    """What the parser fills."""

    @property
    def num_inputs(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    def get_input(self, index: int) -> ITensor: ...


class IOptimizationProfile(Protocol):
    """Least, usual and largest shape of each input."""

    def set_shape(self, input: str, min: Shape, opt: Shape, max: Shape) -> None: ...


class ITimingCache(Protocol):
    """What the builder has timed before."""

    def serialize(self) -> IHostMemory | None: ...


class IBuilderConfig(Protocol):
    """How to build."""

    progress_monitor: Any
    builder_optimization_level: int
    max_aux_streams: int
    hardware_compatibility_level: Any

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int: ...
    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None: ...
    def set_flag(self, flag: Any) -> None: ...
    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None: ...
    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool: ...
    def get_timing_cache(self) -> ITimingCache | None: ...


class Builder(Protocol):
    """Makes engines."""

    def create_network(self, flags: int = 0) -> INetworkDefinition | None: ...
    def create_builder_config(self) -> IBuilderConfig | None: ...
    def create_optimization_profile(self) -> IOptimizationProfile | None: ...
    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None: ...


class ParserError(Protocol):
    """One reason of the parser."""

    def desc(self) -> str: ...
    def node_name(self) -> str: ...
    def node_operator(self) -> str: ...


class OnnxParser(Protocol):
    """Reads ONNX into a network."""

    @property
    def num_errors(self) -> int: ...
    def parse(self, model: bytes) -> bool: ...
    def get_error(self, index: int) -> ParserError: ...


class IExecutionContext(Protocol):
    """One user of an engine: shapes, addresses, activations."""

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool: ...
    def set_device_memory(self, memory: int, size: int) -> None: ...
    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool: ...
    def get_tensor_shape(self, name: str) -> Any: ...
    def infer_shapes(self) -> list[str]: ...
    def set_tensor_address(self, name: str, memory: int) -> bool: ...
    def execute_async_v3(self, stream_handle: int) -> bool: ...


class ICudaEngine(Protocol):
    """A loaded plan: weights, shared by all contexts."""

    @property
    def num_io_tensors(self) -> int: ...
    @property
    def num_optimization_profiles(self) -> int: ...
    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Any: ...
    def get_tensor_dtype(self, name: str) -> Any: ...
    def get_tensor_shape(self, name: str) -> Any: ...
    def get_tensor_location(self, name: str) -> Any: ...
    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Any]: ...
    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int: ...
    def create_execution_context(self, strategy: Any) -> IExecutionContext | None: ...


class Runtime(Protocol):
    """Loads plans."""

    engine_host_code_allowed: bool

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None: ...


class TensorRt(Protocol):
    """The module. Enumerations are `Any`: their members' numbers differ between versions, their names do not."""

    __version__: str
    DataType: Any
    TensorIOMode: Any
    TensorLocation: Any
    MemoryPoolType: Any
    BuilderFlag: Any
    HardwareCompatibilityLevel: Any
    NetworkDefinitionCreationFlag: Any
    ExecutionContextAllocationStrategy: Any
    ILogger: Any
    IProgressMonitor: Any

    Builder: Callable[[Any], Builder]
    OnnxParser: Callable[[INetworkDefinition, Any], OnnxParser]
    Runtime: Callable[[Any], Runtime]


def load_tensorrt(flavour: Flavour = "tensorrt") -> TensorRt:
    """Import the package. Raises `TensorRtMissingError`, which says how to get it."""
    try:
        return cast(TensorRt, importlib.import_module(flavour))
    except (ImportError, OSError) as error:
        # The bindings may be there while the library they open is not: ImportError or OSError, by version.
        raise TensorRtMissingError(f"{flavour} cannot be loaded ({_line(error)}); {_HOW[flavour]}") from error


_HOW: dict[Flavour, str] = {
    "tensorrt": (
        "on a Jetson it comes with JetPack: sudo apt install python3-libnvinfer; with an NVIDIA card: "
        "pip install tensorrt. Until then the rung below serves"
    ),
    "tensorrt_rtx": "pip install .[tensorrt-check]",
}


class LogLines:
    """What TensorRT said: the newest warnings and errors, for our errors' text. Bounded."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str]] = deque(maxlen=_LOG_LINES)

    def add(self, severity: int, text: str) -> None:
        """Keep a line, if it is a warning or worse."""
        if severity <= _WARNING:
            self._lines.append((severity, " ".join(text.split())))

    def text(self, nothing: str = "TensorRT gave no reason") -> str:
        """The errors, if there are any, else the warnings; on one line, not too long."""
        errors = [line for severity, line in self._lines if severity < _WARNING]
        # Where there is no GPU, this follows every refusal and explains none.
        errors = [line for line in errors if _NO_GPU not in line] or errors
        lines = errors or [line for _, line in self._lines]
        return "; ".join(dict.fromkeys(lines))[:_LOG_CHARACTERS] or nothing

    def clear(self) -> None:
        """Forget what was said: it belongs to an earlier call."""
        self._lines.clear()

    def logger(self, trt: TensorRt) -> Any:
        """A `trt.ILogger` that adds to these lines. TensorRT calls it from any of its threads, and keeps no reference:
        the caller must, for as long as anything made with it lives."""
        lines = self

        class _Logger(trt.ILogger):  # type: ignore[misc, name-defined]  # the base is known at run time only
            def __init__(self) -> None:
                super().__init__()

            def log(self, severity: Any, msg: str) -> None:
                lines.add(int(severity), msg)

        return _Logger()


def checked(value: _T | None, what: str, log: LogLines, error: type[EngineError] = EngineError) -> _T:
    """The value, if TensorRT gave one. None, False and -1 are its ways to say no, and its reason is in the log."""
    if value is None or value is False or (isinstance(value, int) and not isinstance(value, bool) and value < 0):
        raise error(f"TensorRT refused to {what}: {log.text()}")
    return value


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
