"""Each pack's graphs, with real inputs to calibrate, to compare and to time them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.catalogue import AsrParameters, TtsParameters, VadParameters
from models.convert import open_artefact
from models.engines.base import Engine, StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import CatalogueError
from models.quantize.half import names_of, no_edges
from models.quantize.ranges import Feed
from models.quantize.sound import CALIBRATION_SENTENCES, PROBE_SENTENCES, Material, own_voice, phoneme_ids, read_wav
from models.store import Store

__all__ = ["RECOGNISERS", "Group", "Part", "groups_of", "listening", "quantisable"]

Floats = npt.NDArray[np.float32]
VOICE = "piper-en-us-joe"
RECOGNISERS = ("moonshine-base-en", "moonshine-tiny-en")
"""The second is quantised only where it is asked for."""

_CLIP_S = 5.0
"""Calibration clips are cut to this: the range of values does not grow with length."""
_TIMED_S = 3.0
"""A command's length, for timing."""
_STEPS = 9
"""Decoder steps of a usual command: 8 tokens and the end."""
_WINDOWS = 60
"""Windows of a clip that the voice activity detector is run on."""


@dataclass(frozen=True, slots=True)
class Part:
    """One graph."""

    name: str
    path: Path
    states: tuple[StateTensor, ...]
    calibration: tuple[Feed, ...]
    probes: tuple[Feed, ...]
    """Never calibrated with: signal to noise is taken on these."""
    work: tuple[Feed, ...]
    """What is timed."""
    signal: tuple[str, ...]
    """Outputs that count."""
    centred: bool = False
    half_edges: Callable[[str], bool] = no_edges
    """Which inputs and outputs an FP16 graph takes and gives as FP16."""


@dataclass(frozen=True, slots=True)
class Group:
    """Graphs that are judged together, by one evaluation."""

    name: str
    pack: str
    parts: tuple[Part, ...]
    others: Mapping[str, tuple[Path, tuple[StateTensor, ...]]]
    """The pack's other graphs, which the evaluation needs and which stay as they are."""
    hears: bool = True
    """Whether it was calibrated with sound; a voice is with sentences."""


def groups_of(store: Store, pack_id: str, material: Material) -> tuple[Group, ...]:
    """What can be quantised of a pack. Raises `CatalogueError` for one that cannot."""
    if pack_id in RECOGNISERS:
        return _recogniser(store, material, pack_id)
    makers = {VOICE: _voice, "silero-vad": _activity}
    if pack_id not in makers:
        raise CatalogueError(f"{pack_id} cannot be quantised; these can: {', '.join((*RECOGNISERS, *makers))}")
    return makers[pack_id](store, material)


def listening(store: Store) -> dict[str, Engine]:
    """The recogniser that Wren hears with, to judge a voice by."""
    pack, artefact = store.open("moonshine-base-en"), open_artefact(store, "moonshine-base-en")
    states = pack.pack.state_tensors("decoder")
    return {
        "encoder": OrtCpuEngine(artefact.path("encoder", "int8")),
        "decoder": OrtCpuEngine(artefact.path("decoder", "int8"), states),
    }


def quantisable() -> tuple[str, ...]:
    """Packs that Wren runs on, of those that `groups_of` knows."""
    return ("moonshine-base-en", VOICE, "silero-vad")


def _clips(store: Store, material: Material, sentences: Sequence[str], recording: Floats) -> list[Floats]:
    clips = list(own_voice(store, VOICE, sentences, material.noises))
    return [c[: int(_CLIP_S * 16_000)] for c in (recording, *clips, *material.clips)]


def _recogniser(store: Store, material: Material, pack_id: str) -> tuple[Group, ...]:
    pack, artefact = store.open(pack_id), open_artefact(store, pack_id)
    p = pack.pack.parameters_as(AsrParameters)
    encoder = OrtCpuEngine(artefact.path("encoder", "fp32"))
    decoder = OrtCpuEngine(artefact.path("decoder", "fp32"))
    states = pack.pack.state_tensors("decoder")
    beckett = read_wav(pack.path("beckett.wav"))
    heard = _clips(store, material, CALIBRATION_SENTENCES, beckett[: beckett.size // 2])
    probes = [*own_voice(store, VOICE, PROBE_SENTENCES, material.noises, seed=1), beckett[beckett.size // 2 :]]
    probes = [c[: int(_CLIP_S * p.rate_hz)] for c in probes]
    timed = np.resize(probes[-1], int(_TIMED_S * p.rate_hz))

    def steps(sound: Floats, limit: int) -> list[Feed]:
        return _decoder_steps(encoder, decoder, p, states, sound, limit)

    parts = (
        Part(
            "encoder",
            artefact.path("encoder", "fp32"),
            (),
            tuple({"audio": c[None]} for c in heard),
            tuple({"audio": c[None]} for c in probes),
            ({"audio": timed[None]},),
            tuple(encoder.outputs),
            half_edges=names_of("cross_"),
        ),
        Part(
            "decoder",
            artefact.path("decoder", "fp32"),
            states,
            # Every second step: they differ little.
            tuple(f for c in heard for f in steps(c, 20)[::2]),
            tuple(f for c in probes for f in steps(c, 20)[::3]),
            tuple(steps(timed, _STEPS)),
            ("logits",),
            centred=True,
            half_edges=names_of("cross_", "past_", "present_"),
        ),
    )
    return (Group("asr", pack_id, parts, {}),)


def _decoder_steps(
    encoder: OrtCpuEngine,
    decoder: OrtCpuEngine,
    p: AsrParameters,
    states: Sequence[StateTensor],
    sound: Floats,
    limit: int,
) -> list[Feed]:
    """Inputs of every step of a greedy FP32 decode, the caches among them."""
    cross = {n: v.copy() for n, v in encoder.stream().run({"audio": sound[None]}).items()}
    past = {s.input: s.initial() for s in states}
    stream, token = decoder.stream(), p.begin_token
    feeds: list[Feed] = []
    while len(feeds) < limit and token != p.end_token:
        feed = {"ids": np.array([[token]], dtype=np.int64), "rows": np.zeros(1, dtype=np.int64), **past, **cross}
        feeds.append(feed)
        out = stream.run(feed)
        past = {s.input: out[s.output].copy() for s in states}
        token = int(out["logits"][0, -1].argmax())
    return feeds


def _voice(store: Store, material: Material) -> tuple[Group, ...]:
    del material  # a voice hears nothing
    pack, artefact = store.open(VOICE), open_artefact(store, VOICE)
    p = pack.pack.parameters_as(TtsParameters)
    paths = {name: artefact.path(name, "fp32") for name in ("frontend", "flow", "vocoder")}
    engines = {name: OrtCpuEngine(path) for name, path in paths.items()}

    def texts(sentences: Sequence[str]) -> list[Feed]:
        feeds: list[Feed] = []
        for sentence in sentences:
            ids = phoneme_ids(pack.path(p.config), sentence)
            lengths = np.array([ids.shape[1]], dtype=np.int64)
            feeds.append({"phonemes": ids, "lengths": lengths, "scales": np.array([0, 1, 0], dtype=np.float32)})
        return feeds

    def through(name: str, feeds: Sequence[Feed]) -> list[Feed]:
        stream = engines[name].stream()
        return [{n: v.copy() for n, v in stream.run(feed).items()} for feed in feeds]

    feeds = {"calibration": texts(CALIBRATION_SENTENCES), "probes": texts(PROBE_SENTENCES)}
    latent = {kind: through("frontend", f) for kind, f in feeds.items()}
    spectral = {kind: through("flow", f) for kind, f in latent.items()}
    other = {name: (path, ()) for name, path in paths.items()}

    def part(name: str, made: Mapping[str, Sequence[Feed]], signal: str) -> Part:
        probes = tuple(made["probes"])
        return Part(name, paths[name], (), tuple(made["calibration"]), probes, probes[:1], (signal,))

    rows = (("frontend", feeds, "latent"), ("flow", latent, "spectral"), ("vocoder", spectral, "audio"))
    # One group each: the front end stays on the CPU, flow and vocoder may be of different precisions.
    return tuple(
        Group(name, VOICE, (part(name, made, signal),), {n: o for n, o in other.items() if n != name}, hears=False)
        for name, made, signal in rows
    )


def _activity(store: Store, material: Material) -> tuple[Group, ...]:
    pack = store.open("silero-vad")
    p, states = pack.pack.parameters_as(VadParameters), pack.pack.state_tensors("vad")
    path = pack.path("silero_vad.onnx")
    engine = OrtCpuEngine(path)
    recording = read_wav(store.open("moonshine-base-en").path("beckett.wav"))
    heard = _clips(store, material, CALIBRATION_SENTENCES, recording[: recording.size // 2])
    probes = [*own_voice(store, VOICE, PROBE_SENTENCES, material.noises, seed=1), recording[recording.size // 2 :]]

    def windows(sound: Floats) -> list[Feed]:
        stream, state = engine.stream(), {s.input: s.initial() for s in states}
        feeds: list[Feed] = []
        padded = np.concatenate((np.zeros(p.context_samples, dtype=np.float32), sound))
        for at in range(0, min(padded.size - p.context_samples, _WINDOWS * p.window_samples), p.window_samples):
            window = padded[at : at + p.context_samples + p.window_samples]
            if window.size < p.context_samples + p.window_samples:
                break
            feeds.append({"input": window[None], **state})
            out = stream.run(feeds[-1])
            state = {s.input: out[s.output].copy() for s in states}
        return feeds

    seen = tuple(f for c in probes for f in windows(c))
    part = Part(
        "vad", path, states, tuple(f for c in heard for f in windows(c)[::2]), seen, seen[:50], ("output", "stateN")
    )
    return (Group("vad", "silero-vad", (part,), {}),)
