"""The graph builder's layers compute what they say, and its bytes are exact on this CPU, whichever that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from models.convert.graph import GraphBuilder, quantise_columns, quantise_rows
from models.engines.onnx_cpu import OrtCpuEngine

SEEDS = st.integers(0, 2**32 - 1)


def _run(builder: GraphBuilder, path: Path, output: str, width: int, **inputs: np.ndarray) -> np.ndarray:
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    specs = [(n, types[v.dtype], [f"{n}{i}" for i in range(v.ndim)]) for n, v in inputs.items()]
    rank = max(v.ndim for v in inputs.values())
    model = builder.model(specs, [(output, TensorProto.FLOAT, [*(f"o{i}" for i in range(rank - 1)), width])])
    onnx.save(model, path)
    return OrtCpuEngine(path).stream().run(inputs)[output]


def _weights(seed: int, rows: int, columns: int) -> np.ndarray:
    """Weights with the long tails that real ones have."""
    draw = np.random.default_rng(seed)
    return draw.standard_t(3, (rows, columns)).astype(np.float32) * np.float32(0.1)


@given(SEEDS, st.integers(1, 40), st.integers(1, 8))
def test_no_two_neighbouring_weights_can_saturate_16_bits_together(seed: int, rows: int, columns: int) -> None:
    quantised, _scale = quantise_columns(_weights(seed, rows, columns))
    pairs = quantised[: rows // 2 * 2].astype(int).reshape(-1, 2, columns)
    highest = np.maximum(pairs, 0).sum(axis=1).max(initial=0)
    lowest = np.minimum(pairs, 0).sum(axis=1).min(initial=0)
    assert highest * 255 <= np.iinfo(np.int16).max
    assert lowest * 255 >= np.iinfo(np.int16).min
    assert np.abs(quantised.astype(int)).max() <= 127


@given(SEEDS, st.integers(1, 40), st.integers(1, 8))
def test_a_quantised_weight_is_within_half_a_step(seed: int, rows: int, columns: int) -> None:
    weight = _weights(seed, rows, columns)
    quantised, scale = quantise_columns(weight)
    assert np.all(np.abs(quantised * scale - weight) <= scale * 0.5001)
    quantised, scale = quantise_rows(weight)
    assert np.all(np.abs(quantised * scale - weight) <= scale * 0.5001)


def test_weights_of_zero_are_quantised_to_zero() -> None:
    quantised, scale = quantise_columns(np.zeros((5, 3), dtype=np.float32))
    assert not quantised.any()
    assert np.isfinite(scale).all()
    assert (scale > 0).all()


@settings(max_examples=8, deadline=None)
@given(seed=SEEDS, rows=st.sampled_from([3, 64, 416, 1664]), batch=st.integers(1, 5))
def test_a_product_of_bytes_is_exact_on_this_cpu(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, batch: int
) -> None:
    # Neighbours of one sign at full scale, and activations that use all of u8: the worst case for 16-bit sums.
    draw = np.random.default_rng(seed)
    weight = (draw.choice([-1, 1], (1, 48)) * draw.uniform(0.9, 1, (rows, 48))).astype(np.float32)
    x = draw.choice([0, 0.5, 1], (batch, rows)).astype(np.float32)
    x[0, 0], x[0, -1] = 0, 1
    builder = GraphBuilder("exact", int8=True)
    builder.linear("x", weight, "y")
    y = _run(builder, tmp_path_factory.mktemp("graph") / "exact.onnx", "y", 48, x=x)
    quantised, scale = quantise_columns(weight)
    step = np.float32(1) / np.float32(255)
    bytes_ = np.rint(x / step).astype(np.int64)
    np.testing.assert_allclose(y, (bytes_ @ quantised.astype(np.int64)) * (step * scale), rtol=1e-5)


@pytest.mark.parametrize("int8", [False, True])
def test_a_linear_layer_multiplies_and_adds(tmp_path: Path, int8: bool) -> None:
    weight, bias = _weights(1, 64, 32), _weights(2, 1, 32)[0]
    x = np.random.default_rng(3).standard_normal((2, 5, 64), dtype=np.float32)
    builder = GraphBuilder("linear", int8=int8)
    builder.linear("x", weight, "y", bias)
    y, expected = _run(builder, tmp_path / "linear.onnx", "y", 32, x=x), x @ weight + bias
    error = np.sqrt(np.square(y - expected).mean() / np.square(expected).mean())
    assert error < (0.03 if int8 else 1e-6)


@pytest.mark.parametrize("int8", [False, True])
def test_an_embedding_looks_rows_up(tmp_path: Path, int8: bool) -> None:
    table = _weights(4, 50, 16)
    ids = np.array([[3, 3, 49], [0, 1, 2]])
    builder = GraphBuilder("embedding", int8=int8)
    builder.embedding("ids", table, "y")
    model_input = builder.model([("ids", TensorProto.INT64, ["b", "l"])], [("y", TensorProto.FLOAT, ["b", "l", 16])])
    onnx.save(model_input, tmp_path / "embedding.onnx")
    y = OrtCpuEngine(tmp_path / "embedding.onnx").stream().run({"ids": ids})["y"]
    tolerance = np.abs(table).max() / 127 * 0.51 if int8 else 0
    np.testing.assert_allclose(y, table[ids], atol=tolerance, rtol=0)


def test_layer_norm_and_gelu_are_the_usual_ones(tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal((3, 32), dtype=np.float32) * 4
    weight = _weights(6, 1, 32)[0]
    builder = GraphBuilder("layers")
    builder.gelu(builder.layer_norm("x", weight, "norm"), "y")
    y = _run(builder, tmp_path / "layers.onnx", "y", 32, x=x)
    centred = x - x.mean(axis=-1, keepdims=True)
    normal = centred / np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + 1e-5) * weight
    erf = np.vectorize(__import__("math").erf)
    np.testing.assert_allclose(y, normal * 0.5 * (1 + erf(normal / np.sqrt(2))), atol=1e-5)


def test_one_name_cannot_stand_for_two_constants() -> None:
    builder = GraphBuilder("twice")
    builder.constant("a", np.ones(2, dtype=np.float32))
    builder.constant("a", np.ones(2, dtype=np.float32))
    with pytest.raises(ValueError, match="constant a has two values"):
        builder.constant("a", np.zeros(2, dtype=np.float32))
