"""Sound to calibrate with: the voice's own speech, slow and fast, in noise, beside whatever recordings are given."""

from __future__ import annotations

import json
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from models.catalogue import TtsParameters
from models.convert import open_artefact
from models.engines.onnx_cpu import OrtCpuEngine
from models.store import Store

__all__ = ["CALIBRATION_SENTENCES", "PROBE_SENTENCES", "Material", "own_voice", "phoneme_ids", "read_wav"]

Floats = npt.NDArray[np.float32]

CALIBRATION_SENTENCES: tuple[str, ...] = (
    "tˈɜːn ˈɔn ðə kˈɪtʃən lˈaɪts.",
    "sˈɛt ɐ tˈaɪmɚ fɔːɹ fˈaɪv mˈɪnɪts.",
    "wˌʌt ɪz ðə tˈɛmpɹɪtʃɚ ɪn ðə bˈædɹuːm?",
    "ðə wˈɪndoʊ ænd ðə dˈoːɹ ɑːɹ ˈoʊpən, ænd ɪt ɪz twˈɛnti wˈʌn dᵻɡɹˈiːz.",
    "klˈoʊz ðə ɡɚɹˈɑːʒ dˈoːɹ.",
)
"""Phonemes as espeak-ng writes them for en-us: what homes hear."""
PROBE_SENTENCES: tuple[str, ...] = (
    "ˈɔl ðə lˈaɪts ɪn ðə lˈɪvɪŋ ɹˈuːm ɑːɹ ˈɔf nˈaʊ.",
    "ˈaɪ dɪdnt ˌʌndɚstˈænd ðˈæt.",
)
"""Never calibrated with: signal to noise is taken on these."""

_RATE_HZ = 16_000
_LENGTHS = (1.0, 0.8, 1.25)
"""Speaking rates: each sentence gets the next one."""
_NOISE_DB = (None, 20.0, 10.0)
"""Signal to noise of the mixes; None is clean."""


@dataclass(frozen=True, slots=True)
class Material:
    """What calibration may hear; the evaluation's hold-out must not be among it."""

    clips: tuple[Floats, ...] = ()
    """Recordings, [n] float32 at 16 kHz."""
    noises: tuple[Floats, ...] = ()
    """Recorded noise to mix in, likewise; without any, noise is drawn."""
    description: str = field(default="own voice and the pack's recording")
    """Where they come from, for the report."""


def phoneme_ids(config: Path, sentence: str) -> npt.NDArray[np.int64]:
    """Ids [1, n]: begin, every phoneme followed by a pad, end, as Piper trains. Unknown phonemes are left out."""
    ids = json.loads(config.read_text(encoding="utf-8"))["phoneme_id_map"]
    middle = [i for phoneme in sentence if phoneme in ids for i in (*ids[phoneme], *ids["_"])]
    return np.array([[*ids["^"], *ids["_"], *middle, *ids["$"]]], dtype=np.int64)


def read_wav(path: Path) -> Floats:
    """A 16-bit mono WAV, [n]."""
    with wave.open(str(path), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2").astype(np.float32)
    return pcm / np.float32(32768)


def own_voice(
    store: Store, pack_id: str, sentences: Sequence[str], noises: Sequence[Floats], seed: int = 0
) -> Iterator[Floats]:
    """Each sentence spoken by the voice at one of several rates, clean or in noise, [n] at 16 kHz."""
    pack, artefact = store.open(pack_id), open_artefact(store, pack_id)
    p = pack.pack.parameters_as(TtsParameters)
    frontend = OrtCpuEngine(artefact.path("frontend", "fp32")).stream()
    decoder = OrtCpuEngine(artefact.path("decoder", "fp32")).stream()
    draw = np.random.default_rng(seed)
    for number, sentence in enumerate(sentences):
        ids = phoneme_ids(pack.path(p.config), sentence)
        text = frontend.run(
            {
                "phonemes": ids,
                "lengths": np.array([ids.shape[1]], dtype=np.int64),
                "scales": np.array([0, _LENGTHS[number % len(_LENGTHS)], 0], dtype=np.float32),
            }
        )
        sound = decoder.run({"latent": text["latent"], "mask": text["mask"]})["audio"].ravel()
        speech = np.asarray(soxr.resample(sound, p.rate_hz, _RATE_HZ), dtype=np.float32)
        yield _mixed(speech, _NOISE_DB[number % len(_NOISE_DB)], noises, draw)


def _mixed(speech: Floats, snr_db: float | None, noises: Sequence[Floats], draw: np.random.Generator) -> Floats:
    if snr_db is None:
        return speech
    if noises:
        noise = np.resize(noises[int(draw.integers(len(noises)))], speech.size)
    else:
        noise = draw.standard_normal(speech.size, dtype=np.float32)
    gain = np.sqrt(np.mean(speech**2) / max(float(np.mean(noise**2)), 1e-12) / 10 ** (snr_db / 10))
    return np.asarray(np.clip(speech + gain * noise, -1, 1), dtype=np.float32)
