"""Each way of using fewer bits: near FP32 where it should be, of the types it promises, refused where it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.errors import ConversionError, QuantisationRefusedError
from models.quantize.dynamic import quantise_dynamic
from models.quantize.equalise import channel_peaks, equalise
from models.quantize.half import in_half, names_of
from models.quantize.ranges import Range, observe
from models.quantize.sites import copy_of, find_sites, load
from models.quantize.static import observed_tensors, quantise_static
from models.quantize.table import VARIANTS
from models.quantize.tensorrt_rules import check_tensorrt_qdq
from models.quantize.variants import Source
from tests.models.quantize.made import feeds, made_graph, run, snr


@pytest.fixture
def model(tmp_path: Path) -> onnx.ModelProto:
    onnx.save(made_graph(), tmp_path / "made.onnx")
    return load(tmp_path / "made.onnx")


def _static(model: onnx.ModelProto, *keep: str, tensorrt: bool) -> onnx.ModelProto:
    return quantise_static(model, observe(model, observed_tensors(model), feeds(6)), keep, tensorrt=tensorrt)


def test_sites_are_products_with_constants() -> None:
    sites = find_sites(made_graph())
    assert [(s.name, s.kind, s.channel_axis) for s in sites] == [
        ("layer0.up.product", "MatMul", 1),
        ("conv", "Conv", 0),
        ("y", "MatMul", 1),
    ]
    assert sites[0].layer == "layer0"


@pytest.mark.parametrize("tensorrt", [False, True])
def test_a_static_graph_is_near_fp32(model: onnx.ModelProto, tensorrt: bool) -> None:
    made = _static(model, tensorrt=tensorrt)
    onnx.checker.check_model(made)
    assert snr(model, made) > 25


def test_a_dynamic_graph_is_near_fp32_and_stores_bytes(model: onnx.ModelProto) -> None:
    made = quantise_dynamic(model)
    onnx.checker.check_model(made)
    assert snr(model, made) > 25
    assert made.ByteSize() < model.ByteSize() / 3
    kinds = Counter(n.op_type for n in made.graph.node)
    assert (kinds["MatMulInteger"], kinds["ConvInteger"], kinds["MatMul"], kinds["Conv"]) == (2, 1, 0, 0)


def test_what_is_kept_in_float_is_left_as_it_was(model: onnx.ModelProto) -> None:
    names = [s.name for s in find_sites(model)]
    made = _static(model, *names, tensorrt=True)
    assert not any(n.op_type == "QuantizeLinear" for n in made.graph.node)
    np.testing.assert_array_equal(run(model, feeds(1)[0]), run(made, feeds(1)[0]))


def test_each_consumer_has_a_pair_of_its_own_for_tensorrt(model: onnx.ModelProto) -> None:
    made = _static(model, tensorrt=True)
    assert check_tensorrt_qdq(made) == 2 * 3
    readers = Counter(i for n in made.graph.node for i in n.input)
    for node in made.graph.node:
        if node.op_type == "DequantizeLinear":
            assert readers[node.output[0]] == 1


def test_nothing_to_calibrate_with_is_an_error(model: onnx.ModelProto) -> None:
    with pytest.raises(ConversionError, match="nothing to calibrate"):
        observe(model, observed_tensors(model), [])


def test_zero_is_exact_in_every_scale() -> None:
    for low, high in ((0.0, 3.0), (-2.0, 0.0), (-1.5, 4.25), (0.0, 0.0)):
        affine = Range(low, high).asymmetric()
        assert 0 <= affine.zero <= 255
        assert affine.scale > 0
        assert Range(low, high).symmetric().zero == 0


# ---- outliers -----------------------------------------------------------------------------------------


def test_moving_outliers_changes_nothing_in_fp32_and_helps_in_8_bits() -> None:
    model = made_graph(outlier=60)
    equal = equalise(model, channel_peaks(model, feeds(6)))
    onnx.checker.check_model(equal)
    assert snr(model, equal) > 90
    plain, better = _static(model, tensorrt=True), _static(equal, tensorrt=True)
    assert snr(model, better) > snr(model, plain) + 6


# ---- 16 bits ------------------------------------------------------------------------------------------


def _types(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output, *inferred.input)}


def test_a_half_graph_keeps_positions_and_edges_in_fp32(model: onnx.ModelProto) -> None:
    made = in_half(model)
    types = _types(made)
    assert types["angles.cos"] == types["steps"] == types["y"] == TensorProto.FLOAT
    assert types["layer0.up.product"] == types["conv"] == TensorProto.FLOAT16
    assert snr(model, made) > 50
    assert made.ByteSize() < model.ByteSize() * 0.55


def test_half_edges_are_half(model: onnx.ModelProto) -> None:
    made = in_half(model, names_of("y"))
    assert made.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    assert snr(model, made) > 50


def test_every_operator_of_a_half_graph_has_operands_of_one_type(model: onnx.ModelProto) -> None:
    made = in_half(model)
    types = _types(made) | {t.name: t.data_type for t in made.graph.initializer}
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16)
    for node in made.graph.node:
        if node.op_type != "Cast":
            kinds = {types[i] for i in node.input if types.get(i) in floats}
            assert len(kinds) <= 1, node.name


def test_a_constant_too_large_for_16_bits_is_refused(model: onnx.ModelProto) -> None:
    large = copy_of(model)
    bias = next(t for t in large.graph.initializer if t.name == "conv.bias")
    bias.CopyFrom(numpy_helper.from_array(np.full(32, 1e6, dtype=np.float32), "conv.bias"))
    with pytest.raises(ConversionError, match=r"conv\.bias does not fit"):
        in_half(large)


# ---- what TensorRT refuses ----------------------------------------------------------------------------


def _node(model: onnx.ModelProto, kind: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if n.op_type == kind)


def _set(model: onnx.ModelProto, name: str, value: np.ndarray) -> None:
    next(t for t in model.graph.initializer if t.name == name).CopyFrom(numpy_helper.from_array(value, name))


def _asymmetric(m: onnx.ModelProto) -> None:
    _set(m, _node(m, "QuantizeLinear").input[2], np.array(3, dtype=np.int8))


def _u8(m: onnx.ModelProto) -> None:
    _set(m, _node(m, "QuantizeLinear").input[2], np.array(0, dtype=np.uint8))


def _no_zero(m: onnx.ModelProto) -> None:
    del _node(m, "QuantizeLinear").input[2]


def _negative_scale(m: onnx.ModelProto) -> None:
    _set(m, _node(m, "QuantizeLinear").input[1], np.array(-0.1, dtype=np.float32))


def _other_scale(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(numpy_helper.from_array(np.array(0.7, dtype=np.float32), "other"))
    pair = next(n for n in m.graph.node if n.op_type == "DequantizeLinear" and n.input[0].endswith(".x.q"))
    pair.input[1] = "other"


def _wrong_axis(m: onnx.ModelProto) -> None:
    node = next(n for n in m.graph.node if n.name == "layer0.up.product.weight.dequantise")
    node.attribute[0].i = 0


def _byte_bias(m: onnx.ModelProto) -> None:
    names = [("b", np.zeros(32, dtype=np.int32)), ("bs", np.ones(32, dtype=np.float32))]
    m.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in names)
    m.graph.initializer.append(numpy_helper.from_array(np.zeros(32, dtype=np.int32), "bz"))
    m.graph.node.insert(0, helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bias_float"], name="bias", axis=0))
    _node(m, "Conv").input[2] = "bias_float"


def _byte_table(m: onnx.ModelProto) -> None:
    _set(m, "table.table", np.zeros((2048, 64), dtype=np.int8))


def _lone_quantise(m: onnx.ModelProto) -> None:
    _node(m, "DequantizeLinear").input[0] = _node(m, "QuantizeLinear").input[0]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_asymmetric, "asymmetric"),
        (_u8, "uint8"),
        (_no_zero, "without a zero point"),
        (_negative_scale, "not a positive number"),
        (_other_scale, "another scale"),
        (_wrong_axis, "output channels"),
        (_byte_bias, "int32 bias"),
        (_byte_table, "in front of a Gather"),
        (_lone_quantise, "neither from a constant nor|by nothing else"),
    ],
)
def test_what_tensorrt_refuses_is_refused_here(
    model: onnx.ModelProto, damage: Callable[[onnx.ModelProto], None], says: str
) -> None:
    made = _static(model, tensorrt=True)
    damage(made)
    with pytest.raises(QuantisationRefusedError, match=says) as caught:
        check_tensorrt_qdq(made)
    assert caught.value.code == "models.quantise"


def test_the_forms_for_the_cpu_are_refused_for_tensorrt(model: onnx.ModelProto) -> None:
    for made in (quantise_dynamic(model), _static(model, tensorrt=False)):
        with pytest.raises(QuantisationRefusedError, match="TensorRT refuses"):
            check_tensorrt_qdq(made)


def test_every_variant_of_the_table_can_be_made(model: onnx.ModelProto) -> None:
    source = Source(model, feeds(4), names_of())
    for variant in VARIANTS:
        assert snr(model, source.make(variant)) > 20, variant.name
