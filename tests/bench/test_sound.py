from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.bench.errors import MaterialError
from appliance.bench.sound import insert_pause, mix_noise, quietest_s

RATE_HZ = 16_000
SPEECH = (0.5, 1.5)


def _talk(gap: tuple[float, float] = (0.9, 0.96), room: float = 0.001) -> np.ndarray:
    """Two seconds: a room, a loud part from 0.5 to 1.5 s, a gap in it."""
    sound = np.random.default_rng(1).standard_normal(2 * RATE_HZ).astype(np.float32) * np.float32(room)
    loud = np.random.default_rng(2).standard_normal(RATE_HZ).astype(np.float32) * np.float32(0.1)
    sound[RATE_HZ // 2 : RATE_HZ * 3 // 2] += loud
    first, last = (round(time_s * RATE_HZ) for time_s in gap)
    sound[first:last] = 0.002 * sound[first:last]
    return sound


def _rms(sound: np.ndarray) -> float:
    return float(np.sqrt(np.mean(sound.astype(np.float64) ** 2)))


def test_a_pause_comes_where_the_speaker_is_quiet() -> None:
    assert 0.9 <= quietest_s(_talk(), SPEECH) <= 0.96
    assert 1.2 <= quietest_s(_talk((1.2, 1.25)), SPEECH) <= 1.25


@given(pause_s=st.floats(0.01, 1.2))
@settings(deadline=None, max_examples=25)
def test_a_pause_lengthens_the_sound_and_leaves_the_rest_as_it_was(pause_s: float) -> None:
    talk = _talk()
    sound, at_s = insert_pause(talk, SPEECH, pause_s)
    at, size, fade = round(at_s * RATE_HZ), round(pause_s * RATE_HZ), RATE_HZ // 200
    assert sound.dtype == np.float32
    assert sound.size == talk.size + size
    assert np.array_equal(sound[:at], talk[:at])
    assert np.array_equal(sound[at + size + fade :], talk[at + fade :])


def test_a_pause_sounds_like_the_room() -> None:
    sound, at_s = insert_pause(_talk(), SPEECH, 0.4)
    inside = sound[round((at_s + 0.01) * RATE_HZ) : round((at_s + 0.39) * RATE_HZ)]
    assert 0.0005 < _rms(inside) < 0.002


@given(snr_db=st.floats(-5.0, 30.0))
@settings(deadline=None, max_examples=25)
def test_noise_is_as_far_below_the_speech_as_asked(snr_db: float) -> None:
    talk = _talk(room=0.0) * np.float32(0.1)
    noise = np.random.default_rng(4).standard_normal(RATE_HZ).astype(np.float32) * np.float32(0.3)
    mixed = mix_noise(talk, noise, snr_db, SPEECH, 1.0, "clip")
    assert mixed.size == talk.size + RATE_HZ
    added = mixed - np.concatenate((talk, np.zeros(RATE_HZ, np.float32)))
    speech = talk[RATE_HZ // 2 : RATE_HZ * 3 // 2]
    assert 20 * np.log10(_rms(speech) / _rms(added)) == pytest.approx(snr_db, abs=0.1)


def test_noise_is_the_same_every_time_and_another_for_another_clip() -> None:
    noise = np.random.default_rng(4).standard_normal(RATE_HZ).astype(np.float32)
    one, again, other = (mix_noise(_talk(), noise, 10.0, SPEECH, 1.0, seed) for seed in ("a", "a", "b"))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_mix_stays_within_full_scale() -> None:
    noise = np.random.default_rng(4).standard_normal(RATE_HZ).astype(np.float32)
    assert np.abs(mix_noise(_talk() * 5, noise, -20.0, SPEECH, 0.5)).max() <= 1.0


def test_silence_has_no_noise_level() -> None:
    silent = np.zeros(RATE_HZ, np.float32)
    with pytest.raises(MaterialError, match="digital silence"):
        mix_noise(_talk(), silent, 10.0, SPEECH, 1.0, "x")
    with pytest.raises(MaterialError, match="digital silence"):
        mix_noise(silent, _talk(), 10.0, (0.1, 0.5), 1.0, "x")
