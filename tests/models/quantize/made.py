"""A small graph with everything that matters to quantisation: a table, products, a convolution, positions."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from models.convert.graph import GraphBuilder
from models.quantize.ranges import Feed

WIDTH, ENTRIES = 64, 2048


def made_graph(outlier: float = 1.0, seed: int = 0) -> onnx.ModelProto:
    """ids [1, n] -> y [1, n, 8].

    One channel of the hidden state is `outlier` times as large as the others, and its weights as small.
    """
    draw = np.random.default_rng(seed)

    def weight(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))

    g = GraphBuilder("made")
    x = g.embedding("ids", weight(ENTRIES, WIDTH) * 8, "table")
    count = g.node("Gather", g.node("Shape", "ids", name="shape"), g.index(1), name="count", axis=0)
    steps = g.node(
        "Cast", g.node("Range", g.index(0), count, g.index(1), name="range"), name="steps", to=TensorProto.FLOAT
    )
    angles = g.node("Unsqueeze", steps, g.ints(1), name="column")
    x = g.node("Add", x, g.node("Cos", angles, name="angles.cos"), name="placed")
    scale = np.ones(WIDTH, dtype=np.float32)
    scale[5] = outlier
    x = g.layer_norm(x, scale, "layer0.norm")
    up = weight(WIDTH, WIDTH)
    up[5] /= outlier
    x = g.linear(x, up, "layer0.up", weight(1, WIDTH)[0])
    x = g.gelu(x, "layer0.gelu")
    turned = g.node("Transpose", x, name="turned", perm=[0, 2, 1])
    kernel, bias = weight(32, WIDTH, 3) / 8, weight(1, 32)[0]
    x = g.node(
        "Conv", turned, g.constant("conv.weight", kernel), g.constant("conv.bias", bias), name="conv", pads=[1, 1]
    )
    x = g.node("Transpose", x, name="back", perm=[0, 2, 1])
    g.linear(x, weight(32, 8), "y")
    return g.model([("ids", TensorProto.INT64, [1, "n"])], [("y", TensorProto.FLOAT, [1, "n", 8])])


def feeds(count: int, seed: int = 1) -> list[Feed]:
    draw = np.random.default_rng(seed)
    return [{"ids": draw.integers(0, ENTRIES, (1, 40))} for _ in range(count)]


def run(model: onnx.ModelProto, feed: Feed, output: str = "y") -> np.ndarray:
    """As the standard says: fused s8 products saturate on CPUs without VNNI."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([output], dict(feed))[0], dtype=np.float32)


def snr(model: onnx.ModelProto, other: onnx.ModelProto) -> float:
    """Signal to noise in dB on inputs that calibration did not see."""
    signal = noise = 0.0
    for feed in feeds(4, seed=99):
        a, b = run(model, feed), run(other, feed)
        signal, noise = signal + float((a**2).sum()), noise + float(((a - b) ** 2).sum())
    return 10 * np.log10(signal / max(noise, 1e-12))
