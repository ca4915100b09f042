"""The NumPy backend on every model that Wren ships: what onnxruntime gives, within rounding, and without it."""

from __future__ import annotations

import subprocess
import sys
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import Store
from models.convert import open_artefact
from models.engines.base import StateTensor
from models.engines.numpy import NumpyEngine
from models.engines.onnx_cpu import OrtCpuEngine

pytestmark = pytest.mark.models

Array = np.ndarray[Any, Any]
TOKENS = [1, 5, 900, 31000, 17]


def _speech(store: Store, seconds: float) -> Array:
    with wave.open(str(store.open("moonshine-base-en").path("beckett.wav")), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(int(seconds * 16_000)), dtype="<i2")
    return pcm.astype(np.float32)[None] / np.float32(32768)


def _both(path: Path, runs: list[Mapping[str, Array]], states: tuple[StateTensor, ...] = ()) -> list[list[Array]]:
    """Each run's outputs and, last, the state: of onnxruntime and of NumPy."""
    pairs = []
    ours, theirs = NumpyEngine(path, states).stream(), OrtCpuEngine(path, states).stream()
    for inputs in runs:
        a, b = theirs.run(inputs), ours.run(inputs)
        assert a.keys() == b.keys()
        pairs += [[a[name], b[name]] for name in a]
    a, b = theirs.snapshot(), ours.snapshot()
    return pairs + [[a[name], b[name]] for name in a]


def _largest_difference(pairs: list[list[Array]]) -> float:
    for a, b in pairs:
        assert a.shape == b.shape
        assert a.dtype == b.dtype
    return max(float(np.abs(a - b).max()) for a, b in pairs)


def test_the_encoder(real_store: Store) -> None:
    path = open_artefact(real_store, "moonshine-base-en").path("encoder", "fp32")
    assert _largest_difference(_both(path, [{"audio": _speech(real_store, 2)}])) < 1e-3


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("int8", 1e-3)])
def test_the_decoder_step_by_step(real_store: Store, precision: str, tolerance: float) -> None:
    artefact, pack = open_artefact(real_store, "moonshine-base-en"), real_store.open("moonshine-base-en")
    cross = OrtCpuEngine(artefact.path("encoder", "fp32")).stream().run({"audio": _speech(real_store, 2)})
    steps = [{"ids": np.array([[t]]), "rows": np.zeros(1, np.int64), **cross} for t in TOKENS]
    states = pack.pack.state_tensors("decoder")
    assert _largest_difference(_both(artefact.path("decoder", precision), steps, states)) < tolerance


def test_the_int8_encoder_is_as_near_to_fp32_as_onnxruntimes(real_store: Store) -> None:
    """Rounding differs in the last place, and every layer finds its own scale: compared with FP32, not bit by bit."""
    artefact, audio = open_artefact(real_store, "moonshine-base-en"), {"audio": _speech(real_store, 2)}
    exact = OrtCpuEngine(artefact.path("encoder", "fp32")).stream().run(audio)

    def noise(engine: OrtCpuEngine | NumpyEngine) -> float:
        made = engine.stream().run(audio)
        return sum(float(np.square(made[n] - exact[n]).sum()) for n in exact)

    path = artefact.path("encoder", "int8")
    assert noise(NumpyEngine(path)) < 1.3 * noise(OrtCpuEngine(path))


def test_the_voice(real_store: Store) -> None:
    artefact = open_artefact(real_store, "piper-en-us-joe")
    ids = np.array([[1, 0, 20, 0, 61, 0, 24, 0, 120, 0, 27, 0, 100, 0, 2]])
    text = {"phonemes": ids, "lengths": np.array([ids.size]), "scales": np.array([0, 1, 0], np.float32)}
    frontend = artefact.path("frontend", "fp32")
    assert _largest_difference(_both(frontend, [text])) < 1e-3
    latent = OrtCpuEngine(frontend).stream().run(text)
    flow = artefact.path("flow", "fp32")
    assert _largest_difference(_both(flow, [latent])) < 1e-3
    spectral = OrtCpuEngine(flow).stream().run(latent)
    assert _largest_difference(_both(artefact.path("vocoder", "fp32"), [spectral])) < 1e-4


def test_the_voice_may_vary_when_it_is_asked_to(real_store: Store) -> None:
    frontend = NumpyEngine(open_artefact(real_store, "piper-en-us-joe").path("frontend", "fp32")).stream()
    ids = np.array([[1, 0, 20, 0, 61, 0, 24, 0, 2]])

    def latent() -> Array:
        scales = np.array([0.667, 1, 0], np.float32)
        return frontend.run({"phonemes": ids, "lengths": np.array([ids.size]), "scales": scales})["latent"]

    first, second = latent(), latent()
    assert first.shape == second.shape
    assert np.abs(first - second).max() > 0.1


def test_voice_activity(real_store: Store) -> None:
    pack = real_store.open("silero-vad")
    sound = _speech(real_store, 1)
    windows = [{"input": sound[:, at : at + 576]} for at in range(0, sound.shape[1] - 576, 512)]
    pairs = _both(pack.path("silero_vad.onnx"), windows, pack.pack.state_tensors("vad"))
    assert _largest_difference(pairs) < 1e-4


def test_products_take_as_many_threads_as_they_are_told() -> None:
    code = (
        "import threading, time, numpy as np; from models.engines.numpy.blas import set_blas_threads\n"
        "assert set_blas_threads(1)\n"
        "a = np.ones((700, 700), np.float32); a @ a; wall, cpu = time.perf_counter(), time.process_time()\n"
        "for _ in range(20): a @ a\n"
        "assert time.process_time() - cpu <= 1.2 * (time.perf_counter() - wall)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_needs_no_onnxruntime(real_store: Store) -> None:
    """A process in which importing onnxruntime fails, as on a machine where its library does not load."""
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from pathlib import Path; import numpy as np\n"
        "from models.engines.numpy import NumpyEngine\n"
        "made = NumpyEngine(Path(sys.argv[1])).stream().run({'spectral': np.zeros((1, 192, 30), np.float32)})\n"
        "assert made['audio'].shape == (1, 1, 1, 30 * 256) and np.isfinite(made['audio']).all()\n"
    )
    path = open_artefact(real_store, "piper-en-us-joe").path("vocoder", "fp32")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
