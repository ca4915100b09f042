# ruff: noqa: G004 (TensorRT's logger takes text)
"""FAKE TensorRT: what a build is told (see `fake_tensorrt`). Names, the network and its parser, the configuration."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from models.errors import QuantisationRefusedError
from models.quantize.tensorrt_rules import check_tensorrt_qdq


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
        INTERNALERROR = 0
        ERROR = 1
        WARNING = 2
        INFO = 3

    def log(self, severity: Any, msg: str) -> None:
        raise NotImplementedError


ERROR = ILogger.Severity.ERROR


class IProgressMonitor:
    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        raise NotImplementedError

    def phase_finish(self, phase_name: str) -> None:
        raise NotImplementedError

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError


TYPES = {
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


def tensors(values: Sequence[Any]) -> list[ITensor]:
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
        return tensors(self.model.graph.input)[index]


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
                self._logger.log(ERROR, f"profiles for {name} do not satisfy MIN<=OPT<=MAX")
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
