"""A transducer over bare engines, and how it is fed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from appliance.audio.frame import FRAME_SAMPLES, Samples
from appliance.voice.asr.transducer.files import PARTS, read_folder
from appliance.voice.asr.transducer.recogniser import TransducerLimits, TransducerModel, TransducerRecogniser
from appliance.voice.asr.transducer.search import SearchSettings
from models.engines.onnx_cpu import OrtCpuEngine

__all__ = ["heard", "model_of"]


def model_of(folder: Path, limits: TransducerLimits | None = None, *, paths: int = 4) -> TransducerModel:
    """The model of a folder, without ladders or a plan."""
    files = read_folder(folder)
    engines = {
        part: OrtCpuEngine(files.graphs[part], files.metadata.states if part == "encoder" else ()) for part in PARTS
    }
    return TransducerModel(
        files.metadata,
        **engines,
        labels=files.labels,
        search=SearchSettings(paths=paths),
        limits=limits or TransducerLimits(),
    )


def heard(recogniser: TransducerRecogniser, sound: Samples, sizes: Sequence[int] = (FRAME_SAMPLES,)) -> list[str]:
    """Push the sound in pieces of these sizes, again and again; the partial texts."""
    texts, at, turn = [], 0, 0
    while at < sound.size:
        size = sizes[turn % len(sizes)]
        texts += [partial.text for partial in recogniser.push_samples(sound[at : at + size])]
        at, turn = at + size, turn + 1
    return texts
