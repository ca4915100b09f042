"""The voice activity detector as shipped, driven as the catalogue says."""

from __future__ import annotations

import wave

import numpy as np
import pytest

from models import Store, VadParameters
from models.engines import Array
from models.engines.onnx_cpu import OrtCpuEngine

pytestmark = pytest.mark.models


def _probabilities(store: Store, sound: Array) -> list[float]:
    pack = store.open("silero-vad")
    p = pack.pack.parameters_as(VadParameters)
    stream = OrtCpuEngine(pack.path("silero_vad.onnx"), pack.pack.state_tensors("vad")).stream()
    padded = np.concatenate([np.zeros(p.context_samples, dtype=np.float32), sound])
    width = p.context_samples + p.window_samples
    starts = range(0, len(padded) - width + 1, p.window_samples)
    return [float(stream.run({"input": padded[None, s : s + width]})["output"][0, 0]) for s in starts]


def test_speech_is_told_from_silence_and_noise(real_store: Store) -> None:
    p = real_store.catalogue.get("silero-vad").parameters_as(VadParameters)
    with wave.open(str(real_store.open("moonshine-base-en").path("beckett.wav")), "rb") as clip:
        speech = np.frombuffer(clip.readframes(clip.getnframes()), dtype="<i2").astype(np.float32) / 32768
    noise = np.random.default_rng(0).standard_normal(32000, dtype=np.float32) * np.float32(0.01)
    heard = _probabilities(real_store, speech)
    assert sum(x >= p.speech_threshold for x in heard) > len(heard) / 3
    assert sum(x < p.silence_threshold for x in heard) > len(heard) / 5  # the speaker pauses
    assert max(_probabilities(real_store, noise)) < p.silence_threshold
