"""Reading weights out of a model file as it was shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from models.errors import ConversionError

__all__ = ["ShippedWeights", "save_as_onnx"]


def save_as_onnx(source: Path, target: Path) -> None:
    """Have onnxruntime write a `.ort` file (its own flatbuffer) as `.onnx`, unchanged."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ONNX")
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


class ShippedWeights:
    """Constants of a graph, found by the node that uses them: exporters name nodes after the module tree.

    Constants that the file computes (weights stored as integers, then cast, scaled and shifted) are evaluated.
    Branches of `If` nodes count as part of the graph; where two have a node of one name, the first one wins.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self._producers: dict[str, onnx.NodeProto] = {}
        self._collect(model.graph)

    def _collect(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._constants.setdefault(tensor.name, numpy_helper.to_array(tensor))
        for node in graph.node:
            # Branches first: what an `If` gives out is made in them.
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self._collect(attribute.g)
            for output in node.output:
                self._producers.setdefault(output, node)

    def operand(self, *outputs: str) -> npt.NDArray[np.float32]:
        """The constant that the node works with which produces the first of these outputs that exists.

        Raises `ConversionError` if there is none.
        """
        node = next((self._producers[output] for output in outputs if output in self._producers), None)
        for name in node.input if node is not None else ():
            value = self._evaluate(name)
            if value is not None:
                return value.astype(np.float32)
        raise ConversionError(f"the shipped model has no constant operand at {outputs[0]!r}: not the file expected")

    def named(self, *names: str) -> npt.NDArray[np.float32]:
        """The constant of the first of these names that exists. Raises `ConversionError`."""
        for name in names:
            value = self._evaluate(name)
            if value is not None:
                return value.astype(np.float32)
        raise ConversionError(f"the shipped model has no constant {names[0]!r}: not the file expected")

    def _evaluate(self, name: str) -> npt.NDArray[Any] | None:
        """The value of a constant, or None where it depends on the model's inputs."""
        if name in self._constants:
            return self._constants[name]
        node = self._producers.get(name)
        if node is None or node.op_type not in ("Cast", "Mul", "Add", "Transpose"):
            return None
        inputs = [self._evaluate(i) for i in node.input]
        if any(value is None for value in inputs):
            return None
        first, *rest = (np.asarray(value) for value in inputs)
        if node.op_type == "Cast":
            return first.astype(np.float32)
        if node.op_type == "Transpose":
            return first.transpose()
        return np.asarray(first * rest[0] if node.op_type == "Mul" else first + rest[0])
