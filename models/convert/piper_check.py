"""Self-check of the Piper cut: both halves together, and the decoder in chunks, against the whole voice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from models.catalogue import TtsParameters
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError
from models.store import InstalledPack

__all__ = ["FULL_MARGINS", "TRIMMED_MARGINS", "check", "decode_in_chunks"]

TOLERANCE = 1e-4
"""Largest difference of a sample (full scale 1) from the original's."""
FULL_MARGINS = (34, 28)
"""Frames of context a chunk needs before and after it to give the very samples of the whole."""
TRIMMED_MARGINS = (24, 20)
"""Cheaper, and inaudibly different."""
_PHONEMES = (1, 0, 32, 0, 61, 0, 14, 0, 26, 0, 17, 0, 3, 0, 27, 0, 26, 0, 3, 0, 41, 0, 59, 0, 3, 0, 24, 0, 14, 0, 74, 0, 32, 0, 31, 0, 10, 0, 2)  # fmt: skip
"""Phoneme ids of about a second of speech; any sentence will do."""

Floats = npt.NDArray[np.float32]


def check(pack: InstalledPack, folder: Path) -> tuple[dict[str, float | str], dict[str, int | float | str]]:
    """Figures and parameters for the manifest. Raises `ConversionError` when the halves do not do what the whole does."""
    p = pack.pack.parameters_as(TtsParameters)
    phonemes = np.array([_PHONEMES], dtype=np.int64)
    lengths = np.array([phonemes.shape[1]], dtype=np.int64)
    scales = np.array([0, 1, 0], dtype=np.float32)  # no noise: the same samples each time
    options = ort.SessionOptions()
    options.log_severity_level = 3
    whole = ort.InferenceSession(str(pack.path("en_US-joe-medium.onnx")), options, providers=["CPUExecutionProvider"])
    (reference,) = whole.run(None, {"input": phonemes, "input_lengths": lengths, "scales": scales})
    reference = reference.ravel()
    del whole
    frontend = OrtCpuEngine(folder / "frontend.fp32.onnx").stream()
    decoder = OrtCpuEngine(folder / "decoder.fp32.onnx")
    out = frontend.run({"phonemes": phonemes, "lengths": lengths, "scales": scales})
    latent, mask = out["latent"], out["mask"]
    audio = decoder.stream().run({"latent": latent, "mask": mask})["audio"].ravel()
    figures: dict[str, float | str] = {"frames": float(latent.shape[2])}
    figures["offline_max_difference"] = _difference(audio, reference)
    for name, margins in (("full", FULL_MARGINS), ("trimmed", TRIMMED_MARGINS)):
        chunked = decode_in_chunks(decoder, latent, mask, p.hop_samples, chunk=20, margins=margins)
        figures[f"{name}_margins_max_difference"] = _difference(chunked, reference)
    for name in ("offline", "full_margins"):
        if (worst := float(figures[f"{name}_max_difference"])) > TOLERANCE:
            raise ConversionError(f"Piper, {name}: a sample is {worst:.2g} off, {TOLERANCE:g} allowed")
    left, right = FULL_MARGINS
    left_trimmed, right_trimmed = TRIMMED_MARGINS
    return figures, {
        "margin_left_frames": left,
        "margin_right_frames": right,
        "trimmed_margin_left_frames": left_trimmed,
        "trimmed_margin_right_frames": right_trimmed,
    }


def decode_in_chunks(
    decoder: OrtCpuEngine, latent: Floats, mask: Floats, hop: int, *, chunk: int, margins: tuple[int, int]
) -> Floats:
    """Audio of all frames, `chunk` frames at a time with `margins` frames of context on each side."""
    stream, frames, pieces = decoder.stream(), latent.shape[2], []
    for start in range(0, frames, chunk):
        end = min(start + chunk, frames)
        first, last = max(0, start - margins[0]), min(frames, end + margins[1])
        audio = stream.run({"latent": latent[:, :, first:last], "mask": mask[:, :, first:last]})["audio"].ravel()
        pieces.append(audio[(start - first) * hop : (end - first) * hop].copy())
    return np.concatenate(pieces)


def _difference(audio: Floats, reference: Floats) -> float:
    if audio.shape != reference.shape:
        raise ConversionError(f"Piper: {audio.size} samples where the original gives {reference.size}")
    return float(np.abs(audio - reference).max())
