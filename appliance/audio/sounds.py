"""Wren's own small sounds: heard, done, sorry. Short, soft, and made here rather than recorded.

Each is a few notes of a wooden bar: a fundamental, its quiet fourth harmonic, and a quick decay. They stay above
the loudest part of speech and below half its level, so that one that bleeds into the microphone is no vowel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np

from appliance.audio.frame import Samples

__all__ = ["Sound", "sound_samples", "sound_seconds"]

PEAK: Final = 0.18
"""-15 dBFS at most."""
ATTACK_S: Final = 0.004
"""Shorter would click, longer would not sound like a bar that is struck."""
RELEASE_S: Final = 0.012
_FOURTH: Final = 0.18  # the fourth harmonic's share: what makes it wood and not a whistle


@dataclass(frozen=True, slots=True)
class _Note:
    at_s: float
    pitch_hz: float
    length_s: float
    decay_s: float


class Sound(Enum):
    """What can be played."""

    WAKE = "wake"
    """I heard my name."""
    END = "end"
    """I have heard you out."""
    ERROR = "error"
    """That did not work."""
    TEST = "test"
    """Longer: is this speaker the right one?"""
    RING = "ring"
    """A timer has ended: made to be played again and again, with a pause in it."""


_PAUSES: Final[dict[Sound, float]] = {Sound.RING: 0.9}
"""Seconds of silence after a sound, where it is not 0."""
_NOTES: Final[dict[Sound, tuple[_Note, ...]]] = {
    Sound.WAKE: (_Note(0.0, 880.0, 0.09, 0.05), _Note(0.06, 1318.5, 0.12, 0.05)),
    Sound.END: (_Note(0.0, 1318.5, 0.09, 0.05), _Note(0.06, 987.8, 0.12, 0.05)),
    Sound.ERROR: (_Note(0.0, 622.3, 0.12, 0.06), _Note(0.13, 466.2, 0.17, 0.08)),
    Sound.TEST: tuple(
        _Note(0.22 * i, pitch_hz, 0.45, 0.16) for i, pitch_hz in enumerate((523.3, 659.3, 784.0, 1046.5))
    ),
    Sound.RING: tuple(_Note(0.16 * i, 1174.7 if i % 2 else 880.0, 0.22, 0.06) for i in range(4)),
}


def sound_seconds(sound: Sound) -> float:
    """How long a sound is, the pause after it included."""
    return max(note.at_s + note.length_s for note in _NOTES[sound]) + _PAUSES.get(sound, 0.0)


@lru_cache(maxsize=16)
def sound_samples(sound: Sound, rate_hz: int) -> Samples:
    """A sound at a rate, [n] float32, begins and ends at zero. Shared: not to be written to."""
    notes = _NOTES[sound]
    out = np.zeros(round(sound_seconds(sound) * rate_hz), dtype=np.float64)
    for note in notes:
        start = round(note.at_s * rate_hz)
        tone = _tone(note, rate_hz)[: out.size - start]
        out[start : start + tone.size] += tone
    samples: Samples = (out * (PEAK / np.abs(out).max())).astype(np.float32)
    samples.flags.writeable = False
    return samples


def _tone(note: _Note, rate_hz: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    time_s = np.arange(round(note.length_s * rate_hz)) / rate_hz
    turn = 2 * np.pi * note.pitch_hz * time_s
    # The higher partial of a bar dies sooner.
    tone = np.sin(turn) * np.exp(-time_s / note.decay_s)
    tone += _FOURTH * np.sin(4 * turn) * np.exp(-3 * time_s / note.decay_s)
    attack = 0.5 - 0.5 * np.cos(np.pi * np.minimum(1.0, time_s / ATTACK_S))
    release = 0.5 - 0.5 * np.cos(np.pi * np.clip((note.length_s - time_s) / RELEASE_S, 0.0, 1.0))
    return np.asarray(tone * attack * release, dtype=np.float64)
