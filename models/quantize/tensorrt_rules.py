"""What TensorRT refuses in a quantised graph, checked here, where there is no TensorRT, before a board meets it.

Each rule was met on a real parser (TensorRT 10 and TensorRT-RTX) or stands in NVIDIA's documentation of explicit
quantisation: symmetric 8 bits only, constant positive scales, weights per output channel, no INT8 tensor but between
a pair, no operator that computes scales at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.engines.base import Array
from models.errors import QuantisationRefusedError

__all__ = ["check_tensorrt_qdq"]

_DYNAMIC = frozenset(
    ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "MatMulNBits")
)
_PAIRS = frozenset(("QuantizeLinear", "DequantizeLinear"))
_CHANNEL_AXIS: Mapping[str, tuple[int, ...]] = {"Conv": (0,), "ConvTranspose": (1,), "MatMul": (1, -1), "Gemm": (0, 1)}
"""Axis of the weights that holds the output channels (Gemm: by transB)."""
_BYTES = (TensorProto.INT8, TensorProto.UINT8)


def check_tensorrt_qdq(model: onnx.ModelProto) -> int:
    """How many pairs the graph has, if TensorRT would take them all.

    Raises `QuantisationRefusedError`, naming the node, for the first thing that TensorRT would refuse.
    """
    graph = _Graph.of(model.graph)
    for node in model.graph.node:
        for rule in _RULES:
            if problem := rule(node, graph):
                raise QuantisationRefusedError(
                    f"{model.graph.name}: TensorRT refuses {node.name or node.output[0]}: {problem}"
                )
    return sum(n.op_type == "DequantizeLinear" for n in model.graph.node)


@dataclass(frozen=True, slots=True)
class _Graph:
    constants: Mapping[str, TensorProto]
    producer: Mapping[str, onnx.NodeProto]
    readers: Mapping[str, list[onnx.NodeProto]]

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> _Graph:
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        constants = {t.name: t for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                constants[node.output[0]] = node.attribute[0].t
        return cls(constants, {o: n for n in graph.node for o in n.output}, readers)

    def value(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)


Rule = Callable[[onnx.NodeProto, _Graph], str | None]


def _no_run_time_scales(node: onnx.NodeProto, graph: _Graph) -> str | None:
    del graph
    if node.op_type in _DYNAMIC:
        return f"{node.op_type} quantises at run time; only QuantizeLinear/DequantizeLinear pairs are read"
    return None


def _constant_scale(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type not in _PAIRS:
        return None
    scale = graph.value(node.input[1])
    if scale is None:
        return f"its scale {node.input[1]} is not a constant"
    if not np.isfinite(scale).all() or not (scale > 0).all():
        return "a scale is not a positive number"
    return None


def _symmetric_bytes(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type not in _PAIRS:
        return None
    if len(node.input) < 3 or not node.input[2]:
        return "without a zero point the bytes are u8; s8 is wanted"
    zero = graph.value(node.input[2])
    if zero is None:
        return f"its zero point {node.input[2]} is not a constant"
    if zero.dtype != np.int8:
        return f"zero point of {zero.dtype}; only s8 is read"
    return "asymmetric: its zero point must be 0" if zero.any() else None


def _weight_bytes(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type == "DequantizeLinear" and (weight := graph.constants.get(node.input[0])) is not None:
        if weight.data_type == TensorProto.INT32:
            return "an int32 bias behind a DequantizeLinear; biases stay float"
        if weight.data_type != TensorProto.INT8:
            return f"weights of {TensorProto.DataType.Name(weight.data_type)}; only s8 is read"
    return None


def _channel_axis(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type not in _PAIRS:
        return None
    scale = graph.value(node.input[1])
    if scale is None or scale.size == 1:
        return None
    weight = graph.constants.get(node.input[0])
    if weight is None:
        return f"{scale.size} scales for an activation; only weights may have one a channel"
    axis = int(_attribute(node, "axis", 1))
    rank = len(weight.dims)
    if not -rank <= axis < rank or weight.dims[axis] != scale.size:
        return f"{scale.size} scales along axis {axis} of weights {list(weight.dims)}"
    for reader in graph.readers.get(node.output[0], ()):
        allowed = _CHANNEL_AXIS.get(reader.op_type)
        if allowed is not None and axis not in allowed and axis - rank not in allowed:
            return f"scales along axis {axis}; {reader.op_type} wants them along its output channels, axis {allowed[0]}"
    return None


def _no_byte_table(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type != "Gather":
        return None
    table = graph.constants.get(node.input[0])
    if table is not None and table.data_type in _BYTES:
        return "an INT8 table in front of a Gather; tables stay float"
    producer = graph.producer.get(node.input[0])
    if producer is not None and producer.op_type == "DequantizeLinear" and producer.input[0] in graph.constants:
        return "a quantised table in front of a Gather; tables stay float"
    return None


def _whole_pairs(node: onnx.NodeProto, graph: _Graph) -> str | None:
    if node.op_type == "QuantizeLinear":
        readers = graph.readers.get(node.output[0], [])
        if not readers or any(r.op_type != "DequantizeLinear" for r in readers):
            return "its bytes must be read by a DequantizeLinear, and by nothing else"
        if any(_scale_of(r, graph) != _scale_of(node, graph) for r in readers):
            return "the DequantizeLinear behind it has another scale"
    if node.op_type == "DequantizeLinear" and node.input[0] not in graph.constants:
        producer = graph.producer.get(node.input[0])
        if producer is None or producer.op_type != "QuantizeLinear":
            return "its bytes come neither from a constant nor from a QuantizeLinear"
    return None


def _scale_of(node: onnx.NodeProto, graph: _Graph) -> float:
    scale = graph.value(node.input[1])
    return math.nan if scale is None or scale.size != 1 else float(scale.ravel()[0])


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


_RULES: tuple[Rule, ...] = (
    _no_run_time_scales,
    _constant_scale,
    _weight_bytes,
    _symmetric_bytes,
    _channel_axis,
    _no_byte_table,
    _whole_pairs,
)
