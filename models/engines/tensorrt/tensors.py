"""What a loaded engine's inputs and outputs are, and what its profiles take: read from the engine itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.engines.tensorrt.api import ICudaEngine, LogLines, TensorRt
from models.engines.tensorrt.profiles import Profile, Span
from models.errors import EnginePlanError

__all__ = ["Tensor", "numpy_types", "read_profiles", "read_tensors"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of an engine."""

    name: str
    is_input: bool
    dtype: np.dtype[Any]
    """On the device."""
    dims: tuple[int, ...]
    """-1 is free."""


def numpy_types(trt: TensorRt) -> Mapping[Any, np.dtype[Any]]:
    """TensorRT's type -> NumPy's, for those that NumPy has."""
    kinds = trt.DataType
    return {
        kinds.FLOAT: np.dtype(np.float32),
        kinds.HALF: np.dtype(np.float16),
        kinds.INT64: np.dtype(np.int64),
        kinds.INT32: np.dtype(np.int32),
        kinds.INT8: np.dtype(np.int8),
        kinds.UINT8: np.dtype(np.uint8),
        kinds.BOOL: np.dtype(np.bool_),
    }


def read_tensors(trt: TensorRt, engine: ICudaEngine, name: str) -> Mapping[str, Tensor]:
    """Inputs and outputs. Raises `EnginePlanError` for what our streams cannot pass."""
    types, found = numpy_types(trt), {}
    for index in range(engine.num_io_tensors):
        tensor = engine.get_tensor_name(index)
        kind = engine.get_tensor_dtype(tensor)
        if kind not in types:
            raise EnginePlanError(f"{name}: {tensor} is of type {kind}, which this backend does not pass")
        if engine.get_tensor_location(tensor) != trt.TensorLocation.DEVICE:
            raise EnginePlanError(f"{name}: {tensor} decides about shapes and is read by the CPU; not supported")
        is_input = engine.get_tensor_mode(tensor) == trt.TensorIOMode.INPUT
        found[tensor] = Tensor(tensor, is_input, types[kind], tuple(engine.get_tensor_shape(tensor)))
    return found


def read_profiles(engine: ICudaEngine, tensors: Mapping[str, Tensor], name: str, log: LogLines) -> Sequence[Profile]:
    """The shapes that every profile takes, of all inputs; at least one. Raises `EnginePlanError`."""
    profiles = []
    for index in range(max(1, engine.num_optimization_profiles)):
        spans = {}
        for tensor in (t for t in tensors.values() if t.is_input):
            if -1 not in tensor.dims:
                spans[tensor.name] = Span(tensor.dims, tensor.dims, tensor.dims)
                continue
            shapes = engine.get_tensor_profile_shape(tensor.name, index)
            if len(shapes) != 3:
                raise EnginePlanError(f"{name}: profile {index} has no shapes for {tensor.name}: {log.text()}")
            least, usual, most = (tuple(shape) for shape in shapes)
            spans[tensor.name] = Span(least, usual, most)
        profiles.append(spans)
    return profiles
