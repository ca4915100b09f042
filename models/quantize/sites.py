"""Where a graph multiplies by constants: the nodes that INT8 can speed up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

__all__ = ["Site", "add_constant", "constant_of", "copy_of", "find_sites", "load", "weights_of"]

_KINDS = ("MatMul", "Conv")


@dataclass(frozen=True, slots=True)
class Site:
    """A product with a constant: `MatMul` with weights [in, out] on the right, or `Conv` with [out, in / group, k…]."""

    name: str
    kind: str
    activation: str
    """Tensor multiplied with the weights."""
    weight: str
    bias: str | None
    """Of a `Conv` that has one."""
    output: str
    channel_axis: int
    """The weights' axis of output channels: one scale a channel."""
    layer: str
    """What the name says of the layer: sites of one layer are kept in float together when there are very many."""


def load(path: Path) -> onnx.ModelProto:
    """A model whose constants are all initialisers and whose nodes all have a name."""
    model = onnx.load(path)
    kept = []
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            model.graph.initializer.append(tensor)
        else:
            node.name = node.name or node.output[0]
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that can be changed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def find_sites(model: onnx.ModelProto) -> tuple[Site, ...]:
    """Every product with a constant, in the graph's order. Products of two activations (attention) are none."""
    return tuple(_sites(model))


def weights_of(model: onnx.ModelProto, site: Site) -> npt.NDArray[np.float32]:
    """The site's weights, float32."""
    return constant_of(model, site.weight)


def constant_of(model: onnx.ModelProto, name: str) -> npt.NDArray[np.float32]:
    """A constant of the graph, float32."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    return np.asarray(numpy_helper.to_array(tensor), dtype=np.float32)


def add_constant(model: onnx.ModelProto, name: str, value: npt.NDArray[Any]) -> str:
    """Put a constant into the graph; returns its name."""
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def _sites(model: onnx.ModelProto) -> Iterator[Site]:
    constants = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type not in _KINDS or node.input[0] in constants:
            continue
        weight = constants.get(node.input[1])
        if weight is None or weight.data_type != TensorProto.FLOAT:
            continue
        if node.op_type == "MatMul" and len(weight.dims) != 2:
            continue
        yield Site(
            name=node.name,
            kind=node.op_type,
            activation=node.input[0],
            weight=weight.name,
            bias=node.input[2] if len(node.input) > 2 and node.input[2] else None,
            output=node.output[0],
            channel_axis=1 if node.op_type == "MatMul" else 0,
            layer=_layer(node.name),
        )


def _layer(name: str) -> str:
    """`layer3.self.qkv` -> `layer3`; `/dec/resblocks.8/convs.0/Conv` -> `/dec/resblocks.8`."""
    if "/" in name:
        return "/".join(name.split("/")[:3])
    return name.split(".", maxsplit=1)[0]
