"""Recordings altered for a test: noise mixed in at a level, a pause put into the middle of a sentence."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

import numpy as np

from appliance.audio.files import read_blocks
from appliance.audio.floor import FloorMeter, noise_blocks
from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples
from appliance.bench.errors import MaterialError

__all__ = ["insert_pause", "mix_noise", "quietest_s", "read_sound"]

_MIDDLE: Final = (0.35, 0.85)
"""Part of the speech in which a pause is put: people pause after they have said something and before they are done."""
_QUIET_S: Final = 0.030
_STEP_S: Final = 0.005
_FADE_S: Final = 0.005
"""The cut is faded over this long: a click would be a sound of its own."""
_ROOM_S: Final = 0.1
"""Least of the recording's own room sound that is worth repeating."""
_AFTER_SPEECH_S: Final = 0.1


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
    low, high = (start_s + share * (end_s - start_s) for share in _MIDDLE)
    width, step = round(_QUIET_S * RATE_HZ), round(_STEP_S * RATE_HZ)
    starts = range(round(low * RATE_HZ), max(round(high * RATE_HZ) - width, round(low * RATE_HZ) + 1), step)
    quietest = min(starts, key=lambda at: _power(sound[at : at + width]))
    return (quietest + width / 2) / RATE_HZ


def insert_pause(sound: Samples, speech: tuple[float, float], pause_s: float, seed: str = "") -> tuple[Samples, float]:
    """The sound with a pause at the quietest point of the middle of its speech, and where that begins, in s.

    The pause is filled with the room's own sound from behind the speech, to and fro, or, where that is too short, with
    noise at the recording's floor (the same for the same `seed`): a pause of digital silence would be easy to tell.
    """
    at_s = quietest_s(sound, speech)
    at, size, fade = round(at_s * RATE_HZ), round(pause_s * RATE_HZ), round(_FADE_S * RATE_HZ)
    room = _room(sound, speech[1], size, seed)
    rise = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    before, after = sound[:at].copy(), sound[at:].copy()
    before[-fade:] *= rise[::-1]
    after[:fade] *= rise[: after.size]
    return np.concatenate((before, room, after)), at_s


def _room(sound: Samples, speech_end_s: float, size: int, seed: str) -> Samples:
    own = sound[round((speech_end_s + _AFTER_SPEECH_S) * RATE_HZ) :]
    if own.size >= _ROOM_S * RATE_HZ:
        # To and fro, so that no seam clicks.
        return np.resize(np.concatenate((own, own[::-1])), size).astype(np.float32)
    meter = FloorMeter()
    for frame in range(0, sound.size - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        meter.push(sound[frame : frame + FRAME_SAMPLES])
    blocks = list(noise_blocks(meter.floor_dbfs(), size / RATE_HZ + 0.01, zlib.crc32(seed.encode())))
    return np.concatenate(blocks)[:size]


def _power(sound: Samples) -> float:
    return float(np.dot(sound, sound)) / sound.size if sound.size else 0.0
