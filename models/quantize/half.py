"""FP16 written into the graph, for strongly typed TensorRT and for CUDA: every tensor's type is in the file.

Which nodes stay in FP32 follows from the graph, not from names:

- what leads from an input to a normalisation over a whole clip, and that normalisation: its mean is over more values
  than a 16-bit sum is good for;
- what is made of indices alone (positions, rotation angles, masks): FP16 counts exactly only to 2048;
- operators whose result would be worth nothing in 16 bits (`_FLOAT_OPS`).

Inputs and outputs keep FP32, but for those named `half_edges` (a decoder's keys and values, which only it reads).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.errors import ConversionError
from models.quantize.sites import copy_of
from models.quantize.static import drop_unused

__all__ = ["in_half", "names_of", "no_edges"]

_FLOAT_OPS = frozenset(
    (
        "Range",
        "Cos",
        "Sin",
        "InstanceNormalization",
        "LSTM",
        "RandomNormalLike",
        "RandomNormal",
        "CumSum",
        "ConstantOfShape",
    )
)
_WHOLE_CLIP = "InstanceNormalization"
_LARGEST = float(np.finfo(np.float16).max)


def no_edges(name: str) -> bool:
    """A rule for `half_edges`: none."""
    del name
    return False


def in_half(model: onnx.ModelProto, half_edges: Callable[[str], bool] = no_edges) -> onnx.ModelProto:
    """A copy in FP16. Raises `ConversionError` where a constant does not fit into 16 bits or a type is unknown."""
    result = copy_of(model)
    del result.graph.value_info[:]
    types = _types(result)
    return _Conversion(result, types, half_edges).run()


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = [*inferred.input, *inferred.value_info, *inferred.output]
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    return types | {t.name: t.data_type for t in inferred.initializer}


class _Conversion:
    def __init__(self, model: onnx.ModelProto, types: dict[str, int], half_edges: Callable[[str], bool]) -> None:
        self._graph = model.graph
        self._model = model
        self._types = types
        self._constants = {t.name: t for t in model.graph.initializer}
        self._half_edges = half_edges
        self._halves: dict[str, bool] = {}
        """float tensor -> whether it is FP16 now"""
        self._casts: dict[tuple[str, bool], str] = {}
        self._nodes: list[onnx.NodeProto] = []

    def run(self) -> onnx.ModelProto:
        graph = self._graph
        for value in graph.input:
            if self._is_float(value.name):
                self._set_edge(value)
        whole_clip, index_made = self._before_whole_clip(), self._made_of_indices()
        for node in graph.node:
            stays = node.op_type in _FLOAT_OPS or node.name in whole_clip or node.name in index_made
            self._convert(node, half=not stays)
        for value in graph.output:
            if self._is_float(value.name):
                self._finish_output(value)
        del graph.node[:]
        graph.node.extend(self._nodes)
        drop_unused(self._model)
        return self._model

    def _is_float(self, tensor: str) -> bool:
        return self._types.get(tensor) == TensorProto.FLOAT

    def _set_edge(self, value: onnx.ValueInfoProto) -> None:
        half = self._half_edges(value.name)
        self._halves[value.name] = half
        if half:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16

    def _before_whole_clip(self) -> set[str]:
        """Names of the nodes a whole-clip normalisation depends on, and of the steps that finish it."""
        producer = {o: n for n in self._graph.node for o in n.output}
        found: set[str] = set()
        pending = [n for n in self._graph.node if n.op_type == _WHOLE_CLIP]
        while pending:
            node = pending.pop()
            if node.name not in found:
                found.add(node.name)
                pending += [producer[i] for i in node.input if i in producer]
        return found

    def _made_of_indices(self) -> set[str]:
        """Names of the nodes that compute floats from integers and constants alone."""
        from_indices: set[str] = set(self._constants)
        names = set()
        for node in self._graph.node:
            floats = [i for i in node.input if self._is_float(i)]
            if all(i in from_indices for i in floats) and any(self._is_float(o) for o in node.output):
                # A table looked up by ids is data, however it is addressed.
                if node.op_type == "Gather":
                    continue
                names.add(node.name)
                from_indices.update(node.output)
        return names

    def _convert(self, node: onnx.NodeProto, *, half: bool) -> None:
        if node.op_type == "Cast":
            to = next(a for a in node.attribute if a.name == "to")
            if to.i == TensorProto.FLOAT:
                self._halves[node.output[0]] = False
            self._nodes.append(node)
            return
        floats = [i for i in node.input if i and self._is_float(i)]
        if any(self._is_float(o) for o in node.output) or floats:
            node.input[:] = [self._as(i, half) if i and self._is_float(i) else i for i in node.input]
        for output in node.output:
            if output and output not in self._types:
                raise ConversionError(f"{self._model.graph.name}: the type of {output} is not known: no FP16 made")
            if self._is_float(output):
                self._halves[output] = half
        self._nodes.append(node)

    def _as(self, tensor: str, half: bool) -> str:
        """The tensor in the precision asked for."""
        if tensor in self._constants:
            return self._constant(tensor) if half else tensor
        if self._halves[tensor] == half:
            return tensor
        name = f"{tensor}.f16" if half else f"{tensor}.f32"
        if (tensor, half) not in self._casts:
            self._casts[tensor, half] = name
            to = TensorProto.FLOAT16 if half else TensorProto.FLOAT
            self._nodes.append(helper.make_node("Cast", [tensor], [name], name=f"{name}.cast", to=to))
        return name

    def _constant(self, name: str) -> str:
        made = f"{name}.f16"
        if (name, True) not in self._casts:
            value: npt.NDArray[Any] = np.asarray(numpy_helper.to_array(self._constants[name]))
            if value.size and float(np.abs(value).max()) > _LARGEST:
                raise ConversionError(f"{self._graph.name}: constant {name} does not fit into 16 bits")
            self._casts[name, True] = made
            self._graph.initializer.append(numpy_helper.from_array(value.astype(np.float16), made))
        return made

    def _finish_output(self, value: onnx.ValueInfoProto) -> None:
        """Give the output the type its readers expect: the producer writes an inner tensor, a cast the output."""
        wanted = self._half_edges(value.name)
        if wanted:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
        if self._halves[value.name] == wanted:
            return
        inner = f"{value.name}.inner"
        for node in self._nodes:
            node.input[:] = [inner if i == value.name else i for i in node.input]
            node.output[:] = [inner if o == value.name else o for o in node.output]
        to = TensorProto.FLOAT16 if wanted else TensorProto.FLOAT
        self._nodes.append(helper.make_node("Cast", [inner], [value.name], name=f"{value.name}.cast", to=to))


def names_of(*prefixes: str) -> Callable[[str], bool]:
    """A rule for `half_edges`: tensors whose name starts with one of these."""
    return lambda name: name.startswith(prefixes)
