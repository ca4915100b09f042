"""Cutting a graph gives parts that together are the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.convert.surgery import cut
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])


def _whole() -> onnx.ModelProto:
    """out = (x + one) * two - one, with a side branch that nobody needs."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["/Add_output_0"], name="add"),
        helper.make_node("Neg", ["side"], ["unused"], name="neg"),
        helper.make_node("Mul", ["/Add_output_0", "two"], ["/Mul_output_0"], name="mul"),
        helper.make_node("Sub", ["/Mul_output_0", "one"], ["out"], name="sub"),
    ]
    constants = {"one": np.ones(2, np.float32), "two": np.full(2, 2, np.float32), "side": np.zeros(2, np.float32)}
    weights = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "whole", [_value("x")], [_value("out")], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_two_parts_in_a_row_are_the_whole_and_carry_only_their_weights(tmp_path: Path) -> None:
    names = {"/Add_output_0": "latent"}
    first = cut(_whole(), [_value("x")], [_value("latent")], names, "first")
    second = cut(_whole(), [_value("latent")], [_value("out")], names, "second")
    assert [w.name for w in first.graph.initializer] == ["one"]
    assert [n.name for n in second.graph.node] == ["mul", "sub"]
    for model in (first, second):
        onnx.checker.check_model(model)
        onnx.save(model, tmp_path / f"{model.graph.name}.onnx")
    x = np.array([3, -4], dtype=np.float32)
    latent = OrtCpuEngine(tmp_path / "first.onnx").stream().run({"x": x})["latent"]
    out = OrtCpuEngine(tmp_path / "second.onnx").stream().run({"latent": latent})["out"]
    np.testing.assert_array_equal(out, (x + 1) * 2 - 1)


def test_a_tensor_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ConversionError, match="'/Nowhere_output_0' cannot be had"):
        cut(_whole(), [_value("x")], [_value("latent")], {"/Nowhere_output_0": "latent"}, "part")
    with pytest.raises(ConversionError, match="tensor 'x' cannot be had"):
        cut(_whole(), [], [_value("out")], {}, "part")


def test_a_node_with_a_graph_of_its_own_is_refused() -> None:
    branch = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "b", [], [_value("b")])
    node = helper.make_node("If", ["which"], ["out"], name="if", then_branch=branch, else_branch=branch)
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, [])
    model = helper.make_model(helper.make_graph([node], "g", [which, _value("x")], [_value("out")]))
    with pytest.raises(ConversionError, match="node if holds a graph"):
        cut(model, [which, _value("x")], [_value("out")], {}, "part")
