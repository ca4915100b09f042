"""A node of a graph as the makers of kernels see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.engines.base import Array
from models.errors import UnsupportedOperatorError

__all__ = ["Kernel", "Maker", "Node", "axes_of", "ints"]

Kernel = Callable[..., "Array | tuple[Array, ...]"]
"""Takes the node's inputs in order (None for one left out), gives its output, or a tuple where there are several."""


@dataclass(slots=True)
class Node:
    """One operation: attributes read, constant inputs at hand."""

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    """As `onnx.helper.get_attribute_value` gives them; tensors as arrays, text as str."""
    constants: Mapping[int, Array]
    """Position -> value, for the inputs that are known when the graph is compiled."""
    inputs: int
    outputs: int
    taken: set[int] = field(default_factory=set)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute, or its default."""
        return self.attributes.get(name, default)

    def take(self, position: int) -> Array | None:
        """A constant input that the kernel keeps in a form of its own: it is passed as None from then on."""
        value = self.constants.get(position)
        if value is not None:
            self.taken.add(position)
        return value

    def refuse(self, what: str) -> UnsupportedOperatorError:
        """The error for a form of the operator that no model of ours has."""
        return UnsupportedOperatorError(f"{self.op} ({self.name}): {what} is not supported by the NumPy backend")


Maker = Callable[[Node], Kernel]
"""Compiles a node."""


def ints(values: Array | None) -> tuple[int, ...]:
    """An array of whole numbers as a tuple; empty for None."""
    return () if values is None else tuple(int(v) for v in np.atleast_1d(values))


def axes_of(node: Node, axes: Array | None) -> tuple[int, ...]:
    """The axes, which were an attribute in older opsets and are an input in newer ones."""
    given = node.attributes.get("axes")
    return tuple(given) if given is not None else ints(axes)
