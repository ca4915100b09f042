"""What each graph is given when engines are measured: a command heard, a reply spoken, voice activity."""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from models import AsrParameters, Store, TtsParameters, VadParameters
from models.engines.base import Array, Stream

__all__ = ["MODELS", "Feeds", "feeds_for", "load_arrays", "save_arrays", "sound_s"]

Feeds = Mapping[str, list[dict[str, Array]]]
"""Part -> inputs of run after run."""

MODELS: Final = {
    "asr": ("moonshine-base-en", ("encoder", "decoder")),
    "tts": ("piper-en-us-joe", ("frontend", "flow", "vocoder")),
    "vad": ("silero-vad", ("vad",)),
}
"""Task -> its pack and graphs."""
COMMAND_S: Final = 3.0
STEPS: Final = 9
"""Eight tokens and the end: a longer command. The clip may end sooner."""
WINDOWS: Final = 30
PHONEMES: Final = "tˈɜːnd ˈɔn ðə lˈaɪts."
"""“Turned on the lights.”"""


def feeds_for(store: Store, task: str, streams: Mapping[str, Stream], pack: str | None = None) -> Feeds:
    """Inputs of a usual job. What one graph makes for the next is made by `streams`, which are the reference.

    `pack`: the one that the streams are of; None: that of `MODELS`.
    """
    return {"asr": _command, "tts": _reply, "vad": _activity}[task](store, streams, pack or MODELS[task][0])


def sound_s(store: Store, task: str, feeds: Feeds) -> float:
    """Seconds of sound that the job is about."""
    pack = store.catalogue.get(MODELS[task][0])
    if task == "tts":
        voice = pack.parameters_as(TtsParameters)
        return float(feeds["vocoder"][0]["spectral"].shape[2] * voice.hop_samples / voice.rate_hz)
    if task == "vad":
        vad = pack.parameters_as(VadParameters)
        return WINDOWS * vad.window_samples / vad.rate_hz
    return COMMAND_S


def _command(store: Store, streams: Mapping[str, Stream], pack_id: str) -> Feeds:
    p = store.open(pack_id).pack.parameters_as(AsrParameters)
    audio = _recording(store, pack_id)[None, : int(COMMAND_S * p.rate_hz)]
    cross = {name: np.array(value) for name, value in streams["encoder"].run({"audio": audio}).items()}
    streams["decoder"].reset()
    token, steps = p.begin_token, []
    for _ in range(STEPS):
        steps.append({"ids": np.array([[token]], dtype=np.int64), "rows": np.zeros(1, dtype=np.int64), **cross})
        token = int(streams["decoder"].run(steps[-1])["logits"][0, -1].argmax())
        if token == p.end_token:
            break  # beyond it a graph says what it was never taught, and fewer bits say something else
    return {"encoder": [{"audio": audio}], "decoder": steps}


def _reply(store: Store, streams: Mapping[str, Stream], pack_id: str) -> Feeds:
    pack = store.open(pack_id)
    config = pack.path(pack.pack.parameters_as(TtsParameters).config)
    ids = json.loads(config.read_text(encoding="utf-8"))["phoneme_id_map"]
    tokens = [1, 0, *(number for phoneme in PHONEMES for number in (*ids[phoneme], 0)), 2]
    text: dict[str, Array] = {
        "phonemes": np.array([tokens], dtype=np.int64),
        "lengths": np.array([len(tokens)], dtype=np.int64),
        "scales": np.array([0, 1, 0], dtype=np.float32),
    }
    latent = {name: np.array(value) for name, value in streams["frontend"].run(text).items()}
    spectral = {name: np.array(value) for name, value in streams["flow"].run(latent).items()}
    return {"frontend": [text], "flow": [latent], "vocoder": [spectral]}


def _activity(store: Store, streams: Mapping[str, Stream], pack_id: str) -> Feeds:
    del streams  # nothing is made on the way
    p = store.open(pack_id).pack.parameters_as(VadParameters)
    sound = np.concatenate((np.zeros(p.context_samples, dtype=np.float32), _recording(store, MODELS["asr"][0])))
    starts = range(0, WINDOWS * p.window_samples, p.window_samples)
    return {"vad": [{"input": sound[None, at : at + p.context_samples + p.window_samples]} for at in starts]}


def _recording(store: Store, recogniser: str) -> Array:
    """A recogniser's own clip of read speech, 16 kHz."""
    with wave.open(str(store.open(recogniser).path("beckett.wav")), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2")
    return pcm.astype(np.float32) / np.float32(32768)


def save_arrays(path: Path, rows: Mapping[str, list[dict[str, Array]]]) -> None:
    """Part -> run after run, in one file; the same array is written once."""
    flat: dict[str, Any] = {}
    names: dict[str, list[dict[str, str]]] = {}
    known: dict[int, str] = {}
    for part, runs in rows.items():
        names[part] = []
        for run in runs:
            for value in run.values():
                if id(value) not in known:
                    known[id(value)] = f"a{len(known)}"
                    flat[known[id(value)]] = value
            names[part].append({name: known[id(value)] for name, value in run.items()})
    np.savez(path, names=np.array(json.dumps(names)), **flat)


def load_arrays(path: Path) -> dict[str, list[dict[str, Array]]]:
    """What `save_arrays` wrote."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "names"}
        names = json.loads(str(file["names"]))
    return {part: [{n: arrays[key] for n, key in run.items()} for run in runs] for part, runs in names.items()}
