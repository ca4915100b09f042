"""Small streaming transducers with random but fixed weights and exactly the files that sherpa-onnx publishes.

Every state counts: each recurrent tensor is mixed into what the encoder says, so a state that is lost, swapped or not
reset changes the text. What they write is gibberish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from appliance.audio.frame import RATE_HZ, Samples

__all__ = [
    "BINS",
    "PIECES",
    "STACKS",
    "ZIPFORMER_SHIFT",
    "ZIPFORMER_WINDOW",
    "Graph",
    "changing_sound",
    "write_nemo",
    "write_tokens",
    "write_zipformer",
    "zipformer_states",
]

PIECES = ("▁TURN", "▁ON", "▁OFF", "▁THE", "▁LI", "GHT", "S", "▁KIT", "CHEN", "▁A", "▁", "E", "T", "N", "▁IN", "ING")
"""The same in both families; a real model has some 500 or 1024."""
WIDTH = 24
"""Of what the encoder and the decoder give."""
BINS = 80

ZIPFORMER_WINDOW, ZIPFORMER_SHIFT = 45, 32
STACKS = {
    "num_encoder_layers": "1,2",
    "encoder_dims": "16,24",
    "query_head_dims": "4,5",
    "value_head_dims": "3,2",
    "num_heads": "2,3",
    "cnn_module_kernels": "9,7",
    "left_context_len": "12,6",
}
NEMO_WINDOW, NEMO_SHIFT, NEMO_SUBSAMPLING = 57, 48, 8
NEMO_CACHE = {"cache_last_channel": (2, 10, 20), "cache_last_time": (2, 20, 4)}
NEMO_LAYERS, NEMO_HIDDEN = 1, 12


TONES = ((220.0, 1.1), (710.0, 1.7), (1900.0, 2.3), (3300.0, 2.9))
"""Hertz, and how often a second it comes and goes."""


def changing_sound(seconds: float) -> Samples:
    """Tones that come and go over noise: no two windows are alike."""
    at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    tones = sum(np.sin(2 * np.pi * hz * at) * np.sin(2 * np.pi * rate * at) ** 4 for hz, rate in TONES)
    noise = np.random.default_rng(5).standard_normal(at.size)
    return (0.1 * tones + 0.01 * noise).astype(np.float32)


class Graph:
    """Nodes in order; a weight is made where it is named."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def constant(self, value: npt.ArrayLike, dtype: type = np.float32) -> str:
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def random(self, *shape: int, scale: float) -> str:
        return self.constant(self._random.standard_normal(shape) * scale)

    def op(self, kind: str, *inputs: str, name: str | None = None, outputs: int = 1, **attributes: object) -> str:
        names = [name or f"{kind}{len(self._nodes)}", *(f"{kind}{len(self._nodes)}.{i}" for i in range(1, outputs))]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def reshape(self, value: str, *shape: int, name: str | None = None) -> str:
        return self.op("Reshape", value, self.constant(shape, np.int64), name=name)

    def linear(self, value: str, of: int, to: int, scale: float = 1.0) -> str:
        return self.op("MatMul", value, self.random(of, to, scale=scale / of**0.5))

    def total(self, *values: str) -> str:
        first, *rest = values
        for value in rest:
            first = self.op("Add", first, value)
        return first

    def save(
        self,
        path: Path,
        inputs: Mapping[str, tuple[int, Sequence[int | str]]],
        outputs: Mapping[str, tuple[int, Sequence[int | str]]],
        metadata: Mapping[str, object],
    ) -> None:
        values = [
            [helper.make_tensor_value_info(name, kind, list(shape)) for name, (kind, shape) in rows.items()]
            for rows in (inputs, outputs)
        ]
        graph = helper.make_graph(self._nodes, path.stem, values[0], values[1], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, {key: str(value) for key, value in metadata.items()})
        onnx.checker.check_model(model)
        onnx.save(model, path)


def write_zipformer(folder: Path, seed: int = 1) -> Path:
    """Encoder, decoder, joiner and tokens as icefall exports a causal Zipformer; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = ZIPFORMER_SHIFT // 4
    states = zipformer_states()
    graph = Graph(seed)
    # As in the real one, a frame looks at those before and behind it that its window holds.
    middle = graph.op("Slice", "x", *(graph.constant([n], np.int64) for n in (6, 6 + ZIPFORMER_SHIFT, 1)))
    level = graph.op("Mul", graph.op("Add", middle, graph.constant([8.0])), graph.constant([0.25]))
    rows = graph.linear(graph.reshape(level, 1, frames, 4 * BINS), 4 * BINS, WIDTH, 2.0)
    hidden = _mixed(graph, rows, states)
    graph.op("Identity", hidden, name="encoder_out")
    ahead = graph.linear(graph.op("ReduceMean", hidden, axes=[1], keepdims=0), WIDTH, WIDTH)
    for name, shape in states.items():
        if name == "processed_lens":
            graph.op("Add", name, graph.constant([ZIPFORMER_SHIFT // 2], np.int64), name=f"new_{name}")
        else:
            remember(graph, ahead, name, shape, f"new_{name}")
    floats = {name: (TensorProto.FLOAT, shape) for name, shape in states.items() if name != "processed_lens"}
    inputs = {"x": (TensorProto.FLOAT, ("N", ZIPFORMER_WINDOW, BINS)), **floats}
    graph.save(
        folder / "encoder.onnx",
        {**inputs, "processed_lens": (TensorProto.INT64, ("N",))},
        {
            "encoder_out": (TensorProto.FLOAT, ("N", frames, WIDTH)),
            **{f"new_{name}": value for name, value in floats.items()},
            "new_processed_lens": (TensorProto.INT64, ("N",)),
        },
        {
            "model_type": "zipformer2",
            "version": 1,
            "T": ZIPFORMER_WINDOW,
            "decode_chunk_len": ZIPFORMER_SHIFT,
            **STACKS,
        },
    )
    vocabulary = len(PIECES) + 2
    _stateless_decoder(folder / "decoder.onnx", seed + 1, vocabulary)
    _joiner(folder / "joiner.onnx", seed + 2, vocabulary, blank=0)
    write_tokens(folder, ("<blk>", "<unk>", *PIECES))
    return folder


def write_nemo(folder: Path, seed: int = 1) -> Path:
    """Encoder, decoder, joiner and tokens as sherpa-onnx exports NeMo's cache-aware FastConformer transducers."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = NEMO_SHIFT // NEMO_SUBSAMPLING
    states: dict[str, tuple[int, ...]] = {name: (1, *shape) for name, shape in NEMO_CACHE.items()}
    states["cache_last_channel_len"] = (1,)
    graph = Graph(seed + 10)
    middle = graph.op("Slice", "audio_signal", *(graph.constant([n], np.int64) for n in (9, 9 + NEMO_SHIFT, 2)))
    level = graph.op("Mul", graph.op("Add", middle, graph.constant([10.0])), graph.constant([0.25]))
    level = graph.op("Transpose", level, perm=[0, 2, 1])
    rows = graph.linear(graph.reshape(level, 1, frames, NEMO_SUBSAMPLING * BINS), NEMO_SUBSAMPLING * BINS, WIDTH, 2.0)
    # The number of frames that it is told must be the window.
    length = graph.op("Cast", "length", to=TensorProto.FLOAT)
    off = graph.op("Sub", length, graph.constant([float(NEMO_WINDOW)]))
    hidden = _mixed(graph, graph.op("Add", rows, off), states)
    graph.op("Transpose", hidden, perm=[0, 2, 1], name="outputs")
    graph.op("Identity", graph.constant([frames], np.int64), name="encoded_lengths")
    ahead = graph.linear(graph.op("ReduceMean", hidden, axes=[1], keepdims=0), WIDTH, WIDTH)
    for name, shape in NEMO_CACHE.items():
        remember(graph, ahead, name, (1, *shape), f"{name}_next")
    longer = graph.op("Add", "cache_last_channel_len", graph.constant([frames], np.int64))
    graph.op(
        "Min",
        longer,
        graph.constant([NEMO_CACHE["cache_last_channel"][1]], np.int64),
        name="cache_last_channel_next_len",
    )
    caches = {name: (TensorProto.FLOAT, ("N", *shape)) for name, shape in NEMO_CACHE.items()}
    dims = {f"{name}_dim{i}": size for name, shape in NEMO_CACHE.items() for i, size in enumerate(shape, start=1)}
    graph.save(
        folder / "encoder.onnx",
        {
            "audio_signal": (TensorProto.FLOAT, ("N", BINS, "T")),
            "length": (TensorProto.INT64, ("N",)),
            **caches,
            "cache_last_channel_len": (TensorProto.INT64, ("N",)),
        },
        {
            "outputs": (TensorProto.FLOAT, ("N", WIDTH, frames)),
            "encoded_lengths": (TensorProto.INT64, ("N",)),
            **{f"{name}_next": value for name, value in caches.items()},
            "cache_last_channel_next_len": (TensorProto.INT64, ("N",)),
        },
        {
            "vocab_size": len(PIECES) + 1,
            "window_size": NEMO_WINDOW,
            "chunk_shift": NEMO_SHIFT,
            "subsampling_factor": NEMO_SUBSAMPLING,
            "normalize_type": "NA",
            "model_type": "EncDecHybridRNNTCTCBPEModel",
            "pred_rnn_layers": NEMO_LAYERS,
            "pred_hidden": NEMO_HIDDEN,
            **dims,
        },
    )
    vocabulary = len(PIECES) + 2
    _recurrent_decoder(folder / "decoder.onnx", seed + 11, vocabulary)
    _nemo_joiner(folder / "joiner.onnx", seed + 12, vocabulary)
    write_tokens(folder, ("<unk>", *PIECES, "<blk>"))
    return folder


def zipformer_states() -> dict[str, tuple[int, ...]]:
    """In the order of icefall's export, sizes by its formulas."""
    rows = {key: [int(n) for n in text.split(",")] for key, text in STACKS.items()}
    states: dict[str, tuple[int, ...]] = {}
    for stack, layers in enumerate(rows["num_encoder_layers"]):
        dim, heads = rows["encoder_dims"][stack], rows["num_heads"][stack]
        left, past = rows["left_context_len"][stack], rows["cnn_module_kernels"][stack] // 2
        key, value = rows["query_head_dims"][stack] * heads, rows["value_head_dims"][stack] * heads
        for _ in range(layers):
            i = sum(name.startswith("cached_key") for name in states)
            states[f"cached_key_{i}"] = (left, 1, key)
            states[f"cached_nonlin_attn_{i}"] = (1, 1, left, 3 * dim // 4)
            states[f"cached_val1_{i}"] = (left, 1, value)
            states[f"cached_val2_{i}"] = (left, 1, value)
            states[f"cached_conv1_{i}"] = (1, dim, past)
            states[f"cached_conv2_{i}"] = (1, dim, past)
    states["embed_states"] = (1, 128, 3, ((BINS - 1) // 2 - 1) // 2)
    states["processed_lens"] = (1,)
    return states


def _mixed(graph: Graph, rows: str, states: Mapping[str, tuple[int, ...]]) -> str:
    """[1, frames, WIDTH]: the rows, with something of every state."""
    parts = []
    for name, shape in states.items():
        size = int(np.prod(shape))
        value = name
        if len(shape) == 1:
            value = graph.op("Mul", graph.op("Cast", name, to=TensorProto.FLOAT), graph.constant([0.01]))
        flat = graph.reshape(value, 1, 1, size)
        parts.append(graph.linear(flat, size, WIDTH, 0.7))
    return graph.op("Tanh", graph.total(rows, *parts))


def remember(graph: Graph, ahead: str, name: str, shape: tuple[int, ...], next_name: str) -> None:
    """The next state: half of the old one, and something of what was heard."""
    new = graph.reshape(graph.linear(ahead, WIDTH, int(np.prod(shape))), *shape)
    graph.op("Add", graph.op("Mul", name, graph.constant([0.5])), new, name=next_name)


def _stateless_decoder(path: Path, seed: int, vocabulary: int, context: int = 2) -> None:
    """icefall's: an embedding of the last labels, of which negative ones count as nothing."""
    graph, size = Graph(seed), 10
    known = graph.op("Cast", graph.op("GreaterOrEqual", "y", graph.constant(0, np.int64)), to=TensorProto.FLOAT)
    rows = graph.op(
        "Gather", graph.random(vocabulary, size, scale=1.0), graph.op("Clip", "y", graph.constant(0, np.int64))
    )
    rows = graph.op("Mul", rows, graph.op("Unsqueeze", known, graph.constant([2], np.int64)))
    graph.op(
        "Tanh", graph.linear(graph.reshape(rows, -1, context * size), context * size, WIDTH, 2.0), name="decoder_out"
    )
    graph.save(
        path,
        {"y": (TensorProto.INT64, ("N", context))},
        {"decoder_out": (TensorProto.FLOAT, ("N", WIDTH))},
        {"context_size": context, "vocab_size": vocabulary},
    )


def _recurrent_decoder(path: Path, seed: int, vocabulary: int) -> None:
    """NeMo's: an LSTM over the labels; names as torch's exporter leaves them."""
    graph, hidden = Graph(seed), NEMO_HIDDEN
    rows = graph.op("Gather", graph.random(vocabulary, hidden, scale=1.0), "targets")
    rows = graph.op("Transpose", rows, perm=[1, 0, 2])
    weights = [graph.random(1, 4 * hidden, hidden, scale=0.6) for _ in range(2)]
    names = ["rows", "states", "162"]
    graph._nodes.append(
        helper.make_node("LSTM", [rows, *weights, "", "", "states.1", "onnx::LSTM_3"], names, hidden_size=hidden)
    )
    out = graph.op("Squeeze", "rows", graph.constant([1], np.int64))
    graph.op("Transpose", out, perm=[1, 2, 0], name="outputs")
    graph.op("Identity", "target_length", name="prednet_lengths")
    state = (TensorProto.FLOAT, (NEMO_LAYERS, "N", hidden))
    graph.save(
        path,
        {
            "targets": (TensorProto.INT32, ("N", "U")),
            "target_length": (TensorProto.INT32, ("N",)),
            "states.1": state,
            "onnx::LSTM_3": state,
        },
        {
            "outputs": (TensorProto.FLOAT, ("N", hidden, "U")),
            "prednet_lengths": (TensorProto.INT32, ("N",)),
            "states": state,
            "162": state,
        },
        {},
    )


def _joiner(path: Path, seed: int, vocabulary: int, blank: int) -> None:
    graph = Graph(seed)
    both = graph.total(graph.linear("encoder_out", WIDTH, WIDTH, 2.0), graph.linear("decoder_out", WIDTH, WIDTH, 2.0))
    logits = graph.linear(graph.op("Tanh", both), WIDTH, vocabulary, 4.0)
    graph.op("Add", logits, _blank_bias(graph, vocabulary, blank, 6.0), name="logit")
    row = (TensorProto.FLOAT, ("N", WIDTH))
    graph.save(path, {"encoder_out": row, "decoder_out": row}, {"logit": (TensorProto.FLOAT, ("N", vocabulary))}, {})


def _nemo_joiner(path: Path, seed: int, vocabulary: int) -> None:
    graph = Graph(seed)
    encoded, predicted = (
        graph.op("Transpose", name, perm=[0, 2, 1]) for name in ("encoder_outputs", "decoder_outputs")
    )
    both = graph.total(graph.linear(encoded, WIDTH, WIDTH, 2.0), graph.linear(predicted, NEMO_HIDDEN, WIDTH, 2.0))
    logits = graph.linear(graph.op("Tanh", both), WIDTH, vocabulary, 4.0)
    logits = graph.op("Add", logits, _blank_bias(graph, vocabulary, vocabulary - 1, 7.0))
    graph.op("Unsqueeze", logits, graph.constant([2], np.int64), name="outputs")
    graph.save(
        path,
        {
            "encoder_outputs": (TensorProto.FLOAT, ("N", WIDTH, 1)),
            "decoder_outputs": (TensorProto.FLOAT, ("N", NEMO_HIDDEN, 1)),
        },
        {"outputs": (TensorProto.FLOAT, ("N", 1, 1, vocabulary))},
        {},
    )


def _blank_bias(graph: Graph, vocabulary: int, blank: int, often: float) -> str:
    """Mostly nothing is said in a frame, as in speech."""
    bias = np.zeros(vocabulary)
    bias[blank] = often
    return graph.constant(bias)


def write_tokens(folder: Path, pieces: Sequence[str]) -> None:
    text = "".join(f"{piece} {number}\n" for number, piece in enumerate(pieces))
    (folder / "tokens.txt").write_text(text, encoding="utf-8")
