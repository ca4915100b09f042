"""Moving outliers from activations into weights, so that both fit into 8 bits; the function stays the same.

A few channels of an activation are often ten times as large as all others, and one scale for the tensor then leaves
the others a few steps. Channel c of the activation is divided by s_c and the weights that meet it are multiplied by
it, with s_c = max|x_c|^a / max|w_c|^(1 - a) (Xiao et al., "SmoothQuant", 2023). Where the activation comes out of a
normalisation that nothing else reads, the division costs nothing: it goes into that one's weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from models.quantize.ranges import Feed, values_of
from models.quantize.sites import Site, add_constant, copy_of, find_sites, weights_of

__all__ = ["channel_peaks", "equalise"]

Floats = npt.NDArray[np.float32]

STRENGTH = 0.5
"""`a`: 0 leaves the activations as they are, 1 makes all their channels alike."""
_LIMITS = (1e-2, 1e2)
"""A channel is changed by no more than this, lest FP16 or a denormal be met on the way."""


def channel_peaks(model: onnx.ModelProto, feeds: Iterable[Feed]) -> dict[str, Floats]:
    """Largest magnitude of each input channel of every site's activation, over all feeds: tensor -> [channels]."""
    axes = {s.activation: (1 if s.kind == "Conv" else -1) for s in find_sites(model)}
    peaks: dict[str, Floats] = {}
    for values in values_of(model, list(axes), feeds):
        for tensor, value in values.items():
            rows = np.abs(np.moveaxis(value, axes[tensor], -1)).reshape(-1, value.shape[axes[tensor]])
            peak = rows.max(axis=0, initial=0)
            peaks[tensor] = np.maximum(peaks[tensor], peak) if tensor in peaks else peak
    return peaks


def equalise(
    model: onnx.ModelProto, peaks: Mapping[str, Floats], keep_float: Collection[str] = (), strength: float = STRENGTH
) -> onnx.ModelProto:
    """A copy that computes the same in FP32 and suits 8 bits better. Grouped convolutions are left alone."""
    result = copy_of(model)
    readers = Counter(i for n in result.graph.node for i in n.input)
    producer = {o: n for n in result.graph.node for o in n.output}
    constants = {t.name: t for t in result.graph.initializer}
    nodes = {n.name: n for n in result.graph.node}
    before: dict[str, onnx.NodeProto] = {}
    for site in find_sites(model):
        scale = _scales(model, site, peaks, strength) if site.name not in keep_float else None
        if scale is None or readers[site.weight] > 1:
            continue
        weight = weights_of(model, site)
        column = scale[:, None] if site.kind == "MatMul" else scale.reshape(1, -1, *[1] * (weight.ndim - 2))
        _replace(constants[site.weight], np.asarray(weight * column, dtype=np.float32))
        source = producer.get(site.activation)
        if source is not None and source.op_type == "LayerNormalization" and readers[site.activation] == 1:
            # Its output is read here alone: the division goes into its own weights (and shift).
            for name in source.input[1:]:
                _replace(constants[name], np.asarray(numpy_helper.to_array(constants[name]) / scale, dtype=np.float32))
            continue
        shape = (-1,) if site.kind == "MatMul" else (-1, *[1] * (weight.ndim - 2))
        inverse = add_constant(result, f"{site.name}.equaliser", (1 / scale).reshape(shape).astype(np.float32))
        made = f"{site.name}.equalised"
        before[site.name] = helper.make_node("Mul", [site.activation, inverse], [made], name=made)
        nodes[site.name].input[0] = made
    ordered = [m for n in result.graph.node for m in ((before[n.name], n) if n.name in before else (n,))]
    del result.graph.node[:]
    result.graph.node.extend(ordered)
    return result


def _scales(model: onnx.ModelProto, site: Site, peaks: Mapping[str, Floats], strength: float) -> Floats | None:
    """s_c [input channels], or None where the site is better left alone."""
    weight, peak = weights_of(model, site), peaks.get(site.activation)
    if peak is None or (site.kind == "Conv" and weight.shape[1] != peak.size):
        return None
    axis = 0 if site.kind == "MatMul" else 1
    others = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(axis=others)
    if not (peak > 0).all() or not (largest > 0).all():
        return None
    scale = peak**strength / largest ** (1 - strength)
    scale /= np.exp(np.log(scale).mean())
    return np.asarray(np.clip(scale, *_LIMITS), dtype=np.float32)


def _replace(tensor: onnx.TensorProto, value: Floats) -> None:
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
