"""A Zipformer by its signature that does understand: each piece of a word is a tone, and it writes the tones it hears.

With it the whole chain can be judged by what was said: features, windows, states, search, the home's phrases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import TensorProto

from appliance.audio.frame import RATE_HZ, Samples
from tests.voice.asr.transducer.small_models import (
    BINS,
    PIECES,
    STACKS,
    ZIPFORMER_SHIFT,
    ZIPFORMER_WINDOW,
    Graph,
    write_tokens,
    zipformer_states,
)

__all__ = ["spoken_tones", "write_tone_model"]

LABELS = len(PIECES) + 2
TONE_S, GAP_S, LEVEL = 0.16, 0.04, 0.1
SHARPNESS = 1.2
"""How much of the difference in log energy between two tones is one in log-probability."""
HELD = 40.0
"""What speaks against a label while its tone goes on."""


def bin_of(piece: str) -> int:
    """Mel bin of a piece's tone: four apart, so that no tone is heard in another's."""
    return 10 + 4 * PIECES.index(piece)


def hz_of(piece: str) -> float:
    """Middle of that bin, on Kaldi's mel scale between 20 and 7600 Hz."""
    low, high = (1127 * np.log(1 + hz / 700) for hz in (20.0, 7600.0))
    mel = low + (bin_of(piece) + 1) * (high - low) / (BINS + 1)
    return float(700 * (np.exp(mel / 1127) - 1))


def spoken_tones(pieces: Sequence[str], faint: Mapping[int, float] | None = None) -> Samples:
    """The pieces one after the other; `faint`: place -> how loud it is there, where it is not 1."""
    length, gap = int(TONE_S * RATE_HZ), int(GAP_S * RATE_HZ)
    seconds = np.arange(length) / RATE_HZ
    fade = np.minimum(1.0, np.minimum(np.arange(length), np.arange(length)[::-1]) / 160)
    parts = [np.zeros(RATE_HZ // 5)]
    for place, piece in enumerate(pieces):
        level = LEVEL * (faint or {}).get(place, 1.0)
        parts += [level * fade * np.sin(2 * np.pi * hz_of(piece) * seconds), np.zeros(gap)]
    return np.concatenate(parts).astype(np.float32)


def write_tone_model(folder: Path) -> Path:
    """Encoder, decoder, joiner and tokens; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = ZIPFORMER_SHIFT // 4
    graph = Graph(0)
    middle = graph.op("Slice", "x", *(graph.constant([n], np.int64) for n in (6, 6 + ZIPFORMER_SHIFT, 1)))
    fours = graph.op("ReduceMean", graph.reshape(middle, 1, frames, 4, BINS), axes=[2], keepdims=0)
    picked = np.zeros((BINS, LABELS))
    for number, piece in enumerate(PIECES, start=2):
        picked[bin_of(piece), number] = SHARPNESS
    graph.op("MatMul", fours, graph.constant(picked), name="encoder_out")
    states = zipformer_states()
    for name in states:
        graph.op("Identity", name, name=f"new_{name}")
    kinds = {
        name: (TensorProto.INT64 if name == "processed_lens" else TensorProto.FLOAT, shape)
        for name, shape in states.items()
    }
    graph.save(
        folder / "encoder.onnx",
        {"x": (TensorProto.FLOAT, ("N", ZIPFORMER_WINDOW, BINS)), **kinds},
        {
            "encoder_out": (TensorProto.FLOAT, ("N", frames, LABELS)),
            **{f"new_{name}": kind for name, kind in kinds.items()},
        },
        {"model_type": "zipformer2", "T": ZIPFORMER_WINDOW, "decode_chunk_len": ZIPFORMER_SHIFT, **STACKS},
    )
    graph = Graph(0)
    last = graph.op("Slice", "y", *(graph.constant([n], np.int64) for n in (1, 2, 1)))
    row = graph.op("Gather", graph.constant(np.eye(LABELS)), graph.reshape(last, -1))
    graph.op("Mul", row, graph.constant([-HELD]), name="decoder_out")
    graph.save(
        folder / "decoder.onnx",
        {"y": (TensorProto.INT64, ("N", 2))},
        {"decoder_out": (TensorProto.FLOAT, ("N", LABELS))},
        {"context_size": 2, "vocab_size": LABELS},
    )
    graph = Graph(0)
    both = graph.op("Add", "encoder_out", "decoder_out")
    mask, bias = np.ones(LABELS), np.zeros(LABELS)
    mask[0] = 0.0  # the blank is neither heard nor held
    bias[1] = -100.0  # nothing is unknown
    graph.op("Add", graph.op("Mul", both, graph.constant(mask)), graph.constant(bias), name="logit")
    rows = (TensorProto.FLOAT, ("N", LABELS))
    graph.save(folder / "joiner.onnx", {"encoder_out": rows, "decoder_out": rows}, {"logit": rows}, {})
    write_tokens(folder, ("<blk>", "<unk>", *PIECES))
    return folder
