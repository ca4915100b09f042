"""Each operator of the NumPy backend against the standard's own reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from models.engines.numpy import NumpyEngine
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import EngineError, UnsupportedOperatorError

Array = np.ndarray[Any, Any]
Compare = Callable[..., None]
HERE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Compare:
    """Run one operator both ways, with inputs given and with `constants` in the graph.

    `by_runtime` asks onnxruntime, where the reference is wrong itself.
    """
    folder = tmp_path_factory.mktemp("operators") / "1"
    folder.mkdir()

    def check(
        op: str,
        inputs: Mapping[str, Array],
        constants: Mapping[str, Array] | None = None,
        *,
        outputs: int = 1,
        tolerance: float = 2e-6,
        opset: int = 17,
        by_runtime: bool = False,
        kind: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> None:
        constants = constants or {}
        names = [*inputs, *constants]
        # "a_", "b_" ... keep the order; a name that starts with "_" is an input left out.
        node = helper.make_node(
            op,
            ["" if n.startswith("_") else n for n in sorted(names, key=lambda n: n.lstrip("_"))],
            [f"out{i}" for i in range(outputs)],
            **attributes,
        )
        inputs = {n: v for n, v in inputs.items() if not n.startswith("_")}
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
             for n, v in inputs.items()],
            [helper.make_tensor_value_info(f"out{i}", kind, None) for i in range(outputs)],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items() if not n.startswith("_")],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        path = folder / "one.onnx"
        onnx.save(model, path)
        if by_runtime:
            expected = list(OrtCpuEngine(path).stream().run(inputs).values())
        else:
            expected = ReferenceEvaluator(model).run(None, dict(inputs))
        made = NumpyEngine(path).stream().run(inputs)
        for number, wanted in enumerate(expected):
            got = made[f"out{number}"]
            assert got.dtype == wanted.dtype
            assert got.shape == wanted.shape
            assert got.flags.c_contiguous
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)

    return check


def _floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


# ---- convolutions -----------------------------------------------------------------------------------


@HERE
@given(
    groups=st.sampled_from([1, 2, 3]),
    depth=st.integers(1, 3),
    width=st.integers(1, 3),
    taps=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    length=st.integers(1, 40),
    bias=st.booleans(),
    seed=st.integers(0, 9),
)
def test_convolutions_are_the_standards(
    compare: Compare, groups: int, depth: int, width: int, taps: int, stride: int, dilation: int,
    pads: tuple[int, int], length: int, bias: bool, seed: int,
) -> None:  # fmt: skip
    assume(length + sum(pads) >= (taps - 1) * dilation + 1)
    x, weights = _floats(seed, 2, groups * depth, length), _floats(seed + 1, groups * width, depth, taps)
    constants = {"b": weights} | ({"c": _floats(seed, groups * width)} if bias else {})
    compare("Conv", {"a": x}, constants, group=groups, kernel_shape=[taps], strides=[stride], dilations=[dilation],
            pads=list(pads), tolerance=1e-5)  # fmt: skip


def test_a_convolution_that_says_it_is_not_padded_is_the_standards(compare: Compare) -> None:
    compare("Conv", {"a": _floats(0, 1, 3, 20)}, {"b": _floats(1, 4, 3, 5)}, auto_pad="VALID", tolerance=1e-5)


def test_a_long_convolution_is_done_in_blocks_without_a_seam(compare: Compare) -> None:
    compare("Conv", {"a": _floats(0, 1, 3, 5000)}, {"b": _floats(1, 4, 3, 7)}, kernel_shape=[7], dilations=[3],
            pads=[9, 9], strides=[2], tolerance=1e-5)  # fmt: skip


@HERE
@given(
    groups=st.sampled_from([1, 2]),
    depth=st.integers(1, 3),
    width=st.integers(1, 3),
    taps=st.integers(1, 6),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 2),
    cut=st.integers(0, 2),
    length=st.integers(1, 20),
    bias=st.booleans(),
)
def test_transposed_convolutions_are_the_standards(
    compare: Compare, groups: int, depth: int, width: int, taps: int, stride: int, dilation: int, cut: int,
    length: int, bias: bool,
) -> None:  # fmt: skip
    assume(stride * (length - 1) + (taps - 1) * dilation + 1 > 2 * cut)
    constants = {"b": _floats(1, groups * depth, width, taps)} | ({"c": _floats(2, groups * width)} if bias else {})
    compare("ConvTranspose", {"a": _floats(0, 1, groups * depth, length)}, constants, group=groups,
            kernel_shape=[taps], strides=[stride], dilations=[dilation], pads=[cut, cut], tolerance=1e-5,
            by_runtime=groups > 1)  # fmt: skip


# ---- cutting and moving -----------------------------------------------------------------------------


@HERE
@given(
    size=st.integers(1, 8),
    start=st.integers(-12, 12),
    end=st.integers(-12, 12),
    step=st.sampled_from([-3, -2, -1, 1, 2, 3]),
    axis=st.sampled_from([0, 1, -1]),
)
def test_slices_are_the_standards(compare: Compare, size: int, start: int, end: int, step: int, axis: int) -> None:
    x = np.arange(size * 3, dtype=np.float32).reshape(size, 3) if axis == 0 else _floats(0, 3, size)
    # The reference reads -1 as Python does where the standard clamps; what the standard says is spelt out below.
    assume(step > 0 or (start >= 0 and end >= 0))
    constants = {n: np.array([v], dtype=np.int64) for n, v in zip("bcde", (start, end, axis, step), strict=True)}
    compare("Slice", {"a": x}, constants)


def test_a_slice_backwards_may_go_past_the_first_element(tmp_path: Path) -> None:
    whole = [np.array([v], dtype=np.int64) for v in (-1, np.iinfo(np.int64).min, 0, -1)]
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in zip("seat", whole, strict=True)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "g.onnx")
    made = NumpyEngine(tmp_path / "g.onnx").stream().run({"x": np.arange(4, dtype=np.float32)})
    assert made["y"].tolist() == [3, 2, 1, 0]


@HERE
@given(
    before=st.integers(0, 3),
    behind=st.integers(0, 3),
    mode=st.sampled_from(["constant", "reflect", "edge"]),
    size=st.integers(4, 6),
)
def test_padding_is_the_standards(compare: Compare, before: int, behind: int, mode: str, size: int) -> None:
    pads = np.array([0, before, 0, behind], dtype=np.int64)
    compare("Pad", {"a": _floats(0, 2, size)}, {"b": pads}, mode=mode)


def test_negative_padding_cuts(compare: Compare) -> None:
    compare("Pad", {"a": _floats(0, 2, 5)}, {"b": np.array([0, -1, 1, 2])}, by_runtime=True)


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "extra"),
    [
        ("Transpose", {"a": _floats(0, 2, 3, 4)}, {}, {"perm": [2, 0, 1]}),
        ("Reshape", {"a": _floats(0, 2, 3, 4)}, {"b": np.array([0, -1])}, {}),
        ("Reshape", {"a": _floats(0, 2, 0, 4)}, {"b": np.array([0, 4, 2])}, {"allowzero": 1}),
        ("Unsqueeze", {"a": _floats(0, 3)}, {"b": np.array([0, -1])}, {}),
        ("Squeeze", {"a": _floats(0, 1, 3, 1)}, {"b": np.array([0])}, {}),
        ("Squeeze", {"a": _floats(0, 1, 3, 1)}, {}, {}),
        ("Concat", {"a": _floats(0, 2, 3), "b": _floats(1, 2, 1)}, {}, {"axis": -1}),
        ("Split", {"a": _floats(0, 2, 6)}, {"b": np.array([1, 2, 3])}, {"axis": 1, "outputs": 3}),
        ("Split", {"a": _floats(0, 2, 6)}, {}, {"axis": 1, "outputs": 3}),
        ("Expand", {"a": _floats(0, 3, 1)}, {"b": np.array([2, 1, 4])}, {}),
        ("Shape", {"a": _floats(0, 3, 1)}, {}, {}),
        ("ConstantOfShape", {"a": np.array([2, 3])}, {}, {}),
        ("ConstantOfShape", {"a": np.array([2])}, {}, {"value": numpy_helper.from_array(np.array([7]))}),
        ("Range", {"a": np.array(2), "b": np.array(9), "c": np.array(3)}, {}, {}),
        ("Gather", {"a": _floats(0, 4, 3)}, {"b": np.array([[0, -1], [2, 2]])}, {"axis": 0}),
        ("Gather", {"a": _floats(0, 4, 3)}, {"b": np.array(1)}, {"axis": 1}),
        ("GatherElements", {"a": _floats(0, 2, 3)}, {"b": np.array([[0, -1], [2, 1]])}, {"axis": 1}),
        ("GatherND", {"a": _floats(0, 4, 3, 2)}, {"b": np.array([[0, 1], [3, 2]])}, {}),
        ("ScatterND", {"a": _floats(0, 4, 3), "c": _floats(1, 2)}, {"b": np.array([[0, 1], [3, 2]])}, {}),
        ("NonZero", {"a": np.array([[1, 0], [0, 3]])}, {}, {}),
        ("CumSum", {"a": _floats(0, 4, 3)}, {"b": np.array(1)}, {}),
        ("Where", {"a": np.array([True, False]), "b": _floats(0, 2), "c": _floats(1, 2)}, {}, {}),
        ("Cast", {"a": _floats(0, 5) * 9}, {}, {"to": TensorProto.INT64}),
        ("Not", {"a": np.array([True, False])}, {}, {}),
        ("And", {"a": np.array([True, False]), "b": np.array([True, True])}, {}, {}),
        ("Clip", {"a": _floats(0, 9), "b": np.array(-0.5, np.float32), "c": np.array(0.5, np.float32)}, {}, {}),
        ("Clip", {"a": _floats(0, 9), "_b": np.array(0), "c": np.array(0.5, np.float32)}, {}, {}),
        ("LeakyRelu", {"a": _floats(0, 9)}, {}, {"alpha": 0.1}),
        ("Pow", {"a": _floats(0, 9)}, {"b": np.array(2, np.float32)}, {}),
        ("Pow", {"a": np.abs(_floats(0, 9))}, {"b": np.array(0.5, np.float32)}, {}),
        ("ReduceMean", {"a": _floats(0, 3, 4)}, {}, {"axes": [-1], "keepdims": 0}),
        ("ReduceMax", {"a": _floats(0, 3, 4)}, {}, {"axes": [0]}),
        ("ReduceSum", {"a": _floats(0, 3, 4)}, {"b": np.array([1])}, {"keepdims": 0}),
        ("ReduceSum", {"a": _floats(0, 3, 4)}, {}, {}),
        ("Softmax", {"a": _floats(0, 3, 4) * 50}, {}, {"axis": -1}),
        ("MatMul", {"a": _floats(0, 2, 3, 4), "b": _floats(1, 4, 5)}, {}, {}),
        ("LayerNormalization", {"a": _floats(0, 2, 9)}, {"b": _floats(1, 9), "c": _floats(2, 9)}, {}),
        ("InstanceNormalization", {"a": _floats(0, 2, 3, 9)}, {"b": _floats(1, 3), "c": _floats(2, 3)}, {}),
    ],
)  # fmt: skip
def test_an_operator_is_the_standards(
    compare: Compare, op: str, inputs: dict[str, Array], constants: dict[str, Array], extra: dict[str, Any]
) -> None:
    compare(op, inputs, constants, **extra)


@pytest.mark.parametrize(
    "op", ["Ceil", "Cos", "Erf", "Exp", "Neg", "Relu", "Sigmoid", "Sin", "Softplus", "Sqrt", "Tanh"]
)
def test_a_function_is_the_standards_over_its_whole_range(compare: Compare, op: str) -> None:
    x = np.concatenate((np.linspace(-30, 30, 4001), [0.0, -0.0, 1e-8, -1e-8, 88.0, -100.0])).astype(np.float32)
    compare(op, {"a": np.abs(x) if op == "Sqrt" else x})


@HERE
@given(
    a=st.lists(st.integers(-50, 50), min_size=1, max_size=8),
    b=st.sampled_from([-7, -2, 3, 5]),
)
def test_whole_numbers_are_divided_towards_zero(compare: Compare, a: list[int], b: int) -> None:
    compare("Div", {"a": np.array(a, dtype=np.int64)}, {"b": np.array(b)}, by_runtime=True, kind=TensorProto.INT64)


# ---- bytes ------------------------------------------------------------------------------------------


@HERE
@given(depth=st.integers(1, 1300), seed=st.integers(0, 5), constant=st.booleans())
def test_products_of_bytes_are_exact(compare: Compare, depth: int, seed: int, constant: bool) -> None:
    random = np.random.default_rng(seed)
    a = random.integers(0, 256, (2, depth)).astype(np.uint8)
    b = random.integers(-128, 128, (depth, 3)).astype(np.int8)
    zero = np.array(random.integers(0, 256), dtype=np.uint8)
    if constant:
        compare("MatMulInteger", {"a": a, "c": zero}, {"b": b}, tolerance=0)
    else:
        compare("MatMulInteger", {"a": a, "b": b, "c": zero}, tolerance=0)


@HERE
@given(values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30))
def test_dynamic_quantisation_is_the_runtimes(tmp_path: Path, values: list[float]) -> None:
    """Against onnxruntime: the reference rounds halves of the zero point in another way."""
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("y", 2), ("s", 1), ("z", 2))],
    )
    path = tmp_path / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    x = {"x": np.array(values, dtype=np.float32)}
    assume(float(np.ptp(np.append(x["x"], 0))) > 1e-6)
    ours, theirs = NumpyEngine(path).stream().run(x), OrtCpuEngine(path).stream().run(x)
    assert ours["z"] == theirs["z"]
    np.testing.assert_allclose(ours["s"], theirs["s"], rtol=1e-6)
    assert np.abs(ours["y"].astype(int) - theirs["y"].astype(int)).max() <= 1
    assert (ours["y"] == theirs["y"]).mean() > 0.9 or len(values) < 10


# ---- LSTM -------------------------------------------------------------------------------------------


@HERE
@given(steps=st.integers(1, 3), size=st.integers(1, 5), given_state=st.booleans(), spelt_out=st.booleans())
def test_the_lstm_is_the_standards(compare: Compare, steps: int, size: int, given_state: bool, spelt_out: bool) -> None:
    inputs = {"a": _floats(0, steps, 1, 4)}
    constants = {"b": _floats(1, 1, 4 * size, 4), "c": _floats(2, 1, 4 * size, size), "d": _floats(3, 1, 8 * size)}
    if given_state:
        inputs |= {"_e": np.zeros(0, np.int32), "f": _floats(4, 1, 1, size), "g": _floats(5, 1, 1, size)}
    usual = {"activations": ["Sigmoid", "Tanh", "Tanh"]} if spelt_out else {}
    compare("LSTM", inputs, constants, hidden_size=size, outputs=3, tolerance=1e-5, **usual)


# ---- refusals ---------------------------------------------------------------------------------------


def _engine(folder: Path, op: str, rank: int = 3, opset: int = 17, domain: str = "", **attributes: Any) -> NumpyEngine:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], name="the_node", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((1, 1, 3), np.float32), "w")],
    )
    path = folder / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return NumpyEngine(path)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Einsum", {"equation": "ij,jk"}, r"Einsum \(the_node\) is not known"),
        ("FusedConv", {"domain": "com.microsoft"}, r"com.microsoft.FusedConv \(the_node\) is not known"),
        ("Conv", {"auto_pad": "SAME_UPPER"}, r"Conv \(the_node\): auto_pad SAME_UPPER"),
        ("Conv", {"kernel_shape": [3, 3]}, "a kernel of 2 dimensions"),
        ("LSTM", {"hidden_size": 1, "direction": "reverse"}, "direction reverse"),
        ("LSTM", {"hidden_size": 1, "activations": ["Sigmoid", "Relu", "Tanh"]}, "activations other than the usual"),
        ("GatherND", {"batch_dims": 1}, "batch_dims"),
        ("ScatterND", {"reduction": "add"}, "reduction add"),
        ("CumSum", {"exclusive": 1}, "an exclusive"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, op: str, attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedOperatorError, match=message) as caught:
        _engine(tmp_path, op, **attributes)
    assert caught.value.code == "models.operator"


def test_an_old_opset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="opset 9"):
        _engine(tmp_path, "Conv", opset=9)


def test_a_failure_inside_names_the_operator(tmp_path: Path) -> None:
    stream = _engine(tmp_path, "Conv", kernel_shape=[3]).stream()
    with pytest.raises(EngineError, match=r"Conv \(the_node\): 2 samples are fewer"):
        stream.run({"x": np.zeros((1, 1, 2), np.float32)})
