# ruff: noqa: G004 (TensorRT's logger takes text)
"""FAKE TensorRT, on the FAKE device of `fake_cuda`. No GPU, no NVIDIA: what it proves, it proves about our code only.

It has the names of TensorRT's Python API that `models/engines/tensorrt/api.py` lists. A "plan" is the serialised ONNX
with its profiles; a "run" is ONNX Runtime on host memory that stands in for the device's. It is as strict as TensorRT
about types, shapes, profiles and versions, says no with None, False and -1, and stricter about memory: see `fake_cuda`.

A module named `tensorrt` that imports `*` from this file makes a process of ours use it; `WREN_FAKE_TENSORRT` then
injects faults there (`crash`, `hang`, `out-of-memory`, `refuse`, `loud`).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from tests.models.engines.fake_cuda import STREAMS, FakeDevice
from tests.models.engines.fake_tensorrt_network import (
    ERROR,
    TYPES,
    BuilderFlag,
    DataType,
    ExecutionContextAllocationStrategy,
    HardwareCompatibilityLevel,
    IBuilderConfig,
    IHostMemory,
    ILogger,
    INetworkDefinition,
    IOptimizationProfile,
    IProgressMonitor,
    ITensor,
    ITimingCache,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    OnnxParser,
    ParserError,
    TensorIOMode,
    TensorLocation,
    tensors,
)

__all__ = [
    "Builder",
    "BuilderFlag",
    "DataType",
    "ExecutionContextAllocationStrategy",
    "FakeDevice",
    "Faults",
    "HardwareCompatibilityLevel",
    "IBuilderConfig",
    "ICudaEngine",
    "IExecutionContext",
    "IHostMemory",
    "ILogger",
    "INetworkDefinition",
    "IOptimizationProfile",
    "IProgressMonitor",
    "ITensor",
    "ITimingCache",
    "MemoryPoolType",
    "NetworkDefinitionCreationFlag",
    "OnnxParser",
    "ParserError",
    "Runtime",
    "TensorIOMode",
    "TensorLocation",
    "faults",
]
"""TensorRT's names and the fakes' own; what a build is told stands in `fake_tensorrt_network`."""


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
        inputs = tensors(network.model.graph.input)
        for tensor in inputs:
            if -1 in tensor.shape and not config.profiles:
                self._logger.log(ERROR, "Network has dynamic inputs, but no optimization profile")
                return None
            for number, profile in enumerate(config.profiles):
                shapes = profile.shapes.get(tensor.name, ())
                if -1 in tensor.shape and len(shapes) != 3:
                    self._logger.log(ERROR, f"{tensor.name} is missing dimensions in profile {number}")
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
        logger.log(ERROR, "Could not find any implementation for node {ForeignNode}")


class Runtime:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
        if not serialized_engine.startswith(_MAGIC):
            self._logger.log(ERROR, "magicTag == kEXPECTED_MAGIC_TAG failed")
            return None
        text, model = serialized_engine[len(_MAGIC) :].split(b"\n", 1)
        header = json.loads(text)
        if header["version"] != __version__ and not (header["compatible"] and self.engine_host_code_allowed):
            self._logger.log(ERROR, f"the engine plan file is of version {header['version']}, not {__version__}")
            return None
        return ICudaEngine(model, header["profiles"], self._logger)


_SHAPES: dict[tuple[str, tuple[Any, ...]], dict[str, tuple[int, ...]]] = {}


class ICudaEngine:
    def __init__(self, model: bytes, profiles: list[dict[str, Any]], logger: ILogger) -> None:
        graph = onnx.load_model_from_string(model).graph
        self.inputs, self.outputs = tensors(graph.input), tensors(graph.output)
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
        return TYPES[self.tensor(name).kind][0]

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
            self.logger.log(ERROR, "Error Code 2: OutOfMemory")
            return None
        return IExecutionContext(self)

    # ---- the fake's own ---------------------------------------------------------------------------

    def dtype(self, name: str) -> np.dtype[Any]:
        return TYPES[self.tensor(name).kind][1]

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
        assert stream_handle in STREAMS
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
            self._engine.logger.log(ERROR, f"Static dimension mismatch while setting input shape for {name}: {shape}")
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
        stream = STREAMS[stream_handle]
        if faults.no_execute or (faults.no_capture and stream.capturing is not None):
            self._engine.logger.log(ERROR, "Error Code 1: Cuda Runtime (an illegal access)")
            return False
        needed = self._engine.get_device_memory_size_for_profile_v2(self._profile)
        if self._scratch is None or self._scratch[1] < needed or len(self._addresses) < self._engine.num_io_tensors:
            self._engine.logger.log(ERROR, "no memory for activations, or no address for a tensor")
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
