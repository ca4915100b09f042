from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.frame import RATE_HZ, Samples
from appliance.voice.asr.transducer.features import FeatureKind, frames_of, samples_for

KINDS: tuple[FeatureKind, ...] = ("kaldi", "nemo")


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_the_same_wherever_reading_begins(kind: FeatureKind, sound: Samples) -> None:
    whole = frames_of(sound, 0, kind, 80)
    for first in (0, 1, 7, 100, len(whole) - 1):
        np.testing.assert_allclose(frames_of(sound, first, kind, 80), whole[first:], atol=2e-5)
    assert frames_of(sound, len(whole), kind, 80).shape == (0, 80)


@settings(deadline=None)
@given(frames=st.integers(0, 300))
def test_so_many_samples_give_so_many_frames(frames: int) -> None:
    enough = samples_for(frames)
    sound = np.full(enough, 0.1, dtype=np.float32)
    assert len(frames_of(sound, 0, "kaldi", 80)) == frames
    if frames:
        assert len(frames_of(sound[:-1], 0, "kaldi", 80)) == frames - 1


@pytest.mark.parametrize(("kind", "hz", "loudest"), [("kaldi", 440.0, 15), ("kaldi", 3000.0, 54), ("nemo", 440.0, 11)])
def test_a_tone_is_loudest_in_its_bin(kind: FeatureKind, hz: float, loudest: int) -> None:
    """Bins by hand from the scales: Kaldi's 1127 ln(1 + f/700) from 20 to 7600 Hz, Slaney's from 0 to 8 kHz."""
    tone = (0.3 * np.sin(2 * np.pi * hz * np.arange(RATE_HZ) / RATE_HZ)).astype(np.float32)
    middle = frames_of(tone, 0, kind, 80)[20:80]
    assert abs(int(np.median(middle.argmax(axis=1))) - loudest) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_silence_is_the_floor_and_no_infinity(kind: FeatureKind) -> None:
    silence = frames_of(np.zeros(RATE_HZ, dtype=np.float32), 0, kind, 80)
    np.testing.assert_allclose(silence, np.log(np.finfo(np.float32).eps), rtol=1e-6)
