"""A linear echo canceller that leaves the speaker alone: a partitioned frequency-domain Kalman filter.

AEC3's suppressor takes away of a voice what lies under the echo; for a recogniser and for wake words that costs more
than the echo does (measured, docs/benchmarks.md). A linear filter subtracts what was played through the room, and
nothing else: it takes 20 dB away and never more than the room is linear.

After Enzner and Vary, "Frequency-domain adaptive Kalman filter for acoustic echo control in hands-free telephones"
(Signal Processing 86, 2006); partitions as in Kuech, Mabande and Enzner, "State-space architecture of the partitioned
block based acoustic echo controller" (ICASSP 2014). The step follows from what is uncertain about the room and how much
of the sound is not echo, so that somebody who speaks does not make it diverge.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from appliance.audio.frame import FRAME_SAMPLES, Samples

__all__ = ["LinearCanceller"]

PARTITIONS: Final = 16
"""Of 10 ms: the lead of the reference, what the drivers' times are wrong by, and the first tenth of a second of the
room."""
STAYS: Final = 0.998
"""How much of the room is the same after a frame: people move."""
NEAR_SMOOTHING: Final = 0.8
"""A frame, of the power that is not echo."""
START: Final = 0.1
"""Uncertainty of each tap at first."""
_FLOOR: Final = 1e-7

_Spectra = npt.NDArray[np.complex64]


class LinearCanceller:
    """A streaming part: near and far in, near without the echo out; no delay."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all sound, and the room."""
        bins = FRAME_SAMPLES + 1
        self._far: Samples = np.zeros(2 * FRAME_SAMPLES, dtype=np.float32)
        self._spectra: _Spectra = np.zeros((PARTITIONS, bins), dtype=np.complex64)
        self._room: _Spectra = np.zeros((PARTITIONS, bins), dtype=np.complex64)
        self._unsure = np.full((PARTITIONS, bins), START, dtype=np.float32)
        self._near = np.full(bins, _FLOOR, dtype=np.float32)
        self._padded = np.zeros(2 * FRAME_SAMPLES, dtype=np.float32)

    def doubt(self) -> None:
        """What was learnt of the room does not hold any more: learn it as fast as at first."""
        self._unsure[:] = START

    def process(self, near: Samples, far: Samples) -> Samples:
        """Two times [160] float32 at 16 kHz to one; `far` must come before its echo in `near`."""
        n = FRAME_SAMPLES
        self._far[:n] = self._far[n:]
        self._far[n:] = far
        spectra, room, unsure = self._spectra, self._room, self._unsure
        spectra[1:] = spectra[:-1].copy()
        spectra[0] = np.fft.rfft(self._far)
        echo = np.fft.irfft(np.einsum("pk,pk->k", spectra, room))[n:]
        error = (near - echo).astype(np.float32)
        self._padded[n:] = error
        wrong = np.fft.rfft(self._padded).astype(np.complex64)
        power = wrong.real**2 + wrong.imag**2
        self._near = NEAR_SMOOTHING * self._near + (1.0 - NEAR_SMOOTHING) * power
        played = spectra.real**2 + spectra.imag**2
        gain = unsure / (0.5 * np.einsum("pk,pk->k", played, unsure) + self._near + _FLOOR)
        step = gain * spectra.conj() * wrong
        room *= np.float32(STAYS)
        room += step
        # A partition's response is 10 ms long: what lies beyond has wrapped around.
        responses = np.fft.irfft(room, axis=1)
        responses[:, n:] = 0.0
        room[:] = np.fft.rfft(responses, axis=1)
        unsure *= np.float32(STAYS**2) * (1.0 - 0.5 * gain * played)
        unsure += np.float32(1.0 - STAYS**2) * (room.real**2 + room.imag**2) + np.float32(1e-9)
        return error
