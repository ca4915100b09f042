from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.lowdelay import LowDelayResampler

RATES = [(48_000, 16_000), (44_100, 16_000), (32_000, 16_000), (22_050, 48_000), (16_000, 48_000), (22_050, 44_100)]


def _noise(length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal(length).astype(np.float32)


def _all(resampler: LowDelayResampler, sound: np.ndarray, cuts: list[int]) -> np.ndarray:
    parts, at = [], 0
    for cut in cuts:
        parts.append(resampler.push(sound[at : at + cut]))
        at += cut
    return np.concatenate([*parts, resampler.push(sound[at:]), resampler.flush()])


@given(st.sampled_from(RATES), st.integers(0, 3000), st.lists(st.integers(0, 700), max_size=10))
def test_any_chunking_gives_the_same_sound_to_the_last_bit(
    rates: tuple[int, int], length: int, cuts: list[int]
) -> None:
    sound = _noise(length)
    resampler = LowDelayResampler(*rates)
    whole = _all(resampler, sound, [])
    resampler.reset()
    assert np.array_equal(whole, _all(resampler, sound, cuts))
    assert whole.size == -(-length * rates[1] // rates[0])


@pytest.mark.parametrize("rates", RATES)
def test_a_tone_comes_out_as_the_same_tone_at_the_same_time(rates: tuple[int, int]) -> None:
    rate_in, rate_out = rates
    tone = np.sin(2 * np.pi * 997 * np.arange(rate_in) / rate_in).astype(np.float32)
    out = _all(LowDelayResampler(*rates), tone, [480] * 20)
    wanted = np.sin(2 * np.pi * 997 * np.arange(rate_out) / rate_out)
    inner = slice(rate_out // 50, -rate_out // 50)
    assert np.abs(out - wanted)[inner].max() < 1e-3


@pytest.mark.parametrize("rate_in", [48_000, 44_100, 32_000])
def test_what_16_khz_cannot_carry_is_gone(rate_in: int) -> None:
    tone = np.sin(2 * np.pi * 9_000 * np.arange(rate_in) / rate_in).astype(np.float32)
    out = LowDelayResampler(rate_in).push(tone)[800:-800]
    assert np.abs(out).max() < 1e-4


@pytest.mark.parametrize("rates", RATES)
def test_a_sample_comes_out_as_soon_as_the_filter_has_it(rates: tuple[int, int]) -> None:
    resampler = LowDelayResampler(*rates)
    assert resampler.delay_s < 0.0025
    given_s = out_s = 0.0
    for _ in range(200):
        given_s += 64 / rates[0]
        out_s += resampler.push(np.zeros(64, dtype=np.float32)).size / rates[1]
        assert given_s - out_s <= resampler.delay_s + 1 / rates[1] + 1e-9


def test_equal_rates_pass_the_very_same_samples() -> None:
    sound = _noise(100)
    resampler = LowDelayResampler(16_000, 16_000)
    assert resampler.push(sound) is sound
    assert resampler.flush().size == 0
