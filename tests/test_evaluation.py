"""The judges of model variants: words, and whether a fault in a graph is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile

from appliance.errors import UsageError
from appliance.evaluation import Holdout, evaluations, load_material, word_errors
from models import Store
from models.convert import open_artefact
from models.engines.base import Array, Engine
from models.engines.onnx_cpu import OrtCpuEngine


@pytest.mark.parametrize(
    ("said", "heard", "wrong", "words"),
    [
        ("turn on the light", "Turn on the light.", 0, 4),
        ("turn on the light", "turn the lights", 2, 4),
        ("turn on the light", "", 4, 4),
        ("set it to twenty one", "set it to 21", 0, 4),
        ("stop", "stop it now", 2, 1),
    ],
)
def test_wrong_words_are_counted(said: str, heard: str, wrong: int, words: int) -> None:
    assert word_errors(said, heard) == (wrong, words)


def _folder(root: Path) -> Path:
    """Recordings: one with a transcript in each folder, three without, one of noise."""
    draw = np.random.default_rng(0)
    rows = {
        "commands": [("a.flac", "turn on the light")],
        "negatives": [("b.flac", "it rained"), ("c.flac", ""), ("d.flac", ""), ("e.flac", "")],
        "noise": [("n.flac", "")],
    }
    for folder, files in rows.items():
        (root / folder).mkdir()
        for name, _ in files:
            soundfile.write(root / folder / name, draw.standard_normal(1600) * 0.1, 16_000)
        lines = ["file\ttranscript", *(f"{n}\t{t}" for n, t in files)]
        (root / folder / "manifest.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def test_calibration_never_hears_the_hold_out(tmp_path: Path) -> None:
    speech = _folder(tmp_path)
    material = load_material(speech)
    held = {clip.sound.tobytes() for clip in Holdout.load(Store(tmp_path / "store"), speech).clips}
    assert len(held) == 2
    assert len(material.clips) == 3
    assert not held & {clip.tobytes() for clip in material.clips}


def test_a_folder_without_a_list_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"manifest\.tsv"):
        load_material(tmp_path)


@pytest.fixture
def real_store() -> Store:
    return Store()


class FakeVad:
    """An engine that takes everything loud enough for speech."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def stream(self) -> FakeVad:
        return self

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        loud = float(np.abs(inputs["input"]).max()) > self._threshold
        return {"output": np.array([[1.0 if loud else 0.0]], dtype=np.float32)}

    def close(self) -> None:
        pass


@pytest.mark.models
def test_detectors_that_differ_agree_less(real_store: Store) -> None:
    judge = evaluations(real_store, None)["vad"]
    same: dict[str, Engine] = {"vad": FakeVad(0.01)}  # type: ignore[dict-item]
    other: dict[str, Engine] = {"vad": FakeVad(0.3)}  # type: ignore[dict-item]
    assert judge(same).value == 1.0
    score = judge(other)
    assert score.value < 0.95
    assert not score.lower_is_better


@pytest.mark.models
def test_a_recogniser_is_judged_by_the_words_it_hears(real_store: Store) -> None:
    judge = evaluations(real_store, None)["asr"]
    artefact = open_artefact(real_store, "moonshine-base-en")
    states = real_store.catalogue.get("moonshine-base-en").state_tensors("decoder")
    engines: dict[str, Engine] = {
        "encoder": OrtCpuEngine(artefact.path("encoder", "int8")),
        "decoder": OrtCpuEngine(artefact.path("decoder", "int8"), states),
    }
    score = judge(engines)
    assert (score.value, score.items, score.lower_is_better) == (0.0, 8, True)
