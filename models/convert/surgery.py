"""Cutting an ONNX graph in two, and giving tensors names that mean something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from models.errors import ConversionError

__all__ = ["cut"]


def cut(
    model: onnx.ModelProto,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    names: Mapping[str, str],
    name: str,
) -> onnx.ModelProto:
    """The part of `model` between `inputs` and `outputs`, as a model of its own.

    `names` gives new names to tensors of the original; `inputs` and `outputs` are given with their new names.
    Raises `ConversionError` where a needed tensor cannot be had from the inputs.
    """
    old = {new: original for original, new in names.items()}
    producer = {output: node for node in model.graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    given = {old.get(i.name, i.name) for i in inputs}
    wanted = [old.get(o.name, o.name) for o in outputs]
    kept: set[int] = set()
    used: set[str] = set()
    seen: set[str] = set()
    while wanted:
        tensor = wanted.pop()
        if tensor in seen or tensor in given or not tensor:
            continue
        seen.add(tensor)
        if tensor in constants:
            used.add(tensor)
        elif tensor in producer:
            node = producer[tensor]
            if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
                raise ConversionError(f"{name}: node {node.name} holds a graph of its own, which cannot be cut")
            kept.add(id(node))
            wanted.extend(node.input)
        else:
            raise ConversionError(
                f"{name}: tensor {tensor!r} cannot be had from the inputs given: not the file expected"
            )
    nodes = []
    for node in model.graph.node:  # in the original's order, which is a valid one
        if id(node) in kept:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [names.get(i, i) for i in node.input]
            copy.output[:] = [names.get(o, o) for o in node.output]
            nodes.append(copy)
    weights = [tensor for tensor in model.graph.initializer if tensor.name in used]
    graph = onnx.helper.make_graph(nodes, name, list(inputs), list(outputs), weights)
    return onnx.helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name="wren"
    )
