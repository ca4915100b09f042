"""Convolutions over time, grouped, dilated, strided and transposed, as matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node

__all__ = ["MAKERS"]

BLOCK: Final = 1024
"""Output samples that are done at a time: the copied windows of more would not stay in a cache (measured: 512 to 4096
are within 5 % of each other)."""


def _conv(node: Node) -> Kernel:
    group, dilation, stride, before, behind = _geometry(node)

    def kernel(x: Array, weights: Array, bias: Array | None = None) -> Array:
        batch, channels, _ = _three(node, x)
        out_channels, depth, taps = weights.shape
        if depth * group != channels:
            raise ValueError(f"{channels} channels for weights of {depth} in {group} groups")
        if before or behind:
            x = np.pad(x, ((0, 0), (0, 0), (before, behind)))
        length = (x.shape[2] - (taps - 1) * dilation - 1) // stride + 1
        if length < 1:
            raise ValueError(f"{x.shape[2]} samples are fewer than the kernel's reach of {(taps - 1) * dilation + 1}")
        matrix = weights.reshape(group, out_channels // group, depth * taps)
        if taps == 1 and stride == 1:
            made = matrix @ x.reshape(batch, group, depth, length)
        else:
            made = _windowed(x.reshape(batch, group, depth, -1), matrix, taps, dilation, stride, length)
        made = made.reshape(batch, out_channels, length)
        if bias is not None:
            made += bias[:, None]
        return made

    return kernel


def _windowed(x: Array, matrix: Array, taps: int, dilation: int, stride: int, length: int) -> Array:
    """`matrix` [group, out, depth * taps] over windows of `x` [batch, group, depth, n], `BLOCK` outputs at a time."""
    batch, group, depth, _ = x.shape
    made = np.empty((batch, group, matrix.shape[1], length), dtype=x.dtype)
    steps = (*x.strides[:3], x.strides[3] * dilation, x.strides[3] * stride)
    windows = np.empty((batch, group, depth * taps, min(BLOCK, length)), dtype=x.dtype)
    for at in range(0, length, BLOCK):
        count = min(BLOCK, length - at)
        view = as_strided(x[..., at * stride :], (batch, group, depth, taps, count), steps, writeable=False)
        block = windows[..., :count]
        block.reshape(batch, group, depth, taps, count)[...] = view
        made[..., at : at + count] = matrix @ block
    return made


def _conv_transpose(node: Node) -> Kernel:
    group, dilation, stride, before, behind = _geometry(node)
    if "output_shape" in node.attributes:
        raise node.refuse("output_shape")
    (extra,) = node.attribute("output_padding", [0])

    def kernel(x: Array, weights: Array, bias: Array | None = None) -> Array:
        batch, channels, length = _three(node, x)
        if weights.shape[0] != channels:
            raise ValueError(f"{channels} channels for weights of {weights.shape[0]}")
        _, width, taps = weights.shape
        depth = channels // group
        matrix = weights.reshape(group, depth, width * taps).transpose(0, 2, 1)
        spread = (matrix @ x.reshape(batch, group, depth, length)).reshape(batch, group * width, taps, length)
        # Room for what the last tap's stride covers; cut below.
        made = np.zeros((batch, group * width, (taps - 1) * dilation + stride * length + extra), dtype=x.dtype)
        for tap in range(taps):
            at = tap * dilation
            made[..., at : at + stride * length : stride] += spread[:, :, tap]
        full = stride * (length - 1) + (taps - 1) * dilation + 1 + extra
        made = made[..., before : full - behind]
        return made if bias is None else made + bias[:, None]

    return kernel


def _geometry(node: Node) -> tuple[int, int, int, int, int]:
    """Groups, dilation, stride, padding before and behind."""
    # VALID is "no padding": what holds where none is given.
    if node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID", ""):
        raise node.refuse(f"auto_pad {node.attributes['auto_pad']}")
    kernel = node.attribute("kernel_shape", [1])
    if len(kernel) != 1:
        raise node.refuse(f"a kernel of {len(kernel)} dimensions")
    before, behind = node.attribute("pads", [0, 0])
    return (
        int(node.attribute("group", 1)),
        int(node.attribute("dilations", [1])[0]),
        int(node.attribute("strides", [1])[0]),
        int(before),
        int(behind),
    )


def _three(node: Node, x: Array) -> tuple[int, int, int]:
    if x.ndim != 3:
        raise node.refuse(f"an input of shape {x.shape}")
    return x.shape


MAKERS: Final[Mapping[str, Maker]] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
"""Operator -> maker."""
