"""Recordings altered for a test: noise mixed in at a level, a pause put into the middle of a sentence."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

import numpy as np

from appliance.audio.files import read_blocks
from appliance.audio.frame import RATE_HZ, Samples
from appliance.bench.errors import MaterialError

__all__ = ["insert_pause", "mix_noise", "quietest_s", "read_sound"]

_MIDDLE: Final = (0.35, 0.85)
"""Part of the speech in which a pause is put: people pause after they have said something and before they are done."""
_QUIET_S: Final = 0.030
_STEP_S: Final = 0.005
_ROOM_S: Final = 0.1
"""The quietest stretch of a recording that is this long stands for its room."""


def read_sound(path: Path) -> Samples:
    """A recording as [n] float32 at 16 kHz. Raises `AudioFormatError`."""
    return np.concatenate([np.asarray(block, dtype=np.float32) for block in read_blocks(path)])


def mix_noise(
    sound: Samples, noise: Samples, snr_db: float, speech: tuple[float, float], tail_s: float, seed: str = ""
) -> Samples:
    """The sound and a tail behind it, in noise whose power is `snr_db` below that of the speech (start and end in s).

    Both [n] float32 at 16 kHz. The noise begins at a point that `seed` chooses and is repeated where it is too short.
    The result is clipped at full scale. Raises `MaterialError` where speech or noise are digital silence.
    """
    first, last = (round(time_s * RATE_HZ) for time_s in speech)
    speech_power, noise_power = _power(sound[first:last]), _power(noise)
    if not speech_power or not noise_power:
        raise MaterialError(f"{seed or 'recording'}: speech or noise is digital silence, so no noise level can be set")
    piece = np.roll(noise, -(zlib.crc32(seed.encode()) % noise.size))
    out = np.resize(piece, sound.size + round(tail_s * RATE_HZ)).astype(np.float32)
    out *= np.float32(np.sqrt(speech_power / noise_power * 10.0 ** (-snr_db / 10.0)))
    out[: sound.size] += sound
    return np.clip(out, -1.0, 1.0, out=out)


def quietest_s(sound: Samples, speech: tuple[float, float]) -> float:
    """Middle of the quietest 30 ms in the middle of the speech (start and end in s): where a speaker might pause."""
    start_s, end_s = speech
    low_s, high_s = (start_s + share * (end_s - start_s) for share in _MIDDLE)
    return _quietest_start_s(sound, low_s, high_s, _STEP_S, _QUIET_S) + _QUIET_S / 2


def insert_pause(sound: Samples, speech: tuple[float, float], pause_s: float) -> tuple[Samples, float]:
    """The sound with a pause at the quietest point of the middle of its speech, and where that begins, in s.

    The pause is the recording's own quietest 100 ms, to and fro: silence of another kind would be easy to tell from
    the room's. Its seams are faded over 5 ms: a click would be a sound of its own.
    """
    at_s = quietest_s(sound, speech)
    at, room_at = round(at_s * RATE_HZ), _quietest_start_s(sound, 0.0, sound.size / RATE_HZ - _ROOM_S, 0.05, _ROOM_S)
    room = sound[round(room_at * RATE_HZ) :][: round(_ROOM_S * RATE_HZ)]
    pause = np.resize(np.concatenate((room, room[::-1])), round(pause_s * RATE_HZ)).astype(np.float32)
    after = sound[at:].copy()
    rise = np.linspace(0.0, 1.0, min(round(_STEP_S * RATE_HZ), pause.size, after.size), dtype=np.float32)
    pause[: rise.size] = pause[: rise.size] * rise + after[: rise.size] * rise[::-1]
    after[: rise.size] *= rise
    return np.concatenate((sound[:at], pause, after)), at_s


def _quietest_start_s(sound: Samples, low_s: float, high_s: float, step_s: float, width_s: float) -> float:
    """Start of the stretch with the least power among those that start from `low_s` to before `high_s`."""
    width = round(width_s * RATE_HZ)
    starts = range(
        round(low_s * RATE_HZ), max(round(high_s * RATE_HZ), round(low_s * RATE_HZ) + 1), round(step_s * RATE_HZ)
    )
    return min(starts, key=lambda start: _power(sound[start : start + width])) / RATE_HZ


def _power(sound: Samples) -> float:
    return float(np.dot(sound, sound)) / sound.size if sound.size else 0.0
