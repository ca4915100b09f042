"""Byte products become float products of the weights they mean, in branches too; the rest stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.convert.shipped import ShippedWeights
from models.convert.unquantise import with_float_products
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError

Floats = npt.NDArray[np.float32]

STORED = np.random.default_rng(1).integers(0, 255, (8, 6), dtype=np.uint8)
SCALE, ZERO = np.linspace(0.01, 0.03, 6, dtype=np.float32), np.full(6, 120, dtype=np.uint8)
TABLE = np.random.default_rng(2).integers(0, 255, (10, 8), dtype=np.uint8)
TABLE_SCALE, TABLE_ZERO = np.array(0.02, dtype=np.float32), np.array(130, dtype=np.uint8)
BIAS = np.arange(6, dtype=np.float32)
MEANT: Floats = ((STORED.astype(np.float32) - ZERO) * SCALE).astype(np.float32)
ROWS: Floats = ((TABLE.astype(np.float32) - TABLE_ZERO) * TABLE_SCALE).astype(np.float32)


def _branch(name: str, tail: list[onnx.NodeProto], extra: dict[str, npt.NDArray[np.uint8]]) -> onnx.GraphProto:
    """Rows of the table through the product twice: once fused, once rounded by a node of its own."""
    weight = ["stored", "scale", "zero"]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], [f"{name}/rows_q"]),
        helper.make_node("DequantizeLinear", [f"{name}/rows_q", "table_scale", "table_zero"], [f"{name}/rows"]),
        helper.make_node(
            "DynamicQuantizeMatMul", [f"{name}/rows", *weight, "bias"], [f"{name}/fc1/Add_output_0"],
            domain="com.microsoft",
        ),
        helper.make_node("DynamicQuantizeLinear", [f"{name}/rows"], [f"{name}/{c}" for c in "abc"]),
        helper.make_node(
            "MatMulIntegerToFloat",
            [f"{name}/a", "stored", f"{name}/b", "scale", f"{name}/c", "zero"], [f"{name}/q_proj/MatMul_output_0"],
            domain="com.microsoft",
        ),
        *tail,
    ]  # fmt: skip
    out = helper.make_tensor_value_info(f"{name}/y", TensorProto.FLOAT, None)
    return helper.make_graph(nodes, "", [], [out], [numpy_helper.from_array(v, n) for n, v in extra.items()])


def _model(then_constants: dict[str, npt.NDArray[np.uint8]] | None = None) -> onnx.ModelProto:
    def tail(name: str, kind: str) -> list[onnx.NodeProto]:
        return [helper.make_node(kind, [f"{name}/fc1/Add_output_0", f"{name}/q_proj/MatMul_output_0"], [f"{name}/y"])]

    branches = {
        "then_branch": _branch("t", tail("t", "Add"), then_constants or {}),
        "else_branch": _branch("e", tail("e", "Sub"), {}),
    }
    constants = {
        "stored": STORED, "scale": SCALE, "zero": ZERO, "bias": BIAS,
        "table": TABLE, "table_scale": TABLE_SCALE, "table_zero": TABLE_ZERO,
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("If", ["which"], ["y"], **branches)],
        "bytes",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 2]),
            helper.make_tensor_value_info("which", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("which", [True, False])
def test_the_result_is_that_of_the_weights_without_rounding_what_comes_in(tmp_path: Path, which: bool) -> None:
    model = _model()
    assert with_float_products(model)
    onnx.save(model, tmp_path / "model.onnx")
    engine = OrtCpuEngine(tmp_path / "model.onnx")
    out = engine.stream().run({"ids": np.array([[3, 7]]), "which": np.array(which)})["y"]
    product = ROWS[[[3, 7]]] @ MEANT
    np.testing.assert_allclose(out, 2 * product + BIAS if which else np.broadcast_to(BIAS, product.shape), atol=1e-4)


def test_weights_are_found_under_the_exporters_names_and_nothing_of_the_bytes_is_left() -> None:
    model = _model()
    with_float_products(model)
    weights = ShippedWeights(model)
    np.testing.assert_array_equal(weights.operand("t/fc1/MatMul_output_0"), MEANT)
    np.testing.assert_array_equal(weights.operand("absent", "t/q_proj/MatMul_output_0"), MEANT)
    np.testing.assert_array_equal(weights.operand("t/rows"), ROWS)
    assert {tensor.name for tensor in model.graph.initializer} == {"bias", "stored_float", "table_float"}
    kinds = {node.op_type for attribute in model.graph.node[0].attribute for node in attribute.g.node}
    assert kinds == {"Gather", "MatMul", "Add", "Sub"}


def test_a_branch_that_means_other_weights_by_the_same_name_is_refused() -> None:
    with pytest.raises(ConversionError, match="two constants 'stored'"):
        with_float_products(_model({"stored": STORED[::-1].copy()}))


def test_a_model_of_floats_is_left_as_it_is() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node],
        "floats",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(MEANT, "w")],
    )
    model = helper.make_model(graph)
    before = model.SerializeToString()
    assert not with_float_products(model)
    assert model.SerializeToString() == before
