"""Operators that work element by element, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node, axes_of

__all__ = ["MAKERS"]


def _same(kernel: Callable[..., Any]) -> Maker:
    """A maker for an operator without attributes."""
    return lambda node: kernel


def _divide(a: Array, b: Array) -> Array:
    """ONNX divides whole numbers towards zero."""
    if np.issubdtype(a.dtype, np.integer):
        return np.asarray(np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b), dtype=a.dtype)
    return np.asarray(np.divide(a, b))


def _power(node: Node) -> Kernel:
    exponent = node.constants.get(1)
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0:
        return lambda a, _: np.square(a)
    return lambda a, b: np.power(a, b).astype(a.dtype, copy=False)


def _erf(x: Array) -> Array:
    """Abramowitz and Stegun 7.1.26: within 1.5e-7, which is float32's own precision. NumPy has none."""
    size = np.abs(x)
    t = 1 / (1 + x.dtype.type(0.3275911) * size)
    total = t.dtype.type(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = total * t + t.dtype.type(factor)
    return np.asarray(np.copysign(1 - total * t * np.exp(-size * size), x))


def _sigmoid(x: Array) -> Array:
    """By way of tanh, which cannot overflow."""
    half = x.dtype.type(0.5)
    return np.asarray(np.tanh(x * half) * half + half)


def _leaky(node: Node) -> Kernel:
    alpha = np.float32(node.attribute("alpha", 0.01))
    if not 0 <= alpha <= 1:
        raise node.refuse(f"a slope of {alpha}")
    return lambda x: np.maximum(x, x * x.dtype.type(alpha))


def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    return np.asarray(np.clip(x, low, high)) if low is not None or high is not None else x


def _cast(node: Node) -> Kernel:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(node.attributes["to"])
    return lambda x: x.astype(dtype, copy=False)


def _reduce(function: Callable[..., Any]) -> Maker:
    def make(node: Node) -> Kernel:
        keep = bool(node.attribute("keepdims", 1))

        def kernel(x: Array, axes: Array | None = None) -> Array:
            found = axes_of(node, axes)
            if not found and node.attribute("noop_with_empty_axes", 0):
                return x
            return np.asarray(function(x, axis=found or None, keepdims=keep), dtype=x.dtype)

        return kernel

    return make


def _cumulated(node: Node) -> Kernel:
    if node.attribute("exclusive", 0) or node.attribute("reverse", 0):
        raise node.refuse("an exclusive or reversed sum")
    return lambda x, axis: np.cumsum(x, axis=int(axis), dtype=x.dtype)


def _random_like(node: Node) -> Kernel:
    """Normal noise, other at each call. A voice whose `noise_scale` is 0 multiplies it by 0."""
    mean, scale, seed = node.attribute("mean", 0.0), node.attribute("scale", 1.0), node.attributes.get("seed")

    def kernel(x: Array) -> Array:
        random = np.random.default_rng(None if seed is None else int(seed))
        return random.normal(mean, scale, x.shape).astype(np.float32)

    return kernel


MAKERS: Final[Mapping[str, Maker]] = {
    "Add": _same(np.add),
    "And": _same(np.logical_and),
    "Cast": _cast,
    "Ceil": _same(np.ceil),
    "Clip": _same(_clip),
    "Cos": _same(np.cos),
    "CumSum": _cumulated,
    "Div": _same(_divide),
    "Equal": _same(np.equal),
    "Erf": _same(_erf),
    "Exp": _same(np.exp),
    "Greater": _same(np.greater),
    "GreaterOrEqual": _same(np.greater_equal),
    "LeakyRelu": _leaky,
    "Less": _same(np.less),
    "LessOrEqual": _same(np.less_equal),
    "Mul": _same(np.multiply),
    "Neg": _same(np.negative),
    "Not": _same(np.logical_not),
    "Pow": _power,
    "RandomNormalLike": _random_like,
    "ReduceMax": _reduce(np.max),
    "ReduceMean": _reduce(np.mean),
    "ReduceSum": _reduce(np.sum),
    "Relu": _same(lambda x: np.maximum(x, 0)),
    "Sigmoid": _same(_sigmoid),
    "Sin": _same(np.sin),
    "Softplus": _same(lambda x: np.logaddexp(x, x.dtype.type(0))),
    "Sqrt": _same(np.sqrt),
    "Sub": _same(np.subtract),
    "Tanh": _same(np.tanh),
    "Where": _same(np.where),
}
"""Operator -> maker."""
