"""The voice in parts: the same sound as whole, however it is cut into chunks."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import Store
from models.convert import Artefact, prepare
from models.engines import Array
from models.engines.onnx_cpu import OrtCpuEngine

pytestmark = pytest.mark.models

HOP = 256
TOLERANCE = 1e-4
SENTENCES = ("tˈɜːnd ˈɔn ðə lˈaɪts.", "ɪt ɪz twˈɛnti wˈʌn dᵻɡɹˈiːz ɪn ðə lˈɪvɪŋ ɹˈuːm.")


@dataclass
class Spoken:
    """One sentence, decoded whole by the voice as shipped."""

    latent: Array
    mask: Array
    audio: Array


@pytest.fixture(scope="module")
def artefact(real_store: Store) -> Artefact:
    return prepare(real_store, "piper-en-us-joe")


@pytest.fixture(scope="module")
def parts(artefact: Artefact) -> dict[str, OrtCpuEngine]:
    return {p: OrtCpuEngine(artefact.path(p, "fp32")) for p in ("frontend", "decoder", "flow", "vocoder")}


@pytest.fixture(scope="module")
def spoken(real_store: Store, parts: dict[str, OrtCpuEngine]) -> list[Spoken]:
    pack = real_store.open("piper-en-us-joe")
    ids = json.loads(pack.path("en_US-joe-medium.onnx.json").read_text())["phoneme_id_map"]
    whole = OrtCpuEngine(pack.path("en_US-joe-medium.onnx")).stream()
    made = []
    for sentence in SENTENCES:
        phonemes = np.array([[1, 0, *(i for p in sentence for i in (ids[p][0], 0)), 2]])
        lengths, scales = np.array([phonemes.shape[1]]), np.array([0, 1, 0], dtype=np.float32)
        text = parts["frontend"].stream().run({"phonemes": phonemes, "lengths": lengths, "scales": scales})
        audio = whole.run({"input": phonemes, "input_lengths": lengths, "scales": scales})["output"].ravel()
        made.append(Spoken(text["latent"], text["mask"], audio))
    return made


def test_the_parts_in_a_row_are_the_whole(parts: dict[str, OrtCpuEngine], spoken: list[Spoken]) -> None:
    for s in spoken:
        audio = parts["decoder"].stream().run({"latent": s.latent, "mask": s.mask})["audio"].ravel()
        np.testing.assert_allclose(audio, s.audio, atol=TOLERANCE)


chunk_schedules = st.lists(st.integers(1, 90), min_size=1, max_size=6)


def _chunks(total: int, schedule: list[int]) -> list[tuple[int, int]]:
    """Tiles of 0 … total; the schedule's last length is repeated."""
    edges = [0]
    while edges[-1] < total:
        edges.append(min(total, edges[-1] + schedule[min(len(edges) - 1, len(schedule) - 1)]))
    return list(itertools.pairwise(edges))


@settings(max_examples=5, deadline=None)
@given(schedule=chunk_schedules.filter(lambda s: s[-1] >= 20), which=st.integers(0, 1))
def test_any_chunks_with_full_margins_sound_like_the_whole(
    artefact: Artefact, parts: dict[str, OrtCpuEngine], spoken: list[Spoken], schedule: list[int], which: int
) -> None:
    s, p, decoder = spoken[which], artefact.manifest.parameters, parts["decoder"].stream()
    left, right, total = int(p["margin_left_frames"]), int(p["margin_right_frames"]), s.latent.shape[2]
    pieces = []
    for start, end in _chunks(total, schedule):
        a, b = max(0, start - left), min(total, end + right)
        audio = decoder.run({"latent": s.latent[:, :, a:b], "mask": s.mask[:, :, a:b]})["audio"].ravel()
        pieces.append(audio[(start - a) * HOP : (end - a) * HOP])
    np.testing.assert_allclose(np.concatenate(pieces), s.audio, atol=TOLERANCE)


@settings(max_examples=5, deadline=None)
@given(schedule=chunk_schedules.filter(lambda s: s[-1] >= 20), which=st.integers(0, 1))
def test_any_chunks_through_the_halves_sound_like_the_whole(
    artefact: Artefact, parts: dict[str, OrtCpuEngine], spoken: list[Spoken], schedule: list[int], which: int
) -> None:
    s, p = spoken[which], artefact.manifest.parameters
    flow, vocoder, total = parts["flow"].stream(), parts["vocoder"].stream(), s.latent.shape[2]
    around, near = int(p["flow_margin_frames"]), int(p["vocoder_margin_frames"])
    pieces = []
    for start, end in _chunks(total, schedule):
        c, d = max(0, start - near), min(total, end + near)
        a, b = max(0, c - around), min(total, d + around)
        spectral = flow.run({"latent": s.latent[:, :, a:b], "mask": s.mask[:, :, a:b]})["spectral"]
        audio = vocoder.run({"spectral": spectral[:, :, c - a : d - a]})["audio"].ravel()
        pieces.append(audio[(start - c) * HOP : (end - c) * HOP])
    np.testing.assert_allclose(np.concatenate(pieces), s.audio, atol=TOLERANCE)


def test_trimmed_margins_are_within_a_thousandth(
    artefact: Artefact, parts: dict[str, OrtCpuEngine], spoken: list[Spoken]
) -> None:
    s, p, decoder = spoken[0], artefact.manifest.parameters, parts["decoder"].stream()
    left, right = int(p["trimmed_margin_left_frames"]), int(p["trimmed_margin_right_frames"])
    start, end = 40, 60
    a, b = start - left, end + right
    audio = decoder.run({"latent": s.latent[:, :, a:b], "mask": s.mask[:, :, a:b]})["audio"].ravel()
    np.testing.assert_allclose(
        audio[left * HOP : (left + end - start) * HOP], s.audio[start * HOP : end * HOP], atol=3e-3
    )


def test_the_margins_are_those_measured(artefact: Artefact) -> None:
    p = artefact.manifest.parameters
    assert p["exact_margin_frames"] == int(p["flow_margin_frames"]) + int(p["vocoder_margin_frames"]) == 43


def test_noise_makes_it_speak_a_little_differently_each_time(parts: dict[str, OrtCpuEngine]) -> None:
    feed = {"phonemes": np.array([[1, 0, 32, 0, 61, 0, 2]]), "lengths": np.array([7])}
    scales = np.array([0.667, 1, 0.8], dtype=np.float32)
    stream = parts["frontend"].stream()
    a, b = (stream.run({**feed, "scales": scales})["latent"] for _ in range(2))
    assert a.shape != b.shape or not np.array_equal(a, b)
