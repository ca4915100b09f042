"""Which of our graphs go to TensorRT, where they lie, and golden inputs that tell a right engine from a wrong one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from models.engines.base import Array, Engine
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.profiles import profiles_for
from models.engines.tensorrt.provide import EngineSpec
from models.engines.tensorrt.selfcheck import MIN_SNR_DB, Golden
from models.errors import CatalogueError, EngineCheckError, PackMissingError

if TYPE_CHECKING:
    from pathlib import Path

    from models.engines.tensorrt.key import BuildSettings
    from models.store import Store

__all__ = ["PARTS", "PRECISIONS", "golden", "precision_of", "reference_engines", "spec_for"]

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "moonshine-base-en": ("encoder", "decoder"),
    "piper-en-us-joe": ("flow", "vocoder"),
    "silero-vad": ("vad",),
}
"""What serves. The voice's front end has sizes that depend on values and stays on the CPU."""
PRECISIONS: Final = ("fp32", "fp16", "int8-trt")
_SNR_DB: Final = {"fp32": 40.0, "fp16": 30.0, "int8-trt": MIN_SNR_DB}
"""Least signal to noise by precision; measured: 58 dB and more in FP16, 20 in INT8. FP32 leaves room for TF32."""

Feed = Mapping[str, Array]

_SPEECH_S: Final = 2.0
_STEPS: Final = 6
_BEAMS: Final = 4
_WINDOWS: Final = 30


def precision_of(store: Store, pack_id: str, part: str) -> str:
    """The precision to build: what the quantisation's report chose for TensorRT, else FP32."""
    from models.quantize import open_quantised

    try:
        _, reports = open_quantised(store, pack_id)
    except PackMissingError:
        return "fp32"
    for report in reports:
        chosen = report.chosen.get("tensorrt", "fp32")
        if any(p.part == part for v in report.variants if v.variant == chosen for p in v.parts):
            return chosen
    return "fp32"


def spec_for(store: Store, pack_id: str, part: str, precision: str, settings: BuildSettings) -> EngineSpec:
    """A graph of ours at a precision. Raises `CatalogueError`, `PackMissingError`, `ProfileError`."""
    if precision not in PRECISIONS:
        raise CatalogueError(f"TensorRT runs {', '.join(PRECISIONS)}; not {precision}")
    graph = profiles_for(pack_id, part)
    onnx, sha256 = _graph_file(store, pack_id, part, precision)
    states = store.catalogue.get(pack_id).state_tensors(part)
    return EngineSpec(f"{pack_id} {part} {precision}", onnx, graph, states, settings, sha256)


def golden(store: Store, pack_id: str, part: str, precision: str) -> Golden:
    """Inputs as they come in use, answered by the FP32 graph on the CPU. Computed here and now: a second or so."""
    states = store.catalogue.get(pack_id).state_tensors(part)
    file, _ = _graph_file(store, pack_id, part, "fp32")
    feeds = {
        "moonshine-base-en": _recogniser_feeds,
        "piper-en-us-joe": _voice_feeds,
        "silero-vad": _activity_feeds,
    }[pack_id](store, part)

    def reference() -> Engine:
        return OrtCpuEngine(file, states)

    return Golden(feeds, reference, _SNR_DB[precision])


def _graph_file(store: Store, pack_id: str, part: str, precision: str) -> tuple[Path, str]:
    """A graph's file, verified, and its checksum."""
    from models.convert import needs_conversion, open_artefact
    from models.quantize import open_quantised

    if precision == "fp32" and not needs_conversion(pack_id):
        pack = store.open(pack_id)
        file = next(f for f in pack.pack.files if f.name.endswith(".onnx"))
        return pack.path(file.name), file.sha256
    artefact = open_artefact(store, pack_id) if precision == "fp32" else open_quantised(store, pack_id)[0]
    path = artefact.path(part, precision)
    return path, next(f.sha256 for f in artefact.manifest.files if (f.part, f.precision) == (part, precision))


def _speech(store: Store) -> Array:
    from models.quantize.sound import read_wav

    sound: Array = read_wav(store.open("moonshine-base-en").path("beckett.wav"))
    return sound


def reference_engines(store: Store, pack_id: str) -> dict[str, Engine]:
    """Every graph of a pack that TensorRT may run, in FP32 on the CPU: part -> engine, to be closed."""
    engines: dict[str, Engine] = {}
    for part in PARTS[pack_id]:
        states = store.catalogue.get(pack_id).state_tensors(part)
        engines[part] = OrtCpuEngine(_graph_file(store, pack_id, part, "fp32")[0], states)
    return engines


@contextlib.contextmanager
def _run(store: Store, pack_id: str, part: str) -> Iterator[OrtCpuEngine]:
    """An FP32 graph on the CPU, on the way to another's inputs."""
    engine = OrtCpuEngine(
        _graph_file(store, pack_id, part, "fp32")[0], store.catalogue.get(pack_id).state_tensors(part)
    )
    with contextlib.closing(engine):
        yield engine


def _recogniser_feeds(store: Store, part: str) -> Sequence[Feed]:
    from models.catalogue import AsrParameters

    pack_id = "moonshine-base-en"
    p = store.open(pack_id).pack.parameters_as(AsrParameters)
    sound = _speech(store)
    clips = [sound[None, : int(seconds * p.rate_hz)] for seconds in (_SPEECH_S, 2 * _SPEECH_S)]
    if part == "encoder":
        return [{"audio": np.ascontiguousarray(clip)} for clip in clips]
    with _run(store, pack_id, "encoder") as encoder, _run(store, pack_id, "decoder") as decoder:
        cross = {n: np.array(v) for n, v in encoder.stream().run({"audio": clips[1]}).items()}
        stream, feeds = decoder.stream(), []
        ids, rows = np.array([[p.begin_token]], dtype=np.int64), np.zeros(1, dtype=np.int64)
        for _ in range(_STEPS):
            feeds.append({"ids": ids, "rows": rows, **cross})
            logits = stream.run(feeds[-1])["logits"][:, -1]
            ids = logits.argmax(axis=-1)[:, None]
        # Then as beams do: the likeliest go on from the one row, and two of those again. Only what could be said is
        # asked: behind the end of a sentence the model was never taught, and FP32 and INT8 differ there.
        best = np.argsort(logits[0])[-_BEAMS:]
        feeds.append({"ids": best[:, None].astype(np.int64), "rows": np.zeros(_BEAMS, dtype=np.int64), **cross})
        logits = stream.run(feeds[-1])["logits"][:, -1]
        kept = np.array([_BEAMS - 1, _BEAMS - 2], dtype=np.int64)
        feeds.append({"ids": logits.argmax(axis=-1)[kept, None], "rows": kept, **cross})
    if any(p.end_token in feed["ids"] for feed in feeds[:_STEPS]):
        raise EngineCheckError("the golden recording ends too early: it is not the one this check was made for")
    return feeds


def _voice_feeds(store: Store, part: str) -> Sequence[Feed]:
    from models.catalogue import TtsParameters
    from models.quantize.sound import PROBE_SENTENCES, phoneme_ids

    pack_id = "piper-en-us-joe"
    pack = store.open(pack_id)
    ids = phoneme_ids(pack.path(pack.pack.parameters_as(TtsParameters).config), PROBE_SENTENCES[0])
    with _run(store, pack_id, "frontend") as frontend, _run(store, pack_id, "flow") as flow:
        scales = np.array([0, 1, 0], dtype=np.float32)
        latent = frontend.stream().run(
            {"phonemes": ids, "lengths": np.array([ids.shape[1]], dtype=np.int64), "scales": scales}
        )
        # A first chunk's length, a short sentence's, and a later chunk's; see `ChunkPlan`.
        pieces = [{n: np.array(v[:, :, :frames]) for n, v in latent.items()} for frames in (55, 20, 139)]
        if part == "flow":
            return pieces
        spectral = np.array(flow.stream().run(pieces[2])["spectral"])
    return [{"spectral": np.ascontiguousarray(spectral[:, :, :frames])} for frames in (23, 46, 82)]


def _activity_feeds(store: Store, part: str) -> Sequence[Feed]:
    from models.catalogue import VadParameters

    del part  # there is one
    p = store.open("silero-vad").pack.parameters_as(VadParameters)
    sound = np.concatenate((np.zeros(p.context_samples, dtype=np.float32), _speech(store)))
    starts = range(0, _WINDOWS * p.window_samples, p.window_samples)
    return [{"input": np.array(sound[None, at : at + p.context_samples + p.window_samples])} for at in starts]
