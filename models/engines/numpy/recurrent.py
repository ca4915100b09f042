"""The LSTM of the voice activity detector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from models.engines.base import Array
from models.engines.numpy.node import Kernel, Maker, Node

__all__ = ["MAKERS"]

_USUAL: Final = [b"Sigmoid", b"Tanh", b"Tanh"]
"""Activations of gates, cell and output."""


def _lstm(node: Node) -> Kernel:
    """Forward, standard activations; gates in ONNX's order: input, output, forget, cell."""
    for name, usual in (("direction", "forward"), ("layout", 0), ("input_forget", 0)):
        if node.attribute(name, usual) != usual:
            raise node.refuse(f"{name} {node.attributes[name]}")
    # Some exporters write down what holds anyway.
    if list(node.attribute("activations", _USUAL)) != _USUAL:
        raise node.refuse("activations other than the usual")
    for name in ("activation_alpha", "activation_beta", "clip"):
        if name in node.attributes:
            raise node.refuse(name)
    if node.inputs > 7:
        raise node.refuse("peepholes")
    size = node.attributes["hidden_size"]
    half = np.float32(0.5)

    def kernel(
        x: Array,
        weights: Array,
        recurrence: Array,
        bias: Array | None = None,
        lengths: Array | None = None,
        hidden: Array | None = None,
        cell: Array | None = None,
    ) -> tuple[Array, ...]:
        steps, batch = x.shape[:2]
        if lengths is not None and (lengths != steps).any():
            raise ValueError(f"sequences of different lengths {lengths.tolist()}")
        h = np.zeros((batch, size), np.float32) if hidden is None else hidden[0]
        c = np.zeros((batch, size), np.float32) if cell is None else cell[0]
        given = x @ weights[0].T
        if bias is not None:
            given = given + (bias[0, : 4 * size] + bias[0, 4 * size :])
        outputs = np.empty((steps, 1, batch, size), np.float32)
        for step in range(steps):
            gates = given[step] + h @ recurrence[0].T
            open_, out, forget = np.split(np.tanh(gates[:, : 3 * size] * half) * half + half, 3, axis=1)
            c = forget * c + open_ * np.tanh(gates[:, 3 * size :])
            h = out * np.tanh(c)
            outputs[step, 0] = h
        return (outputs, h[None], c[None])[: node.outputs]

    return kernel


MAKERS: Final[Mapping[str, Maker]] = {"LSTM": _lstm}
"""Operator -> maker."""
