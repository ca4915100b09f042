"""The converted recognisers: like the original in FP32, the same words in INT8, in any batch and any stride."""

from __future__ import annotations

import itertools
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import Store
from models.convert import Artefact, prepare
from models.engines import Array, Stream
from models.engines.onnx_cpu import OrtCpuEngine

pytestmark = pytest.mark.models

BEGIN, END = 1, 2
HEAD_DIM = {"moonshine-base-en": 52, "moonshine-tiny-en": 36}
HERE = "ever tried ever failed no matter try again fail again fail better"
"""What is said in beckett.wav, of which the model hears the end of each pair differently in case and commas."""


@dataclass
class Recogniser:
    encoder: OrtCpuEngine
    decoder: OrtCpuEngine

    def cross(self, audio: Array) -> dict[str, Array]:
        return dict(self.encoder.stream().run({"audio": audio}))

    def greedy(self, audio: Array) -> list[int]:
        cross, stream, ids = self.cross(audio), self.decoder.stream(), [BEGIN]
        while ids[-1] != END and len(ids) < 60:
            logits = stream.run({"ids": np.array([ids[-1:]]), "rows": np.array([0]), **cross})["logits"]
            ids.append(int(logits[0, -1].argmax()))
        return ids[1:]


@pytest.fixture(scope="module", params=["moonshine-base-en", "moonshine-tiny-en"])
def artefact(request: pytest.FixtureRequest, real_store: Store) -> Artefact:
    real_store.ensure(request.param)
    return prepare(real_store, request.param)


def _recogniser(store: Store, artefact: Artefact, precision: str) -> Recogniser:
    states = store.catalogue.get(artefact.manifest.pack).state_tensors("decoder")
    return Recogniser(
        OrtCpuEngine(artefact.path("encoder", precision)),
        OrtCpuEngine(artefact.path("decoder", precision), states),
    )


@pytest.fixture(scope="module")
def fp32(real_store: Store, artefact: Artefact) -> Recogniser:
    return _recogniser(real_store, artefact, "fp32")


@pytest.fixture(scope="module")
def int8(real_store: Store, artefact: Artefact) -> Recogniser:
    return _recogniser(real_store, artefact, "int8")


@pytest.fixture(scope="module")
def beckett(real_store: Store) -> Array:
    with wave.open(str(real_store.open("moonshine-base-en").path("beckett.wav")), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2")
    return (pcm.astype(np.float32) / 32768)[None]


@pytest.fixture(scope="module")
def tokens(fp32: Recogniser, beckett: Array) -> list[int]:
    return fp32.greedy(beckett)


def _pieces(path: Path) -> list[bytes]:
    """Pieces of tokenizer.bin: a length of one byte, or of two from 128 on, and the piece."""
    data, at, pieces = path.read_bytes(), 0, []
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128:
            length, at = data[at] * 128 + length - 128, at + 1
        pieces.append(data[at : at + length])
        at += length
    return pieces


def test_the_record_says_how_near_it_is_to_the_original(artefact: Artefact) -> None:
    checks = artefact.manifest.checks
    assert float(checks["fp32_max_logit_difference"]) <= 1e-3
    assert float(checks["int8_logit_snr_db"]) >= 20


def test_the_words_are_those_that_are_said(real_store: Store, artefact: Artefact, tokens: list[int]) -> None:
    pieces = _pieces(real_store.open(artefact.manifest.pack).path("tokenizer.bin"))
    assert all(piece.startswith(b"<<ST_") for piece in pieces[32000:])  # spare ids; base has no names for them
    text = b"".join(pieces[t] for t in tokens if t != END).decode().replace("▁", " ").lower()
    heard = "".join(c for c in text if c.isalpha() or c == " ").split()
    assert " ".join(heard) in HERE
    assert len(heard) >= 9


def test_int8_says_the_same_words(int8: Recogniser, beckett: Array, tokens: list[int]) -> None:
    assert int8.greedy(beckett) == tokens


def _logits(stream: Stream, cross: dict[str, Array], ids: list[int], cuts: list[int]) -> Array:
    """Logits after every id, given in runs that end at the cuts."""
    edges = sorted({0, len(ids), *(c for c in cuts if c < len(ids))})
    rows = np.array([0])
    return np.concatenate(
        [
            stream.run({"ids": np.array([ids[a:b]]), "rows": rows, **cross})["logits"][0]
            for a, b in itertools.pairwise(edges)
        ]
    )


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 15), max_size=4))
def test_several_tokens_at_once_are_as_good_as_one_by_one(
    fp32: Recogniser, beckett: Array, tokens: list[int], cuts: list[int]
) -> None:
    cross, ids = fp32.cross(beckett[:, :48000]), [BEGIN, *tokens[:-1]]
    reference = _logits(fp32.decoder.stream(), cross, ids, list(range(20)))
    np.testing.assert_allclose(_logits(fp32.decoder.stream(), cross, ids, cuts), reference, atol=1e-3)


def test_beams_fork_and_die_inside_the_stream(fp32: Recogniser, beckett: Array, tokens: list[int]) -> None:
    cross = fp32.cross(beckett[:, :48000])
    stream = fp32.decoder.stream()
    one = np.array([0])
    stream.run({"ids": np.array([[BEGIN, *tokens[:3]]]), "rows": one, **cross})
    # Three beams out of one, then the last and the first of them go on, the last twice.
    stream.run({"ids": np.array([[10], [20], [30]]), "rows": np.array([0, 0, 0]), **cross})
    beams = stream.run({"ids": np.array([[11], [31], [32]]), "rows": np.array([0, 2, 2]), **cross})["logits"]
    for row, tail in enumerate(([10, 11], [30, 31], [30, 32])):
        alone = fp32.decoder.stream().run({"ids": np.array([[BEGIN, *tokens[:3], *tail]]), "rows": one, **cross})
        np.testing.assert_allclose(beams[row, -1], alone["logits"][0, -1], atol=1e-3)


def test_a_snapshot_goes_back_to_an_earlier_token(
    int8: Recogniser, artefact: Artefact, beckett: Array, tokens: list[int]
) -> None:
    cross, stream, row = int8.cross(beckett), int8.decoder.stream(), np.array([0])
    stream.run({"ids": np.array([[BEGIN]]), "rows": row, **cross})
    kept = stream.snapshot()
    assert kept["past_k.0"].shape == (1, 8, 1, HEAD_DIM[artefact.manifest.pack])
    first = stream.run({"ids": np.array([tokens[:1]]), "rows": row, **cross})["logits"].copy()
    stream.run({"ids": np.array([[5]]), "rows": row, **cross})
    stream.restore(kept)
    again = stream.run({"ids": np.array([tokens[:1]]), "rows": row, **cross})["logits"]
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(("samples", "frames"), [(895, 1), (1278, 1), (1279, 2), (16000, 40)])
def test_the_shortest_sound_and_the_frames_of_longer_ones(
    int8: Recogniser, artefact: Artefact, samples: int, frames: int
) -> None:
    noise = np.random.default_rng(0).standard_normal((1, samples), dtype=np.float32) * np.float32(0.01)
    assert int8.cross(noise)["cross_k.0"].shape == (1, 8, frames, HEAD_DIM[artefact.manifest.pack])
