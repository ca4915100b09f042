"""Simulated rooms: what a microphone hears of a loudspeaker. Everything is seeded; no device."""

from __future__ import annotations

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples, level_dbfs

LEAD_MS = 30.0


def babble(seconds: float, seed: int = 0) -> Samples:
    """Something like speech, [n] float32 at 16 kHz: syllables of a voice's harmonics through wandering formants, with
    pauses between phrases."""
    random = np.random.default_rng(seed)
    out = np.zeros(round(seconds * RATE_HZ), dtype=np.float64)
    at = 0
    while at < out.size:
        length = round(random.uniform(0.12, 0.3) * RATE_HZ)
        time_s = np.arange(length) / RATE_HZ
        pitch_hz = random.uniform(100, 160)
        formants = random.uniform((300, 900, 2200), (800, 2000, 3500))
        syllable = 0.05 * random.standard_normal(length)
        for harmonic in range(1, 40):
            hz = harmonic * pitch_hz
            gain = sum(1.0 / (1.0 + ((hz - formant) / 120.0) ** 2) for formant in formants)
            syllable += gain * np.sin(2 * np.pi * hz * time_s + random.uniform(0, 6))
        syllable *= np.hanning(length)
        end = min(at + length, out.size)
        out[at:end] += syllable[: end - at]
        at += length + (round(0.6 * RATE_HZ) if random.random() < 0.08 else 0)
    samples: Samples = (0.1 * out / np.sqrt(np.mean(out**2))).astype(np.float32)
    return samples


def room(seed: int = 1) -> Samples:
    """An impulse response of 100 ms with unit power."""
    random = np.random.default_rng(seed)
    steps = np.arange(RATE_HZ // 10)
    response = random.standard_normal(steps.size) * np.exp(-steps / 400.0) * 0.12
    response[0] += 1.0
    samples: Samples = (response / np.sqrt(np.sum(response**2))).astype(np.float32)
    return samples


def echo_of(played: Samples, delay_ms: float, *, level_db: float = -6.0, drift: float = 0.0, seed: int = 1) -> Samples:
    """What comes back of `played` after so long (the lead of the reference not counted), as long as it."""
    back = np.convolve(played, room(seed))[: played.size]
    if drift:
        back = np.interp(np.arange(played.size) * (1.0 + drift), np.arange(played.size), back)
    shift = round(delay_ms * RATE_HZ / 1000)
    moved: Samples = (np.concatenate((np.zeros(shift), back))[: played.size] * 10 ** (level_db / 20)).astype(np.float32)
    return moved


def hum(size: int, dbfs: float = -62.0, seed: int = 2) -> Samples:
    """The room's own noise."""
    noise = np.random.default_rng(seed).standard_normal(size, dtype=np.float32)
    return np.asarray(noise * np.float32(10 ** (dbfs / 20)), dtype=np.float32)


def frames_of(sound: Samples) -> list[Samples]:
    """Whole frames."""
    return [sound[i : i + FRAME_SAMPLES] for i in range(0, sound.size - FRAME_SAMPLES + 1, FRAME_SAMPLES)]


def erle_db(echo: Samples, left: Samples, since_s: float, until_s: float) -> float:
    """How much of an echo is gone (echo return loss enhancement), over a stretch."""
    part = slice(round(since_s * RATE_HZ), round(until_s * RATE_HZ))
    return level_dbfs(echo[part]) - level_dbfs(left[part])
