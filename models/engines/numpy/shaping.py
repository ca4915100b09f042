"""Operators that move, cut and join arrays, and those that make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node, axes_of, ints

__all__ = ["MAKERS", "VIEWS"]


def _constant(node: Node) -> Kernel:
    attributes = node.attributes
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if name in attributes:
            made = np.asarray(attributes[name], dtype=dtype)
            return lambda: made
    if "value_ints" in attributes:
        whole = np.asarray(attributes["value_ints"], dtype=np.int64)
        return lambda: whole
    if "value" not in attributes:
        raise node.refuse(f"a constant of {', '.join(attributes)}")
    value: Array = attributes["value"]
    return lambda: value


def _filled(node: Node) -> Kernel:
    value = node.attribute("value", np.zeros(1, dtype=np.float32))
    return lambda shape: np.full(ints(shape), value.reshape(-1)[0], dtype=value.dtype)


def _shape(node: Node) -> Kernel:
    start, end = node.attribute("start", 0), node.attribute("end", None)
    return lambda x: np.array(x.shape[start:end], dtype=np.int64)


def _reshape(node: Node) -> Kernel:
    zero_is_zero = bool(node.attribute("allowzero", 0))

    def kernel(x: Array, shape: Array) -> Array:
        wanted = shape.tolist()
        if not zero_is_zero:
            wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
        return x.reshape(wanted)

    return kernel


def _transpose(node: Node) -> Kernel:
    order = node.attribute("perm", None)
    return lambda x: x.transpose(order)


def _unsqueeze(node: Node) -> Kernel:
    return lambda x, axes=None: np.expand_dims(x, axes_of(node, axes))


def _squeeze(node: Node) -> Kernel:
    return lambda x, axes=None: np.squeeze(x, axes_of(node, axes) or None)


def _concat(node: Node) -> Kernel:
    axis = node.attributes["axis"]
    return lambda *parts: np.concatenate(parts, axis=axis)


def _split(node: Node) -> Kernel:
    axis, count = node.attribute("axis", 0), node.outputs
    old = node.attributes.get("split")

    def kernel(x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
        given = tuple(old) if old is not None else ints(sizes)
        if not given:
            each = -(-x.shape[axis] // count)  # the last part may be smaller
            given = (*[each] * (count - 1), x.shape[axis] - each * (count - 1))
        if sum(given) != x.shape[axis] or len(given) != count:
            raise ValueError(f"parts of {given} do not make {x.shape[axis]}")
        return tuple(np.split(x, np.cumsum(given)[:-1], axis=axis))

    return kernel


def _slice(node: Node) -> Kernel:
    if node.opset < 10:
        raise node.refuse("Slice before opset 10")

    def kernel(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
        first, last = ints(starts), ints(ends)
        where = ints(axes) if axes is not None else tuple(range(len(first)))
        step = ints(steps) if steps is not None else (1,) * len(first)
        index: list[slice] = [slice(None)] * x.ndim
        for axis, a, b, s in zip(where, first, last, step, strict=True):
            index[axis] = _python_slice(a, b, s, x.shape[axis])
        return x[tuple(index)]

    return kernel


def _python_slice(start: int, end: int, step: int, size: int) -> slice:
    """ONNX clamps, Python reads -1 as the last: the two differ going backwards past the first element."""
    if step > 0:
        return slice(start, end, step)
    start = min(start + size if start < 0 else start, size - 1)
    end = end + size if end < 0 else end
    return slice(start, None if end < 0 else end, step) if start >= 0 else slice(0, 0, step)


def _pad(node: Node) -> Kernel:
    mode = node.attribute("mode", "constant")
    if mode not in ("constant", "reflect", "edge"):
        raise node.refuse(f"mode {mode}")

    def kernel(x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
        sizes = ints(pads)
        where = ints(axes) if axes is not None else tuple(range(x.ndim))
        widths = [(0, 0)] * x.ndim
        for i, axis in enumerate(where):
            widths[axis] = (sizes[i], sizes[i + len(where)])
        # Negative widths cut.
        cut = tuple(slice(max(0, -a), size - max(0, -b)) for (a, b), size in zip(widths, x.shape, strict=True))
        widths = [(max(0, a), max(0, b)) for a, b in widths]
        if mode == "constant":
            fill = 0 if value is None else value.reshape(-1)[0]
            return np.pad(x[cut], widths, constant_values=fill)
        return np.pad(x[cut], widths, mode=mode)

    return kernel


def _range(node: Node) -> Kernel:
    return lambda start, limit, step: np.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)


def _expand(node: Node) -> Kernel:
    return lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape)))


MAKERS: Final[Mapping[str, Maker]] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Identity": lambda node: lambda x: x,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""Operator -> maker."""

VIEWS: Final = frozenset(
    (
        *("Cast", "Clip", "Expand", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
        *("ReduceMax", "ReduceMean", "ReduceSum"),
    )
)
"""Operators whose output may lie in their input's memory."""
