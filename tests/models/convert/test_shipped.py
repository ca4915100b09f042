"""Weights are found by the node that uses them, through the arithmetic that a file does on them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.convert.shipped import ShippedWeights
from models.errors import ConversionError

STORED = np.array([[-3, 1], [0, 7]], dtype=np.int8)


def _merged() -> onnx.ModelProto:
    """x @ (stored * 0.5 + 0.25) in one branch, x @ transposed in the other; the arithmetic stands outside."""
    branches = {}
    for name, weight in (("then_branch", "w"), ("else_branch", "wt")):
        node = helper.make_node("MatMul", ["x", weight], [f"{name}/out"])
        out = helper.make_tensor_value_info(f"{name}/out", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node], name, [], [out])
    nodes = [
        helper.make_node("Cast", ["stored"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["w"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("If", ["which"], ["y"], **branches),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    constants = {
        "stored": STORED,
        "scale": np.array([0.5], dtype=np.float32),
        "shift": np.array([0.25], dtype=np.float32),
    }
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
        helper.make_tensor_value_info("which", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        nodes,
        "merged",
        inputs,
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph)


def test_stored_integers_are_turned_into_the_weights_they_mean() -> None:
    weights = ShippedWeights(_merged())
    expected = STORED.astype(np.float32) * 0.5 + 0.25
    np.testing.assert_array_equal(weights.operand("then_branch/out"), expected)
    np.testing.assert_array_equal(weights.operand("else_branch/out"), expected.T)
    np.testing.assert_array_equal(weights.named("absent", "w"), expected)


@pytest.mark.parametrize("name", ["z", "y", "no/such/node"])
def test_a_node_without_a_constant_is_not_the_file_expected(name: str) -> None:
    with pytest.raises(ConversionError, match=f"'{name}': not the file expected"):
        ShippedWeights(_merged()).operand(name)


def test_a_missing_constant_is_not_the_file_expected() -> None:
    with pytest.raises(ConversionError, match=r"'norm\.weight': not the file expected"):
        ShippedWeights(_merged()).named("norm.weight", "norm.weight_merged")
