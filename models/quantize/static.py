"""Static INT8: quantise/dequantise pairs around products, with scales found by calibration.

Two dialects, for no file suits both (measured on real parsers):

- for TensorRT: symmetric s8 for activations and weights, a pair of its own for each consumer, float bias, float
  tables in front of a Gather, float outputs;
- for the CPU: u8 activations and s8 weights, pairs shared, and around `Conv` also the output and the bias, for
  onnxruntime makes a byte convolution only of a fully enclosed one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from models.convert.graph import quantise_columns
from models.quantize.ranges import Affine, Range
from models.quantize.sites import Site, add_constant, constant_of, copy_of, find_sites, weights_of

__all__ = ["drop_unused", "observed_tensors", "quantise_static"]

Floats = npt.NDArray[np.float32]


def observed_tensors(model: onnx.ModelProto) -> list[str]:
    """Tensors whose ranges `quantise_static` needs."""
    return [t for s in find_sites(model) for t in ((s.activation, s.output) if s.kind == "Conv" else (s.activation,))]


def quantise_static(
    model: onnx.ModelProto, ranges: Mapping[str, Range], keep_float: Collection[str] = (), *, tensorrt: bool
) -> onnx.ModelProto:
    """A copy of the model in which every site but those named in `keep_float` multiplies bytes."""
    result = copy_of(model)
    work = _Insertion(result, ranges, tensorrt)
    wanted = {s.name: s for s in find_sites(model) if s.name not in keep_float}
    nodes = []
    for node in result.graph.node:
        site = wanted.get(node.name)
        if site is None:
            nodes.append(node)
            continue
        before, after = work.around(node, site)
        nodes += [*before, node, *after]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    drop_unused(result)
    return result


class _Insertion:
    def __init__(self, model: onnx.ModelProto, ranges: Mapping[str, Range], tensorrt: bool) -> None:
        self._model = model
        self._ranges = ranges
        self._tensorrt = tensorrt
        self._shared: dict[str, str] = {}

    def around(self, node: onnx.NodeProto, site: Site) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
        """Nodes to put before and after `node`, whose inputs and output are renamed."""
        before: list[onnx.NodeProto] = []
        x_affine = self._affine(site.activation)
        if self._tensorrt:
            node.input[0] = self._pair(before, site.activation, f"{site.name}.x", x_affine)
        else:
            if site.activation not in self._shared:
                self._shared[site.activation] = self._pair(before, site.activation, site.activation, x_affine)
            node.input[0] = self._shared[site.activation]
        scale = self._weight(before, node, site)
        after: list[onnx.NodeProto] = []
        if site.kind == "Conv" and not self._tensorrt:
            if site.bias is not None:
                node.input[2] = self._bias(before, site, x_affine.scale * scale)
            node.output[0] = f"{site.name}.float"
            self._pair(after, node.output[0], f"{site.name}.y", self._affine(site.output))
            after[-1].output[0] = site.output
        return before, after

    def _affine(self, tensor: str) -> Affine:
        seen = self._ranges[tensor]
        return seen.symmetric() if self._tensorrt else seen.asymmetric()

    def _pair(self, out: list[onnx.NodeProto], tensor: str, name: str, affine: Affine) -> str:
        kind = np.int8 if self._tensorrt else np.uint8
        scale = add_constant(self._model, f"{name}.q_scale", np.array(affine.scale, dtype=np.float32))
        zero = add_constant(self._model, f"{name}.q_zero", np.array(affine.zero, dtype=kind))
        out.append(helper.make_node("QuantizeLinear", [tensor, scale, zero], [f"{name}.q"], name=f"{name}.quantise"))
        out.append(
            helper.make_node("DequantizeLinear", [f"{name}.q", scale, zero], [f"{name}.dq"], name=f"{name}.dequantise")
        )
        return f"{name}.dq"

    def _weight(self, out: list[onnx.NodeProto], node: onnx.NodeProto, site: Site) -> Floats:
        """Replace the float weights; returns the scales [out]."""
        weight = weights_of(self._model, site)
        columns = weight if site.kind == "MatMul" else weight.reshape(weight.shape[0], -1).T
        quantised, scale = _symmetric(columns) if self._tensorrt else quantise_columns(columns)
        if site.kind == "Conv":
            quantised = np.ascontiguousarray(quantised.T).reshape(weight.shape)
        names = [
            add_constant(self._model, f"{site.name}.weight_s8", quantised),
            add_constant(self._model, f"{site.name}.weight_scale", scale),
            add_constant(self._model, f"{site.name}.weight_zero", np.zeros(scale.shape, dtype=np.int8)),
        ]
        made, name = f"{site.name}.weight_dq", f"{site.name}.weight.dequantise"
        out.append(helper.make_node("DequantizeLinear", names, [made], name=name, axis=site.channel_axis))
        node.input[1] = made
        return scale

    def _bias(self, out: list[onnx.NodeProto], site: Site, scale: Floats) -> str:
        bias = constant_of(self._model, site.bias or "")
        # A channel that is always 0 has the smallest scale there is; the product of two such would be 0.
        scale = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
        whole = np.clip(np.rint(bias.astype(np.float64) / scale), -(2**31) + 1, 2**31 - 1).astype(np.int32)
        names = [
            add_constant(self._model, f"{site.name}.bias_s32", whole),
            add_constant(self._model, f"{site.name}.bias_scale", scale),
            add_constant(self._model, f"{site.name}.bias_zero", np.zeros(scale.shape, dtype=np.int32)),
        ]
        made, name = f"{site.name}.bias_dq", f"{site.name}.bias.dequantise"
        out.append(helper.make_node("DequantizeLinear", names, [made], name=name, axis=0))
        return made


def _symmetric(columns: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """s8 with one scale a column, the whole range used: tensor cores sum in 32 bits."""
    scale = np.maximum(np.abs(columns).max(axis=0) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(columns / scale).astype(np.int8), scale


def drop_unused(model: onnx.ModelProto) -> None:
    """Weights that nothing reads any more would be stored for nothing."""
    used = {name for node in model.graph.node for name in node.input} | {o.name for o in model.graph.output}
    kept = [t for t in model.graph.initializer if t.name in used]
    if len(kept) < len(model.graph.initializer):
        kept = [_copied(t) for t in kept]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)


def _copied(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    return copy
