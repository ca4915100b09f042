# ruff: noqa: G004 (TensorRT's logger takes text)
"""FAKE TensorRT, and the FAKE device it runs on. No GPU, no NVIDIA: what it proves, it proves about our code only.

It has the names of TensorRT's Python API that `models/engines/tensorrt/api.py` lists. A "plan" is the serialised ONNX
with its profiles; a "run" is ONNX Runtime on host memory that stands in for the device's. It is as strict as TensorRT
about types, shapes, profiles and versions, says no with None, False and -1, and stricter about memory: every address is
looked up, so what reads or writes outside of a live block is a fault here, not luck.

Streams are lazy on purpose: work is done only when something waits for it, and no more than that needs. Code that
forgets to wait for a copy or a run reads what was there before.

A module named `tensorrt` that imports `*` from this file makes a process of ours use it; `WREN_FAKE_TENSORRT` then
injects faults there (`crash`, `hang`, `out-of-memory`, `refuse`, `loud`).
"""

from __future__ import annotations

import ctypes
import enum
import hashlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from models.engines.tensorrt.device import DeviceInfo, HostBlock
from models.errors import DeviceError, DeviceMemoryError, QuantisationRefusedError
from models.quantize.tensorrt_rules import check_tensorrt_qdq

# ---- the device -----------------------------------------------------------------------------------

_STREAMS: dict[int, FakeStream] = {}
"""Handle -> stream, of all fake devices: a context is told a handle only."""
_HANDLES = itertools.count(0x1000)


@dataclass(eq=False)
class FakeStream:
    """Work in order, not done yet."""

    device: FakeDevice
    work: deque[Callable[[], None]] = field(default_factory=deque)
    capturing: list[Callable[[], None]] | None = None

    def add(self, work: Callable[[], None]) -> None:
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            self.work.append(work)

    def step(self) -> None:
        work = self.work.popleft()
        try:
            work()
        except Exception as error:
            # As on a GPU: one bad kernel, and nothing on this device works any more.
            self.device.broken = error
            raise


@dataclass(eq=False)
class FakeEvent:
    """The place in a stream that was recorded last."""

    stream: FakeStream | None = None
    recorded: int = 0
    reached: int = 0


class FakeDevice:
    """FAKE: `models.engines.tensorrt.device.Device` with host memory for a device's."""

    def __init__(self, total_bytes: int = 1 << 32, sm: str = "8.7") -> None:
        self.total_bytes, self.sm = total_bytes, sm
        self.blocks: dict[int, Any] = {}
        self.pinned: dict[int, HostBlock] = {}
        self.events: dict[int, FakeEvent] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.streams: set[int] = set()
        self.broken: Exception | None = None
        self._doing = threading.RLock()
        """Whoever waits does the work; a stream's work is done by one at a time."""
        self.allocations = 0
        """Made so far, device and pinned: what does not grow in the steady state."""
        self.copied_in = 0
        """Bytes that went in."""
        self.launches = 0
        """Graphs launched."""

    @property
    def allocated(self) -> int:
        return sum(len(memory) for memory in self.blocks.values())

    @property
    def handles(self) -> int:
        """Everything that lives: memory, streams, events, graphs. 0 when nothing leaks."""
        return len(self.blocks) + len(self.pinned) + len(self.events) + len(self.graphs) + len(self.streams)

    def info(self) -> DeviceInfo:
        return DeviceInfo("Fake", self.sm, "12.6", "12.6", self.total_bytes)

    def free_bytes(self) -> int:
        return self.total_bytes - self.allocated

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.free_bytes():
            raise DeviceMemoryError("cudaMalloc: cudaErrorMemoryAllocation (2): out of memory")
        memory = (ctypes.c_uint8 * nbytes)()
        ctypes.memset(memory, 0xFF, nbytes)  # NaN in every float type: what was never written is heard
        self.blocks[ctypes.addressof(memory)] = memory
        self.allocations += 1
        return ctypes.addressof(memory)

    def free(self, address: int) -> None:
        del self.blocks[address]

    def allocate_host(self, nbytes: int) -> HostBlock:
        view = np.full(nbytes, 0xFF, dtype=np.uint8)
        block = HostBlock(view.ctypes.data, view)
        self.pinned[block.address] = block
        self.allocations += 1
        return block

    def free_host(self, block: HostBlock) -> None:
        del self.pinned[block.address]

    def create_stream(self) -> int:
        handle = next(_HANDLES)
        _STREAMS[handle] = FakeStream(self)
        self.streams.add(handle)
        return handle

    def destroy_stream(self, stream: int) -> None:
        self.streams.remove(stream)
        del _STREAMS[stream]

    def synchronize(self, stream: int) -> None:
        self._alive()
        found = _STREAMS[stream]
        if found.capturing is not None:
            raise DeviceError("cudaStreamSynchronize: cudaErrorStreamCaptureUnsupported (900)")
        with self._doing:
            while found.work:
                self._step(found)

    def create_event(self) -> int:
        handle = next(_HANDLES)
        self.events[handle] = FakeEvent()
        return handle

    def destroy_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        found = self.events[event]
        found.stream, found.recorded = _STREAMS[stream], found.recorded + 1
        mark = found.recorded

        def reach() -> None:
            found.reached = max(found.reached, mark)

        found.stream.add(reach)

    def wait(self, stream: int, event: int) -> None:
        found, mark = self.events[event], self.events[event].recorded
        _STREAMS[stream].add(lambda: self._until(found, mark))

    def synchronize_event(self, event: int) -> None:
        self._alive()
        self._until(self.events[event], self.events[event].recorded)

    def copy_in(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.copied_in += nbytes
        self._copy(target, source, nbytes, stream, to_device=True)

    def copy_out(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._copy(target, source, nbytes, stream, to_device=False)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        def work() -> None:
            self.check(target, nbytes)
            self.check(source, nbytes)
            ctypes.memmove(target, source, nbytes)

        _STREAMS[stream].add(work)

    def begin_capture(self, stream: int) -> None:
        assert _STREAMS[stream].capturing is None
        _STREAMS[stream].capturing = []

    def end_capture(self, stream: int) -> int:
        found = _STREAMS[stream]
        assert found.capturing is not None
        handle = next(_HANDLES)
        self.graphs[handle], found.capturing = found.capturing, None
        return handle

    def abandon_capture(self, stream: int) -> None:
        _STREAMS[stream].capturing = None

    def launch(self, graph: int, stream: int) -> None:
        self.launches += 1
        for work in self.graphs[graph]:
            _STREAMS[stream].add(work)

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]

    # ---- for the fake's own use -------------------------------------------------------------------

    def check(self, address: int, nbytes: int) -> None:
        """That these bytes lie in one live block."""
        for start, memory in self.blocks.items():
            if start <= address and address + nbytes <= start + len(memory):
                return
        raise DeviceError(f"cudaErrorIllegalAddress (700): {nbytes} bytes at {address:#x} are in no block")

    def _copy(self, target: int, source: int, nbytes: int, stream: int, *, to_device: bool) -> None:
        host, there = (source, target) if to_device else (target, source)

        def work() -> None:
            self.check(there, nbytes)
            block = self.pinned.get(host)
            if block is None or block.bytes.size < nbytes:
                raise DeviceError("cudaErrorInvalidValue (1): the host's side is not pinned, or too small")
            ctypes.memmove(target, source, nbytes)

        _STREAMS[stream].add(work)

    def _until(self, event: FakeEvent, mark: int) -> None:
        with self._doing:
            while event.reached < mark:
                assert event.stream is not None
                if not event.stream.work:
                    raise DeviceError("an event was waited for that nothing will reach")
                self._step(event.stream)

    def _step(self, stream: FakeStream) -> None:
        try:
            stream.step()
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError(f"cudaErrorLaunchFailure (719): {error}") from error

    def _alive(self) -> None:
        if self.broken is not None:
            raise DeviceError(f"cudaErrorLaunchFailure (719): {self.broken}")


# ---- TensorRT's names -----------------------------------------------------------------------------


@dataclass
class Faults:
    """What goes wrong on demand, in this process."""

    nan: bool = False
    """Every float that an engine gives is NaN."""
    no_context: bool = False
    no_execute: bool = False
    crash_kernel: bool = False
    no_capture: bool = False
    no_infer: bool = False


faults = Faults()
__version__ = os.environ.get("WREN_FAKE_TENSORRT_VERSION", "10.3.0")
_MAGIC = b"FAKE-PLAN\n"


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    INT64 = 8


class TensorIOMode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(enum.Enum):
    DEVICE = 0
    HOST = 1


class MemoryPoolType(enum.Enum):
    WORKSPACE = 0


class BuilderFlag(enum.Enum):
    VERSION_COMPATIBLE = 13


class HardwareCompatibilityLevel(enum.Enum):
    NONE = 0
    AMPERE_PLUS = 1


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class ILogger:
    class Severity(enum.IntEnum):
        INTERNAL_ERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3

    def log(self, severity: Any, msg: str) -> None:
        raise NotImplementedError


_ERROR = ILogger.Severity.ERROR


class IProgressMonitor:
    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError

    def phase_finish(self, phase_name: str) -> None:
        raise NotImplementedError

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError


_TYPES = {
    onnx.TensorProto.FLOAT: (DataType.FLOAT, np.dtype(np.float32)),
    onnx.TensorProto.FLOAT16: (DataType.HALF, np.dtype(np.float16)),
    onnx.TensorProto.INT64: (DataType.INT64, np.dtype(np.int64)),
    onnx.TensorProto.INT32: (DataType.INT32, np.dtype(np.int32)),
    onnx.TensorProto.INT8: (DataType.INT8, np.dtype(np.int8)),
    onnx.TensorProto.UINT8: (DataType.UINT8, np.dtype(np.uint8)),
    onnx.TensorProto.BOOL: (DataType.BOOL, np.dtype(np.bool_)),
}


@dataclass
class ITensor:
    name: str
    kind: int
    shape: tuple[int, ...]


def _tensors(values: Sequence[Any]) -> list[ITensor]:
    return [
        ITensor(
            v.name,
            v.type.tensor_type.elem_type,
            tuple(d.dim_value if d.HasField("dim_value") else -1 for d in v.type.tensor_type.shape.dim),
        )
        for v in values
    ]


class INetworkDefinition:
    def __init__(self) -> None:
        self.model = onnx.ModelProto()

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    @property
    def num_layers(self) -> int:
        return len(self.model.graph.node)

    def get_input(self, index: int) -> ITensor:
        return _tensors(self.model.graph.input)[index]


@dataclass
class ParserError:
    text: str

    def desc(self) -> str:
        return self.text

    def node_name(self) -> str:
        return ""

    def node_operator(self) -> str:
        return ""


class OnnxParser:
    def __init__(self, network: INetworkDefinition, logger: ILogger) -> None:
        self._network, self._logger, self._errors = network, logger, []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def parse(self, model: bytes) -> bool:
        try:
            parsed = onnx.load_model_from_string(model)
            check_tensorrt_qdq(parsed)
        except QuantisationRefusedError as error:
            self._errors.append(ParserError(str(error)))
            return False
        except Exception as error:  # noqa: BLE001 (protobuf's errors have no base class)
            self._errors.append(ParserError(f"Failed to parse the ONNX model: {error}"))
            return False
        self._network.model = parsed
        return True

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]


class IOptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[tuple[int, ...], ...]] = {}

    def set_shape(self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]) -> None:
        self.shapes[input] = (tuple(min), tuple(opt), tuple(max))


class IHostMemory(bytes):
    @property
    def nbytes(self) -> int:
        return len(self)


class ITimingCache:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def serialize(self) -> IHostMemory:
        return IHostMemory(self.data or b"timed once")


class IBuilderConfig:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self.profiles: list[IOptimizationProfile] = []
        self.flags: set[Any] = set()
        self.progress_monitor: Any = None
        self.builder_optimization_level = 3
        self.max_aux_streams = -1
        self.hardware_compatibility_level: Any = HardwareCompatibilityLevel.NONE
        self._cache: ITimingCache | None = None

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        for name, (low, usual, high) in profile.shapes.items():
            if any(not a <= b <= c for a, b, c in zip(low, usual, high, strict=False)):
                self._logger.log(_ERROR, f"profiles for {name} do not satisfy MIN<=OPT<=MAX")
                return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        assert pool is MemoryPoolType.WORKSPACE
        assert pool_size > 0

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        return None if serialized_timing_cache.startswith(b"junk") else ITimingCache(serialized_timing_cache)

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return not ignore_mismatch

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition | None:
        return INetworkDefinition() if flags >> int(NetworkDefinitionCreationFlag.STRONGLY_TYPED) & 1 else None

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self._logger)

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None:
        _inject_fault(self._logger)
        if os.environ.get("WREN_FAKE_TENSORRT") == "refuse":
            return None
        inputs = _tensors(network.model.graph.input)
        for tensor in inputs:
            if -1 in tensor.shape and not config.profiles:
                self._logger.log(_ERROR, "Network has dynamic inputs, but no optimization profile")
                return None
            for number, profile in enumerate(config.profiles):
                shapes = profile.shapes.get(tensor.name, ())
                if -1 in tensor.shape and len(shapes) != 3:
                    self._logger.log(_ERROR, f"{tensor.name} is missing dimensions in profile {number}")
                    return None
        monitor = config.progress_monitor
        monitor.phase_start("Building engine", None, 5)
        for step in range(5):
            if os.environ.get("WREN_FAKE_TENSORRT") == "slow":
                time.sleep(0.1)
            if not monitor.step_complete("Building engine", step):
                return None
        monitor.phase_finish("Building engine")
        header = {
            "version": __version__,
            "compatible": BuilderFlag.VERSION_COMPATIBLE in config.flags,
            "profiles": [p.shapes for p in config.profiles],
        }
        return IHostMemory(_MAGIC + json.dumps(header).encode() + b"\n" + network.model.SerializeToString())


def _inject_fault(logger: ILogger) -> None:
    fault = os.environ.get("WREN_FAKE_TENSORRT")
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "out-of-memory":
        hoard = np.ones(400 << 20, dtype=np.uint8)
        time.sleep(30)
        del hoard
    if fault == "hang":
        time.sleep(60)
    if fault == "loud":
        print("a library writes where it likes", flush=True)
        os.write(1, b"and so does another\n")
        print("and complains", file=sys.stderr)
    if fault == "refuse":
        logger.log(_ERROR, "Could not find any implementation for node {ForeignNode}")


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if not serialized_engine.startswith(_MAGIC):
            self._logger.log(_ERROR, "magicTag == kEXPECTED_MAGIC_TAG failed")
            return None
        text, model = serialized_engine[len(_MAGIC) :].split(b"\n", 1)
        header = json.loads(text)
        if header["version"] != __version__ and not (header["compatible"] and self.engine_host_code_allowed):
            self._logger.log(_ERROR, f"the engine plan file is of version {header['version']}, not {__version__}")
            return None
        return ICudaEngine(model, header["profiles"], self._logger)


_SHAPES: dict[tuple[str, tuple[Any, ...]], dict[str, tuple[int, ...]]] = {}


class ICudaEngine:
    def __init__(self, model: bytes, profiles: list[dict[str, Any]], logger: ILogger) -> None:
        graph = onnx.load_model_from_string(model).graph
        self.inputs, self.outputs = _tensors(graph.input), _tensors(graph.output)
        self.logger, self.profiles = logger, profiles or [{}]
        self.digest = hashlib.sha256(model).hexdigest()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def tensor(self, name: str) -> ITensor:
        return next(t for t in (*self.inputs, *self.outputs) if t.name == name)

    def get_tensor_name(self, index: int) -> str:
        return [*self.inputs, *self.outputs][index].name

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in {t.name for t in self.inputs} else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return _TYPES[self.tensor(name).kind][0]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.tensor(name).shape

    def get_tensor_location(self, name: str) -> TensorLocation:
        del name
        return TensorLocation.DEVICE

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.profiles[profile_index].get(name, [])]

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        return 4096 * (profile_index + 1)

    def create_execution_context(self, strategy: Any) -> IExecutionContext | None:
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        if faults.no_context:
            self.logger.log(_ERROR, "Error Code 2: OutOfMemory")
            return None
        return IExecutionContext(self)

    # ---- the fake's own ---------------------------------------------------------------------------

    def dtype(self, name: str) -> np.dtype[Any]:
        return _TYPES[self.tensor(name).kind][1]

    def compute(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        names = [t.name for t in self.outputs]
        return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))

    def output_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """By running it on zeros: nothing is guessed about operators."""
        key = (self.digest, tuple(sorted(shapes.items())))
        if key not in _SHAPES:
            made = self.compute({n: np.zeros(s, dtype=self.dtype(n)) for n, s in shapes.items()})
            _SHAPES[key] = {n: v.shape for n, v in made.items()}
        return _SHAPES[key]


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._profile = -1
        self._scratch: tuple[int, int] | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._changes = 0
        """A graph is good as long as the context it was captured from is left alone (TensorRT's developer guide)."""

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        assert stream_handle in _STREAMS
        if not 0 <= profile_index < self._engine.num_optimization_profiles:
            return False
        self._profile, self._scratch, self._shapes = profile_index, None, {}
        self._changes += 1
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        self._scratch = (memory, size)
        self._changes += 1

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        tensor = self._engine.tensor(name)
        span = self._engine.profiles[self._profile].get(name, [tensor.shape] * 3)
        inside = len(shape) == len(tensor.shape) and all(
            low <= n <= high for low, n, high in zip(span[0], shape, span[2], strict=True)
        )
        if not inside:
            self._engine.logger.log(_ERROR, f"Static dimension mismatch while setting input shape for {name}: {shape}")
            return False
        self._shapes[name] = tuple(shape)
        self._changes += 1
        return True

    def infer_shapes(self) -> list[str]:
        return [t.name for t in self._engine.inputs if faults.no_infer or t.name not in self._shapes]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self._shapes:
            return self._shapes[name]
        return self._engine.output_shapes(self._shapes)[name]

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._engine.tensor(name)
        self._addresses[name] = memory
        self._changes += 1
        return memory != 0

    def execute_async_v3(self, stream_handle: int) -> bool:
        stream = _STREAMS[stream_handle]
        if faults.no_execute or (faults.no_capture and stream.capturing is not None):
            self._engine.logger.log(_ERROR, "Error Code 1: Cuda Runtime (an illegal access)")
            return False
        needed = self._engine.get_device_memory_size_for_profile_v2(self._profile)
        if self._scratch is None or self._scratch[1] < needed or len(self._addresses) < self._engine.num_io_tensors:
            self._engine.logger.log(_ERROR, "no memory for activations, or no address for a tensor")
            return False
        scratch, shapes, addresses = self._scratch[0], dict(self._shapes), dict(self._addresses)
        captured_at = self._changes if stream.capturing is not None else None

        def run() -> None:
            if captured_at is not None and captured_at != self._changes:
                raise RuntimeError("a graph was launched whose context has been changed since")
            self._run(stream.device, scratch, needed, shapes, addresses)

        stream.add(run)
        return True

    def _run(
        self,
        device: FakeDevice,
        scratch: int,
        needed: int,
        shapes: Mapping[str, tuple[int, ...]],
        addresses: Mapping[str, int],
    ) -> None:
        if faults.crash_kernel:
            raise RuntimeError("an illegal memory access was encountered")
        device.check(scratch, needed)
        feeds = {n: _view(device, addresses[n], shape, self._engine.dtype(n)).copy() for n, shape in shapes.items()}
        for name, value in self._engine.compute(feeds).items():
            made = np.full_like(value, np.nan) if faults.nan and value.dtype.kind == "f" else value
            _view(device, addresses[name], made.shape, made.dtype)[...] = made


def _view(device: FakeDevice, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    nbytes = prod(shape) * dtype.itemsize
    device.check(address, nbytes)
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
    return raw.view(dtype).reshape(shape)
