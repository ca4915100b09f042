"""Self-check of the Moonshine conversion: a real decode, step by step, against the shipped models."""

from __future__ import annotations

import math
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.catalogue import AsrParameters
from models.convert.build import Build
from models.engines.base import Array
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError
from models.store import InstalledPack

__all__ = ["Original", "check"]

FP32_TOLERANCE = 1e-3
"""Largest difference of a logit from the original's, FP32: rounding of sums in another order is about 2e-5."""
INT8_SNR_DB = 20.0
"""Least signal to noise of INT8 logits: 28 dB is usual; on saturating products it falls to 8 dB and words change."""
_TOKENS = 60
"""Longest decode; the clip gives about 15."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Original:
    """What to compare with: the shipped models, or those with floats where they multiply bytes."""

    encoder: Path
    decoder: Path


def check(pack: InstalledPack, original: Original, build: Build) -> None:
    """Put figures into the build. Raises `ConversionError` when a graph does not do what the original does."""
    p = pack.pack.parameters_as(AsrParameters)
    audio = _read(pack.path("beckett.wav"))
    tokens, reference = _decode_original(original, p, audio)
    build.checks["tokens"] = len(tokens)
    for precision in ("fp32", "int8"):
        encoder = OrtCpuEngine(build.graph("encoder", precision))
        decoder = OrtCpuEngine(build.graph("decoder", precision), pack.pack.state_tensors("decoder"))
        found, logits = _follow(encoder, decoder, p, audio, tokens)
        difference, snr_db = float(np.abs(logits - reference).max()), _snr_db(reference, logits)
        build.checks[f"{precision}_max_logit_difference"] = difference
        build.checks[f"{precision}_logit_snr_db"] = round(snr_db, 1)
        if found != tokens:
            raise ConversionError(f"Moonshine {precision}: says tokens {found} where the original says {tokens}")
        if precision == "fp32" and difference > FP32_TOLERANCE:
            raise ConversionError(f"Moonshine fp32: a logit is {difference:.2g} off, {FP32_TOLERANCE:g} allowed")
        if precision == "int8" and snr_db < INT8_SNR_DB:
            raise ConversionError(f"Moonshine int8: logits have {snr_db:.1f} dB, at least {INT8_SNR_DB} dB wanted")


def _read(path: Path) -> Floats:
    """A 16-bit mono WAV as [1, samples]."""
    with wave.open(str(path), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2").astype(np.float32)
    return pcm[None] / np.float32(32768)


def _snr_db(reference: Floats, other: Floats) -> float:
    """Signal to noise; a constant added to all logits of a step changes nothing, so each step's mean is no signal."""
    signal = float(np.square(reference - reference.mean(axis=-1, keepdims=True)).sum())
    noise = float(np.square(other - reference).sum())
    return 10 * math.log10(signal / max(noise, 1e-30))


def _follow(
    encoder: OrtCpuEngine, decoder: OrtCpuEngine, p: AsrParameters, audio: Floats, reference: list[int]
) -> tuple[list[int], Floats]:
    """Best tokens and logits after each token of the reference, one step at a time, as in use.

    If the best ones are the reference's, then so is a free greedy decode.
    """
    cross = encoder.stream().run({"audio": audio})
    stream, logits = decoder.stream(), []
    for token in (p.begin_token, *reference[:-1]):
        ids, rows = np.array([[token]], dtype=np.int64), np.zeros(1, dtype=np.int64)
        logits.append(stream.run({"ids": ids, "rows": rows, **cross})["logits"][0, -1])
    return [int(row.argmax()) for row in logits], np.stack(logits)


def _decode_original(original: Original, p: AsrParameters, audio: Floats) -> tuple[list[int], Floats]:
    """Tokens and logits [tokens, vocabulary] of a greedy decode by the original."""
    engine, merged = OrtCpuEngine(original.encoder), OrtCpuEngine(original.decoder)
    decoder = merged.stream()
    # Some exports want to be told what of the sound counts: all of it.
    every = np.ones(audio.shape, dtype=np.int64)
    mask: dict[str, Array] = {"attention_mask": every} if "attention_mask" in engine.inputs else {}
    hidden = engine.stream().run({"input_values": audio, **mask})["last_hidden_state"]
    mask = {"encoder_attention_mask": every} if "encoder_attention_mask" in merged.inputs else {}
    # The first call ignores the caches, but wants them; it fills the cross-attention's, later ones leave it alone.
    empty = {"decoder": 0, "encoder": 1}
    past: dict[str, Array] = {
        name: np.zeros((1, p.heads, empty[name.split(".")[2]], p.head_dim), dtype=np.float32)
        for name in merged.inputs
        if name.startswith("past")
    }
    tokens: list[int] = []
    logits = []
    token = p.begin_token
    while token != p.end_token and len(tokens) < _TOKENS:
        first = not tokens
        fixed = {
            "input_ids": np.array([[token]], dtype=np.int64),
            "encoder_hidden_states": hidden,
            "use_cache_branch": np.array([not first]),
        }
        out = decoder.run(fixed | mask | past)
        for name in past:
            if first or ".decoder." in name:
                past[name] = out[name.replace("past_key_values", "present")]
        logits.append(out["logits"][0, -1])
        token = int(logits[-1].argmax())
        tokens.append(token)
    return tokens, np.stack(logits)
