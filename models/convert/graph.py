"""A small ONNX graph builder: the few layers our hand-written graphs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["OPSET", "GraphBuilder", "TensorSpec"]

OPSET = 17
"""LayerNormalization exists from here on; TensorRT 10.3 and onnxruntime read it."""
_IR_VERSION = 8
"""The IR that belongs to opset 17."""

Floats = npt.NDArray[np.float32]
TensorSpec = tuple[str, int, Sequence[int | str]]
"""Name, `TensorProto` element type, dimensions (a string is a free one)."""


class GraphBuilder:
    """Collects nodes and constants. Methods take and return tensor names.

    With `int8`, `linear` multiplies bytes: activations are quantised at every call to u8 with one scale for the
    tensor, weights are stored s8 with one scale for each output channel. onnxruntime fuses the pattern into one
    kernel; the nodes themselves are standard ONNX, so that any executor can run the file.
    """

    def __init__(self, name: str, *, int8: bool = False) -> None:
        self.name = name
        self.int8 = int8
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, npt.NDArray[Any]] = {}

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """A named constant. The same name with another value is a mistake in the recipe."""
        known = self._constants.setdefault(name, value)
        if known is not value and not np.array_equal(known, value):
            raise ValueError(f"{self.name}: constant {name} has two values")
        return name

    def ints(self, *values: int) -> str:
        """A 1-D int64 constant; equal ones are shared."""
        return self.constant("i64_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def index(self, value: int) -> str:
        """A scalar int64 constant; equal ones are shared."""
        return self.constant(f"index_{value}", np.array(value, dtype=np.int64))

    def scalar(self, value: float) -> str:
        """A scalar float32 constant; equal ones are shared."""
        return self.constant(f"f32_{value!r}", np.array(value, dtype=np.float32))

    def node(self, kind: str, *inputs: str, name: str, **attributes: Any) -> str:
        """A node with one output, which gets the node's name."""
        return self.split_node(kind, *inputs, outputs=[name], name=name, **attributes)[0]

    def split_node(
        self, kind: str, *inputs: str, outputs: Sequence[str], name: str, **attributes: Any
    ) -> Sequence[str]:
        """A node with the outputs named."""
        self._nodes.append(helper.make_node(kind, list(inputs), list(outputs), name=name, **attributes))
        return outputs

    # ---- layers -----------------------------------------------------------------------------------

    def layer_norm(self, x: str, weight: Floats, name: str) -> str:
        """LayerNorm over the last axis, without bias, epsilon 1e-5."""
        return self.node(
            "LayerNormalization", x, self.constant(f"{name}.weight", weight), name=name, axis=-1, epsilon=1e-5
        )

    def gelu(self, x: str, name: str) -> str:
        """The exact GELU, in the form that onnxruntime fuses into one node."""
        scaled = self.node("Div", x, self.scalar(float(np.sqrt(np.float32(2)))), name=f"{name}.div")
        erf = self.node("Erf", scaled, name=f"{name}.erf")
        plus = self.node("Add", erf, self.scalar(1.0), name=f"{name}.plus")
        twice = self.node("Mul", x, plus, name=f"{name}.twice")
        return self.node("Mul", twice, self.scalar(0.5), name=name)

    def linear(self, x: str, weight: Floats, name: str, bias: Floats | None = None) -> str:
        """`x @ weight (+ bias)`, weight [in, out]."""
        product = f"{name}.product" if bias is not None else name
        if self.int8:
            self._linear_int8(x, weight, product)
        else:
            self.node("MatMul", x, self.constant(f"{name}.weight", np.ascontiguousarray(weight)), name=product)
        if bias is None:
            return product
        return self.node("Add", product, self.constant(f"{name}.bias", bias), name=name)

    def _linear_int8(self, x: str, weight: Floats, name: str) -> str:
        quantised, scale = quantise_columns(weight)
        bytes_, x_scale, x_zero = self.split_node(
            "DynamicQuantizeLinear",
            x,
            outputs=[f"{name}.u8", f"{name}.scale", f"{name}.zero"],
            name=f"{name}.quantise",
        )
        weights = self.constant(f"{name}.weight_s8", quantised)
        zeros = self.constant(f"{name}.weight_zero", np.zeros(scale.shape, dtype=np.int8))
        sums = self.node("MatMulInteger", bytes_, weights, x_zero, zeros, name=f"{name}.s32")
        floats = self.node("Cast", sums, name=f"{name}.f32", to=TensorProto.FLOAT)
        scales = self.node("Mul", x_scale, self.constant(f"{name}.weight_scale", scale), name=f"{name}.scales")
        return self.node("Mul", floats, scales, name=name)

    def embedding(self, ids: str, table: Floats, name: str) -> str:
        """Rows of `table` [entries, width]; with `int8` stored s8 with one scale a row."""
        if not self.int8:
            return self.node("Gather", self.constant(f"{name}.table", table), ids, name=name, axis=0)
        quantised, scale = quantise_rows(table)
        rows = self.node("Gather", self.constant(f"{name}.table_s8", quantised), ids, name=f"{name}.s8", axis=0)
        scales = self.node("Gather", self.constant(f"{name}.scale", scale), ids, name=f"{name}.scales", axis=0)
        floats = self.node("Cast", rows, name=f"{name}.f32", to=TensorProto.FLOAT)
        return self.node("Mul", floats, scales, name=name)

    # ---- the end ----------------------------------------------------------------------------------

    def model(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> onnx.ModelProto:
        """The finished, checked model."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info(*spec) for spec in inputs],
            [helper.make_tensor_value_info(*spec) for spec in outputs],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="wren",
        )
        onnx.checker.check_model(model)
        return model


def quantise_columns(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Symmetric s8 with one scale a column: (s8 [in, out], scale [out]); `weight` is about s8 * scale.

    The scale is large enough that no product saturates on a CPU without VNNI: there (AVX2, `vpmaddubsw`) the products
    of two neighbouring rows with u8 activations are summed in 16 bits, so two weights of one sign may come to 128
    together and no more (128 * 255 = 32,640). With the usual scale, max / 127, Moonshine's logits had 8 dB of signal
    to noise on such a CPU; with this one 28 dB on every CPU, where an exact product of the usual weights has 29 dB.
    """
    even, odd = weight[: len(weight) // 2 * 2 : 2], weight[1::2]
    # Half a step of rounding on each of the two: 127 and one more.
    pairs = np.where(even * odd > 0, np.abs(even + odd), 0).max(axis=0, initial=0) / 127
    largest = np.maximum(np.abs(weight).max(axis=0) / 127, pairs)
    scale = np.maximum(largest, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def quantise_rows(table: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Symmetric s8 with one scale a row: (s8 [rows, width], scale [rows, 1]), for a table that is looked up."""
    largest = np.abs(table).max(axis=1, keepdims=True) / 127
    scale = np.maximum(largest, np.finfo(np.float32).tiny).astype(np.float32)
    return np.rint(table / scale).astype(np.int8), scale
