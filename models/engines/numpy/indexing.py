"""Operators that pick and put elements by index. Negative indices count from the end, as NumPy's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node

__all__ = ["MAKERS"]


def _gather(node: Node) -> Kernel:
    axis = node.attribute("axis", 0)
    # `take` with an array of no dimensions gives a scalar, which is no array.
    return lambda x, indices: np.asarray(np.take(x, indices, axis=axis))


def _gather_elements(node: Node) -> Kernel:
    axis = node.attribute("axis", 0)

    def kernel(x: Array, indices: Array) -> Array:
        # `take_along_axis` spreads the other axes; ONNX takes those of the indices, which may be shorter.
        index: list[Array] = list(np.indices(indices.shape, sparse=True))
        index[axis] = indices
        return x[tuple(index)]

    return kernel


def _gather_nd(node: Node) -> Kernel:
    if node.attribute("batch_dims", 0):
        raise node.refuse("batch_dims")
    return lambda x, indices: np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])


def _scatter_nd(node: Node) -> Kernel:
    if node.attribute("reduction", "none") != "none":
        raise node.refuse(f"reduction {node.attributes['reduction']}")

    def kernel(x: Array, indices: Array, updates: Array) -> Array:
        made = x.copy()
        made[tuple(np.moveaxis(indices, -1, 0))] = updates
        return made

    return kernel


def _non_zero(node: Node) -> Kernel:
    return lambda x: np.array(np.nonzero(x), dtype=np.int64)


MAKERS: Final[Mapping[str, Maker]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _non_zero,
    "ScatterND": _scatter_nd,
}
"""Operator -> maker."""
