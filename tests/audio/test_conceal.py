from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.conceal import LEAST_STRETCH_SAMPLES, MOST_LAG, Concealer, lengthened, shortened
from appliance.audio.frame import RATE_HZ, Samples


def _voice(seconds: float, pitch_hz: float = 120.0) -> Samples:
    """A steady vowel: harmonics of one pitch, the higher the fainter."""
    at = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    sound = sum(np.sin(2 * np.pi * pitch_hz * k * at + k) / k**1.5 for k in range(1, 12))
    return (0.2 * np.asarray(sound)).astype(np.float32)


def _noise(size: int, level: float = 0.1) -> Samples:
    return (np.random.default_rng(3).standard_normal(size) * level).astype(np.float32)


def _with_hole(sound: Samples, at: int, size: int, sizes: list[int]) -> Samples:
    """The sound with a hole made up for, in pieces of these sizes."""
    part, out, number = Concealer(), [], 0
    for begin, end, there in ((0, at, True), (at, at + size, False), (at + size, sound.size, True)):
        done = begin
        while done < end:
            count = min(sizes[number % len(sizes)], end - done)
            out.append(part.heard(sound[done : done + count]) if there else part.missing(count))
            done, number = done + count, number + 1
    return np.concatenate(out)


@settings(deadline=None)
@given(at=st.integers(0, 700), size=st.integers(0, 500), sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_any_chunking_gives_the_same_sound_and_all_of_it(at: int, size: int, sizes: list[int]) -> None:
    sound = _voice(0.08)
    whole = _with_hole(sound, at, size, [4000])
    assert whole.shape == (max(sound.size, at + size),)
    np.testing.assert_allclose(_with_hole(sound, at, size, sizes), whole, atol=1e-7)


@pytest.mark.parametrize("pitch_hz", [80.0, 120.0, 210.0, 330.0])
def test_a_hole_of_a_frame_in_a_vowel_is_hardly_to_be_found(pitch_hz: float) -> None:
    sound = _voice(0.3, pitch_hz)
    made = _with_hole(sound, 2000, 160, [160])
    error = made - sound
    assert np.array_equal(made[:2000], sound[:2000])
    assert np.array_equal(made[2160 + 80 :], sound[2160 + 80 :])
    # -14 dB of the vowel; silence in its place would be an error of 0 dB.
    assert float(np.mean(error[2000:2160] ** 2)) < 0.04 * float(np.mean(sound**2))
    assert np.abs(np.diff(made)).max() < 1.6 * np.abs(np.diff(sound)).max()


def test_what_stays_away_fades_to_silence_and_comes_back_without_a_click() -> None:
    sound = _voice(0.5)
    made = _with_hole(sound, 3000, 2400, [160])
    level = [float(np.abs(made[a : a + 160]).max()) for a in range(3000, 5400, 160)]
    assert level[0] > 0.2
    assert level[6:] == [0.0] * len(level[6:])
    assert np.abs(np.diff(made)).max() < 1.6 * np.abs(np.diff(sound)).max()


def test_nothing_is_made_of_nothing() -> None:
    part = Concealer()
    assert not part.missing(300).any()
    assert np.array_equal(part.heard(np.zeros(200, np.float32)), np.zeros(200, np.float32))
    part.heard(_voice(0.1))
    part.reset()
    assert not part.missing(300).any()


@pytest.mark.parametrize("pitch_hz", [80.0, 120.0, 210.0, 330.0])
def test_a_vowel_becomes_longer_or_shorter_by_periods_at_the_same_pitch(pitch_hz: float) -> None:
    sound = _voice(0.1, pitch_hz)
    for stretch, sign in ((lengthened, 1), (shortened, -1)):
        made = stretch(sound)
        periods = sign * (made.size - sound.size) / (RATE_HZ / pitch_hz)
        assert periods == pytest.approx(round(periods), abs=0.03)
        assert 1 <= round(periods) <= 5
        # The same vowel still: it is like itself a period later, at the seam as elsewhere, and begins and ends alike.
        assert np.abs(np.diff(made)).max() < 1.1 * np.abs(np.diff(sound)).max()
        assert np.array_equal(made[-400:], sound[-400:])
        assert made[0] == pytest.approx(sound[0], abs=1e-6)


def test_silence_is_stretched_and_what_never_repeats_is_left_alone() -> None:
    silence = np.zeros(800, np.float32)
    assert lengthened(silence).size == 800 + MOST_LAG
    assert shortened(silence).size == 800 - MOST_LAG
    hiss = _noise(800)
    assert lengthened(hiss) is hiss
    assert shortened(hiss) is hiss
    short = _voice(0.1)[: LEAST_STRETCH_SAMPLES - 1]
    assert lengthened(short) is short


@settings(deadline=None)
@given(st.integers(0, 2000), st.integers(0, 2**31))
def test_any_sound_can_be_asked_for_and_stays_in_bounds(size: int, seed: int) -> None:
    sound = np.random.default_rng(seed).uniform(-1, 1, size).astype(np.float32)
    for stretch in (lengthened, shortened):
        made = stretch(sound)
        assert abs(made.size - size) <= MOST_LAG
        assert np.abs(made).max(initial=0.0) <= 1.0
