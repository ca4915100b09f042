"""Dynamic INT8 for the CPU: activations are quantised at every call to u8, weights are stored s8."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.convert.graph import quantise_columns, quantise_rows
from models.quantize.sites import Site, add_constant, constant_of, copy_of, find_sites, weights_of
from models.quantize.static import drop_unused

__all__ = ["quantise_dynamic", "quantise_tables"]

_TABLE_FROM = 1 << 16
"""Entries from which a table that is looked up is worth storing in bytes."""


def quantise_dynamic(model: onnx.ModelProto, keep_float: Collection[str] = ()) -> onnx.ModelProto:
    """A copy in which every site but those in `keep_float` multiplies bytes, and large tables are stored in bytes.

    `MatMul` becomes the pattern that onnxruntime fuses into one kernel; `Conv` becomes `ConvInteger`.
    """
    result = copy_of(model)
    wanted = {s.name: s for s in find_sites(model) if s.name not in keep_float}
    inputs: dict[str, list[str]] = {}
    nodes: list[onnx.NodeProto] = []
    for node in result.graph.node:
        if (site := wanted.get(node.name)) is None:
            nodes.append(node)
            continue
        if site.activation not in inputs:
            # Two products of one tensor quantise it once.
            inputs[site.activation] = [f"{site.activation}.dynamic_{part}" for part in ("u8", "scale", "zero")]
            name = f"{site.activation}.quantise"
            nodes.append(
                helper.make_node("DynamicQuantizeLinear", [site.activation], inputs[site.activation], name=name)
            )
        nodes += _product(result, node, site, inputs[site.activation])
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    quantise_tables(result)
    drop_unused(result)
    return result


def quantise_tables(model: onnx.ModelProto) -> None:
    """Store large float tables in front of a `Gather` (axis 0) as s8 with one scale a row. Changes the model."""
    tables = {t.name: t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) == 2}
    nodes = []
    for node in model.graph.node:
        table = tables.get(node.input[0]) if node.op_type == "Gather" else None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if table is None or axis != 0 or table.dims[0] * table.dims[1] < _TABLE_FROM:
            nodes.append(node)
            continue
        rows, scale = quantise_rows(np.asarray(numpy_helper.to_array(table), dtype=np.float32))
        name, ids = node.name, node.input[1]
        s8 = add_constant(model, f"{name}.table_s8", rows)
        scales = add_constant(model, f"{name}.table_scale", scale)
        nodes += [
            helper.make_node("Gather", [s8, ids], [f"{name}.s8"], name=f"{name}.s8", axis=0),
            helper.make_node("Gather", [scales, ids], [f"{name}.scales"], name=f"{name}.scales", axis=0),
            helper.make_node("Cast", [f"{name}.s8"], [f"{name}.f32"], name=f"{name}.f32", to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{name}.f32", f"{name}.scales"], [node.output[0]], name=name),
        ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    drop_unused(model)


def _product(model: onnx.ModelProto, node: onnx.NodeProto, site: Site, x: list[str]) -> list[onnx.NodeProto]:
    name, weight = site.name, weights_of(model, site)
    u8, x_scale, x_zero = x
    matmul = site.kind == "MatMul"
    columns = weight if matmul else weight.reshape(weight.shape[0], -1).T
    quantised, scale = quantise_columns(columns)
    if matmul:
        zeros = add_constant(model, f"{name}.weight_zero", np.zeros(scale.shape, dtype=np.int8))
    else:
        quantised = np.ascontiguousarray(quantised.T).reshape(weight.shape)
        # ConvInteger takes one zero for all channels; the scales go on afterwards, along the channels' axis.
        zeros = add_constant(model, f"{name}.weight_zero", np.array(0, dtype=np.int8))
        scale = scale.reshape(-1, *[1] * (weight.ndim - 2))
    s8 = add_constant(model, f"{name}.weight_s8", quantised)
    scales = add_constant(model, f"{name}.weight_scale", scale)
    kind = "MatMulInteger" if matmul else "ConvInteger"
    attributes = {} if matmul else _attributes(node)
    last = site.output if site.bias is None else f"{name}.product"
    made = [
        helper.make_node(kind, [u8, s8, x_zero, zeros], [f"{name}.s32"], name=f"{name}.s32", **attributes),
        helper.make_node("Cast", [f"{name}.s32"], [f"{name}.f32"], name=f"{name}.f32", to=TensorProto.FLOAT),
        helper.make_node("Mul", [x_scale, scales], [f"{name}.scales"], name=f"{name}.scales"),
        helper.make_node("Mul", [f"{name}.f32", f"{name}.scales"], [last], name=name),
    ]
    if site.bias is not None:
        bias = constant_of(model, site.bias)
        column = add_constant(model, f"{name}.bias_column", np.reshape(bias, (-1, *[1] * (weight.ndim - 2))))
        made.append(helper.make_node("Add", [last, column], [site.output], name=f"{name}.add_bias"))
    return made


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
