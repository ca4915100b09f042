"""Matrix products in floats and bytes, and the normalisations between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node

__all__ = ["MAKERS"]

EXACT_DEPTH: Final = 512
"""Products of bytes that float32 adds up exactly: 512 * 255 * 128 is still below 2 ** 24."""


def _layer_norm(node: Node) -> Kernel:
    axis, epsilon = node.attribute("axis", -1), np.float32(node.attribute("epsilon", 1e-5))
    if node.outputs > 1:
        raise node.refuse("more than one output")

    def kernel(x: Array, scale: Array, bias: Array | None = None) -> Array:
        axes = tuple(range(axis % x.ndim, x.ndim))
        away = x - x.mean(axis=axes, keepdims=True)
        made: Array = away / np.sqrt(np.square(away).mean(axis=axes, keepdims=True) + epsilon) * scale
        return made if bias is None else made + bias

    return kernel


def _instance_norm(node: Node) -> Kernel:
    epsilon = np.float32(node.attribute("epsilon", 1e-5))

    def kernel(x: Array, scale: Array, bias: Array) -> Array:
        axes = tuple(range(2, x.ndim))
        shape = (1, -1, *(1 for _ in axes))
        # A whole clip is summed: in 32 bits the mean of a long one loses digits.
        away = x - x.mean(axis=axes, keepdims=True, dtype=np.float64).astype(x.dtype)
        spread = np.square(away).mean(axis=axes, keepdims=True, dtype=np.float64).astype(x.dtype)
        return np.asarray(away / np.sqrt(spread + epsilon) * scale.reshape(shape) + bias.reshape(shape))

    return kernel


def _softmax(node: Node) -> Kernel:
    axis = node.attribute("axis", -1 if node.opset >= 13 else 1)
    if node.opset < 13 and axis != -1:
        raise node.refuse("Softmax over several axes (before opset 13)")

    def kernel(x: Array) -> Array:
        made: Array = np.exp(x - x.max(axis=axis, keepdims=True))
        made /= made.sum(axis=axis, keepdims=True)
        return made

    return kernel


def _quantise(x: Array) -> tuple[Array, Array, Array]:
    """DynamicQuantizeLinear: u8 of the range, which has 0 in it; scale and zero point."""
    low, high = min(float(x.min(initial=0)), 0.0), max(float(x.max(initial=0)), 0.0)
    scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    if scale == 0:
        scale = np.float32(1)
    zero = np.uint8(np.clip(np.rint(np.float32(0) - np.float32(low) / scale), 0, 255))
    made = np.clip(np.rint(x / scale) + np.float32(zero), 0, 255).astype(np.uint8)
    return made, np.array(scale), np.array(zero)


def _integer_product(node: Node) -> Kernel:
    """Bytes times bytes, exactly: NumPy multiplies whole numbers without BLAS, so blocks are done in float32."""
    weights = node.take(1)
    kept = None if weights is None else _centred(weights, node.take(3) if 3 in node.constants else None)
    if kept is not None and node.inputs > 3 and 3 not in node.taken:
        raise node.refuse("constant weights with a zero point that is not constant")

    def kernel(a: Array, b: Array | None, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
        left = _centred(a, a_zero)
        right = kept if b is None else _centred(b, b_zero)
        assert right is not None
        blocks = range(0, right.shape[-2], EXACT_DEPTH)
        parts = (left[..., at : at + EXACT_DEPTH] @ right[..., at : at + EXACT_DEPTH, :] for at in blocks)
        total = next(parts).astype(np.int32)
        for part in parts:
            total += part.astype(np.int32)
        return total

    return kernel


def _centred(values: Array, zero: Array | None) -> npt.NDArray[np.float32]:
    made = values.astype(np.float32)
    return made if zero is None else made - zero.astype(np.float32)


MAKERS: Final[Mapping[str, Maker]] = {
    "DynamicQuantizeLinear": lambda node: _quantise,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda node: np.matmul,
    "MatMulInteger": _integer_product,
    "Softmax": _softmax,
}
"""Operator -> maker."""
