"""Self-check of the Piper cut: the parts together, whole and in chunks, against the voice as shipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.catalogue import TtsParameters
from models.convert.build import Build
from models.engines.base import Array
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import ConversionError
from models.store import InstalledPack

__all__ = ["check", "in_chunks"]

Floats = npt.NDArray[np.float32]
Run = Callable[[Floats], Floats]

TOLERANCE = 1e-4
"""Largest difference of a sample from the original's; full scale is 1."""
MARGINS = (34, 28)
"""Frames before and after a chunk with which the decoder stays within the tolerance (usually 2e-5) of the whole."""
TRIMMED_MARGINS = (24, 20)
"""Cheaper; usually within 5e-4, which is not heard."""
_CHUNK = 20
_SENTENCE = "ðə kˈɪtʃən lˈaɪts ɑːɹ ˈɔn."
_PROBE_FRAMES = 120
_PROBES = 4


def check(pack: InstalledPack, build: Build) -> None:
    """Put figures and margins into the build. Raises `ConversionError` when the parts do not do what the whole does."""
    p = pack.pack.parameters_as(TtsParameters)
    phonemes = _phonemes(pack.path(p.config))
    feed: dict[str, Array] = {
        "lengths": np.array([phonemes.shape[1]], dtype=np.int64),
        "scales": np.array([0, 1, 0], dtype=np.float32),  # no noise: the same samples each time
    }
    whole = OrtCpuEngine(pack.path("en_US-joe-medium.onnx"))
    shipped_feed: dict[str, Array] = {"input": phonemes, "input_lengths": feed["lengths"], "scales": feed["scales"]}
    reference: Floats = whole.stream().run(shipped_feed)["output"].ravel()
    whole.close()
    frontend, decoder, flow, vocoder = (
        OrtCpuEngine(build.graph(part, "fp32")).stream() for part in ("frontend", "decoder", "flow", "vocoder")
    )
    text = frontend.run({"phonemes": phonemes, **feed})
    latent: Floats = text["latent"]

    # The mask of a lone sentence is 1 everywhere.
    def decode(z: Floats) -> Floats:
        return decoder.run({"latent": z, "mask": np.ones_like(z[:, :1])})["audio"].reshape(1, 1, -1)

    def unflow(z: Floats) -> Floats:
        return flow.run({"latent": z, "mask": np.ones_like(z[:, :1])})["spectral"]

    def voice(s: Floats) -> Floats:
        return vocoder.run({"spectral": s})["audio"].reshape(1, 1, -1)

    reach, flow_reach, vocoder_reach = (
        _reach(decode, p.channels, p.hop_samples),
        _reach(unflow, p.channels, 1),
        _reach(voice, p.channels, p.hop_samples),
    )
    hop = p.hop_samples
    spectral = in_chunks(unflow, latent, 1, _CHUNK, (flow_reach, flow_reach))
    results = {
        "whole": decode(latent),
        "margins": in_chunks(decode, latent, hop, _CHUNK, MARGINS),
        "halves": in_chunks(voice, spectral, hop, _CHUNK, (vocoder_reach, vocoder_reach)),
        "trimmed_margins": in_chunks(decode, latent, hop, _CHUNK, TRIMMED_MARGINS),
    }
    build.checks["frames"] = latent.shape[2]
    if not bool((text["mask"] == 1).all()):
        raise ConversionError("Piper: the mask of a lone sentence is not 1 everywhere: not the voice expected")
    for name, audio in results.items():
        difference = _difference(audio.ravel(), reference)
        build.checks[f"{name}_max_difference"] = difference
        if difference > TOLERANCE and name != "trimmed_margins":
            raise ConversionError(f"Piper, {name}: a sample is {difference:.2g} off, {TOLERANCE:g} allowed")
    build.parameters |= {
        "margin_left_frames": MARGINS[0],
        "margin_right_frames": MARGINS[1],
        "trimmed_margin_left_frames": TRIMMED_MARGINS[0],
        "trimmed_margin_right_frames": TRIMMED_MARGINS[1],
        "exact_margin_frames": reach,
        "flow_margin_frames": flow_reach,
        "vocoder_margin_frames": vocoder_reach,
    }


def in_chunks(run: Run, frames: Floats, hop: int, chunk: int, margins: tuple[int, int]) -> Floats:
    """`run` over [1, channels, frames], `chunk` frames at a time with `margins` frames of context before and after.

    `run` gives `hop` values a frame on its last axis; the result is that of all frames.
    """
    total, pieces = frames.shape[2], []
    for start in range(0, total, chunk):
        end = min(start + chunk, total)
        first, last = max(0, start - margins[0]), min(total, end + margins[1])
        made = run(frames[:, :, first:last])
        pieces.append(made[..., (start - first) * hop : (end - first) * hop])
    return np.concatenate(pieces, axis=-1)


def _reach(run: Run, channels: int, hop: int) -> int:
    """How many frames away an output still changes, however little, when one frame of the input does."""
    draw = np.random.default_rng(0)
    farthest, middle = 0, _PROBE_FRAMES // 2
    for _ in range(_PROBES):
        frames = draw.standard_normal((1, channels, _PROBE_FRAMES), dtype=np.float32)
        before = run(frames).copy()
        frames[:, :, middle] += draw.standard_normal((1, channels), dtype=np.float32)
        changed = np.nonzero((run(frames) != before).any(axis=(0, 1)))[0] // hop
        farthest = max(farthest, middle - int(changed.min()), int(changed.max()) - middle)
    return farthest


def _phonemes(config: Path) -> npt.NDArray[np.int64]:
    """Ids of the check's sentence: begin, every phoneme followed by a pad, end, as the voice was trained."""
    ids = json.loads(config.read_text(encoding="utf-8"))["phoneme_id_map"]
    begin, end, pad = ids["^"], ids["$"], ids["_"]
    middle = [i for phoneme in _SENTENCE for i in (*ids[phoneme], *pad)]
    return np.array([[*begin, *pad, *middle, *end]], dtype=np.int64)


def _difference(audio: Floats, reference: Floats) -> float:
    if audio.shape != reference.shape:
        raise ConversionError(f"Piper: {audio.size} samples where the original gives {reference.size}")
    return float(np.abs(audio - reference).max())
