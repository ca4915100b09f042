"""A shipped graph whose products are done in bytes, written with floats: the same weights, no rounding on the way.

onnxruntime's dynamic quantisation rounds what comes into each product anew at every run. What it rounds is not a
model's own, so both our weights and what our graphs are compared with are taken of the graph without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from models.errors import ConversionError

__all__ = ["with_float_products"]

_PRODUCTS = {"MatMulIntegerToFloat": (1, 3, 5, 6), "DynamicQuantizeMatMul": (1, 2, 3, 4)}
"""Fused product (com.microsoft) -> its inputs that are weight, scale, zero point and bias."""


def with_float_products(model: onnx.ModelProto) -> bool:
    """Rewrite the model in place, branches of `If` nodes too; False where it multiplies no bytes.

    A product with its bias becomes two nodes again, the product named as the exporter named it, `MatMul_output_0`.
    """
    rewriting = _Rewriting({}, {}, {})
    found = rewriting.graph(model.graph)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in rewriting.floats.items())
    return found


class _Rewriting:
    """One graph with what the graphs around it hold."""

    def __init__(
        self,
        constants: dict[str, npt.NDArray[Any]],
        producers: dict[str, onnx.NodeProto],
        floats: dict[str, npt.NDArray[np.float32]],
    ) -> None:
        self._constants, self._producers = constants, producers
        self.floats = floats
        """Constants to be added to the outermost graph: branches share most of them."""

    def graph(self, graph: onnx.GraphProto) -> bool:
        """Rewrite it; whether there was anything."""
        for tensor in graph.initializer:
            self._constants[tensor.name] = numpy_helper.to_array(tensor)
        self._producers.update({output: node for node in graph.node for output in node.output})
        nodes: list[onnx.NodeProto] = []
        found = False
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    found |= _Rewriting(dict(self._constants), dict(self._producers), self.floats).graph(attribute.g)
                    # onnxruntime writes branches without a name, and does not read them so.
                    attribute.g.name = attribute.g.name or attribute.name
            instead = self._instead(node)
            found |= instead is not None
            nodes += [node] if instead is None else instead
        if found:
            copies = [onnx.NodeProto() for _ in nodes]  # clearing the field lets go of the nodes in it
            for copy, node in zip(copies, nodes, strict=True):
                copy.CopyFrom(node)
            del graph.node[:]
            graph.node.extend(copies)
            _drop_unused(graph)
        return found

    def _instead(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type in _PRODUCTS:
            return self._product(node)
        if node.op_type == "DequantizeLinear":
            rows = self._producers.get(node.input[0])
            if rows is not None and rows.op_type == "Gather" and rows.input[0] in self._constants:
                # Rows that are looked up in a table of bytes.
                table = self._float(rows.input[0], node.input[1], node.input[2])
                return [helper.make_node("Gather", [table, rows.input[1]], node.output, axis=0)]
        return None

    def _product(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        weight, scale, zero, bias = (node.input[at] if at < len(node.input) else "" for at in _PRODUCTS[node.op_type])
        factor = node.input[0]
        if node.op_type == "MatMulIntegerToFloat":
            factor = self._producers[factor].input[0]  # what was rounded
        product = f"{node.output[0].rsplit('/', 1)[0]}/MatMul_output_0" if bias else node.output[0]
        nodes = [helper.make_node("MatMul", [factor, self._float(weight, scale, zero)], [product])]
        if bias:
            nodes.append(helper.make_node("Add", [product, bias], node.output))
        return nodes

    def _float(self, weight: str, scale: str, zero: str) -> str:
        """Name of the constant's float values: one scale for all, or one for each column."""
        name = f"{weight}_float"
        rounded = self._constants[weight].astype(np.float32) - np.asarray(self._constants[zero], dtype=np.float32)
        value = (rounded * self._constants[scale]).astype(np.float32)
        if not np.array_equal(self.floats.setdefault(name, value), value):
            raise ConversionError(f"the shipped model has two constants {weight!r}: not the file expected")
        return name


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Constants and nodes that nothing in the graph or its branches reads any more."""
    while True:
        used = set(_read(graph)) | {output.name for output in graph.output}
        nodes = [node for node in graph.node if not used.isdisjoint(node.output)]
        if len(nodes) == len(graph.node):
            break
        for node in [node for node in graph.node if used.isdisjoint(node.output)]:
            graph.node.remove(node)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)


def _read(graph: onnx.GraphProto) -> Sequence[str]:
    names: list[str] = []
    for node in graph.node:
        names += node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                names += _read(attribute.g)
                names += [output.name for output in attribute.g.output]
    return names
