"""Self-check of the Moonshine conversion: a real decode, step by step, against the shipped models."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from models.catalogue import AsrParameters
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError
from models.store import InstalledPack

__all__ = ["check"]

FP32_TOLERANCE = 1e-3
"""Largest difference of a logit from the original's, FP32: rounding of sums in another order is about 2e-5."""
INT8_SNR_DB = 20.0
"""Least signal to noise of INT8 logits: 28 dB is usual; on saturating products it falls to 8 dB and words change."""
_TOKENS = 60
"""Longest decode; the clip gives about 15."""

Floats = npt.NDArray[np.float32]


def check(pack: InstalledPack, folder: Path) -> dict[str, float | str]:
    """Figures for the manifest. Raises `ConversionError` when a graph does not do what the original does."""
    p = pack.pack.parameters_as(AsrParameters)
    audio = _read(pack.path("beckett.wav"))
    tokens, reference = _decode_original(pack, p, audio)
    figures: dict[str, float | str] = {"tokens": float(len(tokens))}
    for precision in ("fp32", "int8"):
        encoder = OrtCpuEngine(folder / f"encoder.{precision}.onnx")
        decoder = OrtCpuEngine(folder / f"decoder.{precision}.onnx", pack.pack.state_tensors("decoder"))
        found, logits = _decode(encoder, decoder, p, audio, tokens)
        encoder.close()
        decoder.close()
        difference = float(np.abs(logits - reference).max())
        figures[f"{precision}_max_logit_difference"] = difference
        figures[f"{precision}_logit_snr_db"] = round(_snr_db(reference, logits), 1)
        if found != tokens:
            raise ConversionError(f"Moonshine {precision}: says {found} where the original says {tokens}")
        if precision == "fp32" and difference > FP32_TOLERANCE:
            raise ConversionError(f"Moonshine fp32: a logit is {difference:.2g} off, {FP32_TOLERANCE:g} allowed")
        if _snr_db(reference, logits) < INT8_SNR_DB:
            raise ConversionError(
                f"Moonshine {precision}: logits {_snr_db(reference, logits):.1f} dB, {INT8_SNR_DB} wanted"
            )
    return figures


def _read(path: Path) -> Floats:
    """A 16-bit mono WAV as [1, samples]."""
    with wave.open(str(path), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2")
    return (pcm.astype(np.float32) / 32768)[None]


def _snr_db(reference: Floats, other: Floats) -> float:
    """Signal to noise; a constant added to all logits of a step changes nothing, so each step's mean is no signal."""
    signal = reference - reference.mean(axis=-1, keepdims=True)
    return float(10 * np.log10((signal**2).sum() / max(float(((other - reference) ** 2).sum()), 1e-30)))


def _decode(
    encoder: OrtCpuEngine, decoder: OrtCpuEngine, p: AsrParameters, audio: Floats, reference: list[int]
) -> tuple[list[int], Floats]:
    """Tokens of a greedy decode, and the logits along the reference's tokens."""
    cross = encoder.stream().run({"audio": audio})
    rows = np.zeros(1, dtype=np.int64)
    stream = decoder.stream()
    tokens, token = [], p.begin_token
    while token != p.end_token and len(tokens) < _TOKENS:
        out = stream.run({"ids": np.array([[token]], dtype=np.int64), "rows": rows, **cross})
        token = int(out["logits"][0, -1].argmax())
        tokens.append(token)
    stream.reset()
    forced = np.array([[p.begin_token, *reference[:-1]]], dtype=np.int64)
    return tokens, stream.run({"ids": forced, "rows": rows, **cross})["logits"][0]


def _decode_original(pack: InstalledPack, p: AsrParameters, audio: Floats) -> tuple[list[int], Floats]:
    """Tokens and logits [tokens, vocabulary] of a greedy decode by the shipped models."""
    encoder, decoder = _session(pack.path("encoder_model.ort")), _session(pack.path("decoder_model_merged.ort"))
    (hidden,) = encoder.run(None, {"input_values": audio})
    names = [i.name for i in decoder.get_inputs()]
    outputs = [o.name for o in decoder.get_outputs()]
    # The first call ignores the caches, but wants them; it fills the cross-attention's, later ones leave it alone.
    empty = {"decoder": 0, "encoder": 1}
    past = {
        n: np.zeros((1, p.heads, empty[n.split(".")[2]], p.head_dim), dtype=np.float32)
        for n in names
        if n.startswith("past")
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
        out = dict(zip(outputs, decoder.run(outputs, fixed | past), strict=True))
        for name in past:
            if first or ".decoder." in name:
                past[name] = out[name.replace("past_key_values", "present")]
        logits.append(out["logits"][0, -1])
        token = int(logits[-1].argmax())
        tokens.append(token)
    return tokens, np.stack(logits)


def _session(path: Path) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
