"""Moonshine as two small graphs of standard operators, from the weights of the shipped, exported ones.

encoder  audio [1, samples] f32 -> cross_k.i, cross_v.i [1, 8, frames, D] f32, i = 0 … layers - 1
decoder  ids [B, L] i64, rows [B] i64, past_k.i, past_v.i [P, 8, T, D] f32, cross_k.i, cross_v.i
         -> logits [B, L, 32768] f32, present_k.i, present_v.i [B, 8, T + L, D] f32

D is 52 in base, which has 8 layers, and 36 in tiny, which has 6.

Architecture: Jeffries et al., "Moonshine: Speech Recognition for Live Transcription and Voice Commands", 2024.
What differs from the export, without changing the result:

- the encoder ends with the decoder's cross-attention keys and values, so they are made once an utterance;
- one decoder graph serves the first token, later ones, several tokens at once and a batch: T may be 0, and
  row b of the batch goes on from row `rows[b]` of the past, so that beams fork and die inside the engine;
- q, k and v come from one product; 1/sqrt(head_dim) is in q's weights;
- the rotating channels of each head are reordered, in q and k alike, from interleaved pairs to two halves: the dot
  products are the same and the rotation needs no strided access.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from models.convert.graph import GraphBuilder, TensorSpec
from models.convert.shipped import ShippedWeights

__all__ = ["MoonshineShape", "decoder_graph", "encoder_graph"]

Floats = npt.NDArray[np.float32]

_MASKED = -1e4
"""Score of a position that may not be seen; also fits a 16-bit float."""
_CONV_STRIDES = {"conv1": 64, "conv2": 3, "conv3": 2}


@dataclass(frozen=True, slots=True)
class MoonshineShape:
    """Sizes of one member of the family."""

    layers: int
    heads: int
    head_dim: int
    vocabulary: int

    @property
    def width(self) -> int:
        """Channels of a hidden state."""
        return self.heads * self.head_dim

    def cross(self) -> list[TensorSpec]:
        """Cross-attention keys and values, layer by layer."""
        return self._cache("cross", [1, self.heads, "frames", self.head_dim])

    def past(self) -> list[TensorSpec]:
        """Self-attention cache before a run."""
        return self._cache("past", ["past_batch", self.heads, "past", self.head_dim])

    def present(self) -> list[TensorSpec]:
        """Self-attention cache after a run."""
        return self._cache("present", ["batch", self.heads, "total", self.head_dim])

    def _cache(self, prefix: str, dims: list[int | str]) -> list[TensorSpec]:
        return [(f"{prefix}_{c}.{i}", TensorProto.FLOAT, dims) for i in range(self.layers) for c in "kv"]


def encoder_graph(
    shape: MoonshineShape, encoder: ShippedWeights, decoder: ShippedWeights, *, int8: bool
) -> onnx.ModelProto:
    """Audio to cross-attention keys and values. The convolutions stay in float: 8 bits ruin them (measured)."""
    g = GraphBuilder("moonshine_encoder", int8=int8)
    x = _audio_frames(g, shape, encoder)
    count = g.node("Gather", g.node("Shape", x, name="frames.shape"), g.index(1), name="frames.count", axis=0)
    positions = g.node("Range", g.index(0), count, g.index(1), name="positions")
    rotation = _Rotation.at(g, shape, positions, encoder.operand(*_rotary("/rotary_emb")))
    for i in range(shape.layers):
        there, here = f"/layers.{i}", f"layer{i}"

        def dense(part: str, there: str = there) -> Floats:
            return encoder.operand(*_dense(there, part))

        y = g.layer_norm(x, encoder.named(f"layers.{i}.input_layernorm.weight"), f"{here}.norm1")
        q, k, v = _self_qkv(g, shape, y, dense, rotation, f"{here}.self")
        y = g.linear(_attention(g, shape, q, k, v, f"{here}.self"), dense("self_attn/dense"), f"{here}.self.out")
        x = g.node("Add", x, y, name=f"{here}.after_self")
        y = g.layer_norm(x, encoder.named(f"layers.{i}.post_attention_layernorm.weight"), f"{here}.norm2")
        y = g.linear(y, dense("mlp/fc1"), f"{here}.up", encoder.named(f"layers.{i}.mlp.fc1.bias"))
        y = g.gelu(y, f"{here}.gelu")
        y = g.linear(y, dense("mlp/fc2"), f"{here}.down", encoder.named(f"layers.{i}.mlp.fc2.bias"))
        x = g.node("Add", x, y, name=f"{here}.after_mlp")
    x = g.layer_norm(x, encoder.operand("last_hidden_state"), "norm")
    # One product for all layers: the input is quantised once and read once.
    weights = [
        decoder.operand(f"/model/decoder/layers.{i}/encoder_attn/{c}_proj/MatMul_output_0")
        for i in range(shape.layers)
        for c in "kv"
    ]
    y = g.linear(x, np.concatenate(weights, axis=1), "cross")
    y = _split_heads(g, shape, y, len(weights) * shape.heads, "cross")
    names = [spec[0] for spec in shape.cross()]
    g.split_node("Split", y, g.ints(*[shape.heads] * len(names)), outputs=names, name="cross.split", axis=1)
    return g.model([("audio", TensorProto.FLOAT, [1, "samples"])], shape.cross())


def decoder_graph(shape: MoonshineShape, decoder: ShippedWeights, *, int8: bool) -> onnx.ModelProto:
    """Token ids and caches to logits and grown caches."""
    g = GraphBuilder("moonshine_decoder", int8=int8)
    table = decoder.operand("/model/decoder/embed_tokens/Gather_output_0")
    x = g.embedding("ids", table, "embedding")
    past = g.node("Gather", g.node("Shape", "past_k.0", name="past.shape"), g.index(2), name="past.length", axis=0)
    new = g.node("Gather", g.node("Shape", "ids", name="ids.shape"), g.index(1), name="ids.length", axis=0)
    total = g.node("Add", past, new, name="total.length")
    positions = g.node("Range", past, total, g.index(1), name="positions")
    mask = _causal_mask(g, positions, total)
    rotation = _Rotation.at(g, shape, positions, decoder.operand(*_rotary("/model/decoder/rotary_emb")))
    for i in range(shape.layers):
        there, here = f"/model/decoder/layers.{i}", f"layer{i}"

        def dense(part: str, there: str = there) -> Floats:
            return decoder.operand(*_dense(there, part))

        def named(part: str, i: int = i) -> Floats:
            # The merge of the two exported decoders marks what it shares.
            names = [f"model.decoder.layers.{i}.{name}" for name in _names(part, ".")]
            return decoder.named(*(f"{name}{mark}" for name in names for mark in ("_merged_0", "")))

        y = g.layer_norm(x, named("input_layernorm.weight"), f"{here}.norm1")
        q, k, v = _self_qkv(g, shape, y, dense, rotation, f"{here}.self")
        k = _extend(g, f"past_k.{i}", k, f"present_k.{i}")
        v = _extend(g, f"past_v.{i}", v, f"present_v.{i}")
        y = _attention(g, shape, q, k, v, f"{here}.self", mask)
        x = g.node("Add", x, g.linear(y, dense("self_attn/dense"), f"{here}.self.out"), name=f"{here}.after_self")
        y = g.layer_norm(x, named("post_attention_layernorm.weight"), f"{here}.norm2")
        q = g.linear(y, dense("encoder_attn/q_proj") * _score_scale(shape), f"{here}.cross.q")
        q = _split_heads(g, shape, q, shape.heads, f"{here}.cross")
        y = _attention(g, shape, q, f"cross_k.{i}", f"cross_v.{i}", f"{here}.cross")
        x = g.node("Add", x, g.linear(y, dense("encoder_attn/dense"), f"{here}.cross.out"), name=f"{here}.after_cross")
        y = g.layer_norm(x, named("final_layernorm.weight"), f"{here}.norm3")
        y = _gated_mlp(g, y, dense, named, here)
        x = g.node("Add", x, y, name=f"{here}.after_mlp")
    norm = decoder.operand("/model/decoder/norm/Mul_output_0", "/model/decoder/norm/LayerNormalization_output_0")
    x = g.layer_norm(x, norm, "norm")
    # Tied to the table in training; an export that rounds its weights may have rounded the two on their own.
    g.linear(x, decoder.operand("logits"), "logits")
    ids: list[TensorSpec] = [("ids", TensorProto.INT64, ["batch", "length"]), ("rows", TensorProto.INT64, ["batch"])]
    logits: TensorSpec = ("logits", TensorProto.FLOAT, ["batch", "length", shape.vocabulary])
    return g.model([*ids, *shape.past(), *shape.cross()], [logits, *shape.present()])


# ---- pieces ---------------------------------------------------------------------------------------


_ALSO = {"dense": "o_proj", "up_proj": "fc1", "down_proj": "fc2"}
"""Layers that the two exports name differently: base's name -> tiny's."""


def _names(part: str, separator: str) -> tuple[str, str]:
    """A part of the module tree, as either export names it."""
    return part, separator.join(_ALSO.get(step, step) for step in part.split(separator))


def _dense(there: str, part: str) -> tuple[str, ...]:
    """Where a product's result may be."""
    return tuple(f"{there}/{name}/MatMul_output_0" for name in _names(part, "/"))


def _rotary(there: str) -> tuple[str, str]:
    """Where the frequencies are used; one export repeats them for the batch before."""
    return f"{there}/Expand_output_0", f"{there}/MatMul_output_0"


def _audio_frames(g: GraphBuilder, shape: MoonshineShape, w: ShippedWeights) -> str:
    """Three strided convolutions: audio [1, samples] -> [1, frames, width]."""
    x = g.node("Unsqueeze", "audio", g.ints(1), name="audio.channel")
    x = _conv(g, x, w, "conv1", None)
    x = g.node("Tanh", x, name="conv1.tanh")
    # Group normalisation with one group, as an instance normalisation over everything.
    x = g.node("Reshape", x, g.ints(0, 1, -1), name="group_norm.flat")
    one, zero = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    x = g.node(
        "InstanceNormalization",
        x,
        g.constant("group_norm.one", one),
        g.constant("group_norm.zero", zero),
        name="group_norm.normalised",
        epsilon=1e-5,
    )
    x = g.node("Reshape", x, g.ints(1, shape.width, -1), name="group_norm.unflat")
    weight, bias = w.operand("/groupnorm/Mul_output_0"), w.operand("/groupnorm/Add_output_0")
    x = g.node("Mul", x, g.constant("group_norm.weight", weight), name="group_norm.scaled")
    x = g.node("Add", x, g.constant("group_norm.bias", bias), name="group_norm")
    for name in ("conv2", "conv3"):
        x = g.gelu(_conv(g, x, w, name, w.named(f"{name}.bias")), f"{name}.gelu")
    return g.node("Transpose", x, name="frames", perm=[0, 2, 1])


def _conv(g: GraphBuilder, x: str, w: ShippedWeights, name: str, bias: Floats | None) -> str:
    # One export has the first convolution and what follows it in one node.
    kernel = w.operand(f"/{name}/Conv_output_0", "/Tanh_output_0")
    inputs = [x, g.constant(f"{name}.weight", kernel)]
    if bias is not None:
        inputs.append(g.constant(f"{name}.bias", bias))
    return g.node("Conv", *inputs, name=name, kernel_shape=[kernel.shape[2]], strides=[_CONV_STRIDES[name]])


def _score_scale(shape: MoonshineShape) -> np.float32:
    return np.float32(shape.head_dim**-0.5)


@dataclass(frozen=True, slots=True)
class _Rotation:
    """Rotary position embedding: cosines and signed sines [L, head_dim], and which channels they are for."""

    cos: str
    sin: str
    half: int
    """Channels of one half of the rotating part; the rest of a head does not rotate."""

    @classmethod
    def at(cls, g: GraphBuilder, shape: MoonshineShape, positions: str, frequencies: Floats) -> _Rotation:
        f = frequencies.ravel()
        still = np.zeros(shape.head_dim - 2 * f.size, dtype=np.float32)
        # (a, b) -> (a cos - b sin, b cos + a sin). With the first half's frequencies negated, the same angles
        # give the cosines (even) and the sines with their signs (odd).
        signed = g.constant("rotation.frequencies", np.concatenate([-f, f, still])[None])
        steps = g.node("Cast", positions, name="rotation.positions", to=TensorProto.FLOAT)
        column = g.node("Unsqueeze", steps, g.ints(1), name="rotation.column")
        angles = g.node("Mul", column, signed, name="rotation.angles")
        return cls(g.node("Cos", angles, name="rotation.cos"), g.node("Sin", angles, name="rotation.sin"), f.size)

    def order(self, shape: MoonshineShape) -> npt.NDArray[np.int64]:
        """Output channels of q or k in the order the rotation wants: each head's pairs as two halves."""
        pairs = np.arange(2 * self.half).reshape(-1, 2)
        head = np.concatenate([pairs[:, 0], pairs[:, 1], np.arange(2 * self.half, shape.head_dim)])
        channels: npt.NDArray[np.int64] = np.arange(shape.heads)[:, None] * shape.head_dim + head
        return channels.ravel()

    def apply(self, g: GraphBuilder, shape: MoonshineShape, x: str, name: str) -> str:
        """Rotate x [B, heads, L, head_dim]."""
        sizes = g.ints(self.half, self.half, shape.head_dim - 2 * self.half)
        parts = [f"{name}.first", f"{name}.second", f"{name}.still"]
        first, second, still = g.split_node("Split", x, sizes, outputs=parts, name=f"{name}.halves", axis=-1)
        turned = g.node("Concat", second, first, still, name=f"{name}.turned", axis=-1)
        return g.node(
            "Add",
            g.node("Mul", x, self.cos, name=f"{name}.cos"),
            g.node("Mul", turned, self.sin, name=f"{name}.sin"),
            name=f"{name}.rotated",
        )


def _self_qkv(
    g: GraphBuilder, shape: MoonshineShape, x: str, dense: Callable[[str], Floats], rotation: _Rotation, name: str
) -> tuple[str, str, str]:
    """Rotated queries and keys, and values, each [B, heads, L, head_dim]."""
    order = rotation.order(shape)
    q = dense("self_attn/q_proj")[:, order] * _score_scale(shape)
    k = dense("self_attn/k_proj")[:, order]
    y = g.linear(x, np.concatenate([q, k, dense("self_attn/v_proj")], axis=1), f"{name}.qkv")
    y = _split_heads(g, shape, y, 3 * shape.heads, f"{name}.qkv")
    sizes = g.ints(2 * shape.heads, shape.heads)
    both, values = g.split_node("Split", y, sizes, outputs=[f"{name}.qk", f"{name}.v"], name=f"{name}.qk_v", axis=1)
    both = rotation.apply(g, shape, both, f"{name}.qk")
    sizes = g.ints(shape.heads, shape.heads)
    queries, keys = g.split_node("Split", both, sizes, outputs=[f"{name}.q", f"{name}.k"], name=f"{name}.q_k", axis=1)
    return queries, keys, values


def _split_heads(g: GraphBuilder, shape: MoonshineShape, x: str, heads: int, name: str) -> str:
    """[B, L, heads * head_dim] -> [B, heads, L, head_dim]."""
    x = g.node("Reshape", x, g.ints(0, 0, heads, shape.head_dim), name=f"{name}.split_heads")
    return g.node("Transpose", x, name=f"{name}.heads", perm=[0, 2, 1, 3])


def _attention(
    g: GraphBuilder, shape: MoonshineShape, q: str, k: str, v: str, name: str, mask: str | None = None
) -> str:
    """Softmax attention; the scores' scale is in q. Returns [B, L, width]."""
    turned = g.node("Transpose", k, name=f"{name}.keys", perm=[0, 1, 3, 2])
    scores = g.node("MatMul", q, turned, name=f"{name}.scores")
    if mask is not None:
        scores = g.node("Add", scores, mask, name=f"{name}.masked")
    mixed = g.node("MatMul", g.node("Softmax", scores, name=f"{name}.softmax", axis=-1), v, name=f"{name}.mixed")
    mixed = g.node("Transpose", mixed, name=f"{name}.unheads", perm=[0, 2, 1, 3])
    return g.node("Reshape", mixed, g.ints(0, 0, shape.width), name=f"{name}.merged")


def _causal_mask(g: GraphBuilder, positions: str, total: str) -> str:
    """[L, T + L]: 0 where a new position may look, a large negative number where it may not."""
    seen = g.node("Range", g.index(0), total, g.index(1), name="mask.columns")
    later = g.node(
        "Greater",
        g.node("Unsqueeze", seen, g.ints(0), name="mask.row"),
        g.node("Unsqueeze", positions, g.ints(1), name="mask.column"),
        name="mask.later",
    )
    return g.node("Where", later, g.scalar(_MASKED), g.scalar(0.0), name="mask")


def _extend(g: GraphBuilder, past: str, new: str, name: str) -> str:
    """The past rows that go on, followed by the new positions."""
    kept = g.node("Gather", past, "rows", name=f"{name}.kept", axis=0)
    return g.node("Concat", kept, new, name=name, axis=2)


def _gated_mlp(
    g: GraphBuilder, x: str, dense: Callable[[str], Floats], named: Callable[[str], Floats], name: str
) -> str:
    """SwiGLU: value * silu(gate)."""
    up = dense("mlp/up_proj")
    y = g.linear(x, up, f"{name}.up", named("mlp.up_proj.bias"))
    half = up.shape[1] // 2
    outputs = [f"{name}.value", f"{name}.gate"]
    value, gate = g.split_node("Split", y, g.ints(half, half), outputs=outputs, name=f"{name}.value_gate", axis=-1)
    silu = g.node("Mul", gate, g.node("Sigmoid", gate, name=f"{name}.sigmoid"), name=f"{name}.silu")
    y = g.node("Mul", silu, value, name=f"{name}.gated")
    return g.linear(y, dense("mlp/down_proj"), f"{name}.down", named("mlp.down_proj.bias"))
