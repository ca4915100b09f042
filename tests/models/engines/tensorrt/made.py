"""Two tiny graphs, a running sum and a cache that grows, and how they become plans of the fake TensorRT."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from models.engines.base import StateTensor
from models.engines.tensorrt.build_process import BuildRequest, build
from models.engines.tensorrt.engine import TensorRtEngine
from models.engines.tensorrt.key import BuildSettings, profile_data
from models.engines.tensorrt.pool import Pool
from models.engines.tensorrt.profiles import Profile, Span
from models.errors import EngineError
from tests.models.engines import fake_tensorrt

SUM = StateTensor("total", "next_total", (2,))
CACHE = StateTensor("past", "present", (1, 0, 2))


def save(
    path: Path, nodes: Sequence[Any], inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], kind: int = 1
) -> Path:
    def values(names: dict[str, list[Any]]) -> list[Any]:
        return [helper.make_tensor_value_info(n, kind, dims) for n, dims in names.items()]

    graph = helper.make_graph(list(nodes), path.stem, values(inputs), values(outputs))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def sum_graph(path: Path) -> Path:
    """y = (next_total = total + x) squared."""
    nodes = [
        helper.make_node("Add", ["total", "x"], ["next_total"], name="add"),
        helper.make_node("Mul", ["next_total", "next_total"], ["y"], name="square"),
    ]
    return save(path, nodes, {"total": [2], "x": [2]}, {"y": [2], "next_total": [2]})


def cache_graph(path: Path, kind: int = TensorProto.FLOAT) -> Path:
    """present = past with x behind it; y = everything, weighed by a second input, summed."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1, name="extend"),
        helper.make_node("ReduceSum", ["present"], ["sum"], keepdims=0, name="sum"),
        helper.make_node("ReduceSum", ["w"], ["weight"], keepdims=0, name="weight"),
        helper.make_node("Mul", ["sum", "weight"], ["y"], name="weigh"),
    ]
    inputs = {"past": [1, "p", 2], "x": [1, "n", 2], "w": ["f"]}
    return save(path, nodes, inputs, {"y": [], "present": [1, "t", 2]}, kind)


def cache_profiles() -> tuple[Profile, ...]:
    """One new row on up to 8; up to 3 on up to 40."""

    def profile(rows: tuple[int, int, int], past: tuple[int, int, int]) -> Profile:
        return {
            "past": Span(*((1, n, 2) for n in past)),
            "x": Span(*((1, n, 2) for n in rows)),
            "w": Span((1,), (4,), (64,)),
        }

    return profile((1, 1, 1), (0, 2, 8)), profile((1, 2, 3), (0, 4, 40))


def plan_of(onnx_path: Path, profiles: Sequence[Profile] = (), **settings: Any) -> bytes:
    """Build in this process."""
    trt: Any = fake_tensorrt
    output = onnx_path.with_suffix(".engine")
    request = BuildRequest(
        onnx=onnx_path,
        output=output,
        flavour="tensorrt",
        profiles=profile_data(profiles),
        settings=BuildSettings(**settings),
    )
    build(request, trt, lambda message: None, threading.Event())
    return output.read_bytes()


def x(*values: float) -> dict[str, Any]:
    return {"x": np.array(values, dtype=np.float32)}


def rows_of(*values: float, weight: int = 1) -> dict[str, Any]:
    """One row each, and weights of 1."""
    data = np.repeat(np.array(values, dtype=np.float32)[None, :, None], 2, axis=2)
    return {"x": data, "w": np.ones(weight, dtype=np.float32)}


def contract_engine(path: Path, states: Sequence[StateTensor]) -> TensorRtEngine:
    """An engine of any small graph, for `tests/models/engines/test_contract.py`: on a fake device of its own, free
    dimensions from 0 to 512."""
    trt: Any = fake_tensorrt
    free: dict[str, Span] = {}
    try:
        graph = onnx.load(path).graph
    except (OSError, DecodeError) as error:
        raise EngineError(f"{path.name}: cannot be loaded: {error}") from error
    for value in graph.input:
        dims = [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
        if None in dims:
            shapes = ((n if d is None else d for d in dims) for n in (0, 8, 512))
            free[value.name] = Span(*(tuple(shape) for shape in shapes))
    plan = plan_of(path, [free] if free else ())
    return TensorRtEngine(plan, states, trt=trt, pool=Pool(fake_tensorrt.FakeDevice()), name=path.stem)
