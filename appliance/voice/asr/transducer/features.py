"""Log-mel features of 16 kHz sound, frame by frame, as streaming transducers were trained on (25 ms every 10 ms).

Two kinds. `kaldi`: Kaldi's fbank as lhotse sets it up for icefall (Povey window, 20 Hz to 400 Hz below Nyquist, no
dither, `snip_edges=False`). `nemo`: sherpa-onnx's stand-in for NeMo's preprocessor (Hann window, librosa's Slaney mel
scale up to 8 kHz). Both with pre-emphasis 0.97. Equal to kaldi-native-fbank, which tests/peers compares them with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from appliance.audio.frame import RATE_HZ, Samples

__all__ = ["HOP_SAMPLES", "FeatureKind", "Features", "frames_of", "samples_for"]

FeatureKind = Literal["kaldi", "nemo"]
Features = npt.NDArray[np.float32]
"""[frames, bins], natural logarithm."""

HOP_SAMPLES: Final = RATE_HZ // 100
_WINDOW: Final = RATE_HZ // 40
_FFT: Final = 512
_LEAD: Final = (_WINDOW - HOP_SAMPLES) // 2
"""Samples by which a frame's window begins before its hop: without `snip_edges`, windows are centred on the hop."""
_PRE_EMPHASIS: Final = 0.97
_FLOOR: Final = float(np.finfo(np.float32).eps)
"""Least energy of a bin."""
_POVEY_POWER: Final = 0.85


def samples_for(frames: int) -> int:
    """Samples from the beginning that so many frames need."""
    return 0 if frames == 0 else (frames - 1) * HOP_SAMPLES + _WINDOW - _LEAD


def frames_of(sound: Samples, first: int, kind: FeatureKind, bins: int) -> Features:
    """All frames from number `first` on that lie wholly in the sound, which begins at sample 0: [frames, bins].

    The window of the first frame reaches before the sound; there it is mirrored, as Kaldi does.
    """
    count = max(0, (sound.size - _WINDOW + _LEAD) // HOP_SAMPLES + 1 - first)
    if count == 0:
        return np.zeros((0, bins), dtype=np.float32)
    begin = first * HOP_SAMPLES - _LEAD
    piece = sound[max(0, begin) : begin + (count - 1) * HOP_SAMPLES + _WINDOW]
    if begin < 0:
        piece = np.concatenate([piece[:-begin][::-1], piece])
    windows = np.lib.stride_tricks.sliding_window_view(piece, _WINDOW)[::HOP_SAMPLES].astype(np.float32)
    return _log_mel(windows, _tables(kind, bins))


@dataclass(frozen=True, slots=True)
class _Tables:
    centred: bool
    """Whether each window's mean is taken off."""
    window: npt.NDArray[np.float32]
    mel: npt.NDArray[np.float32]
    """[frequencies, bins]."""


@cache
def _tables(kind: FeatureKind, bins: int) -> _Tables:
    if kind == "kaldi":
        window, mel = _hann(_WINDOW - 1) ** _POVEY_POWER, _kaldi_mel(bins, 20.0, RATE_HZ / 2 - 400.0)
    else:
        window, mel = _hann(_WINDOW), _slaney_mel(bins, RATE_HZ / 2)
    return _Tables(kind == "kaldi", window.astype(np.float32), mel.astype(np.float32))


def _hann(period: int) -> npt.NDArray[np.float64]:
    """Kaldi's ends in zero on both sides (a period of one less than the window), sherpa-onnx's for NeMo does not."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / period))


def _log_mel(windows: npt.NDArray[np.float32], tables: _Tables) -> Features:
    if tables.centred:
        windows = windows - windows.mean(axis=1, keepdims=True)
    before = np.concatenate([windows[:, :1], windows[:, :-1]], axis=1)
    shaped = (windows - np.float32(_PRE_EMPHASIS) * before) * tables.window
    spectrum = np.fft.rfft(shaped, _FFT, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    # Not `@`: BLAS would wake a thread on every core for a millisecond's work, and they spin for each other.
    energies = np.einsum("tf,fb->tb", power, tables.mel)
    logs: Features = np.log(np.maximum(energies, np.float32(_FLOOR)))
    return logs


def _kaldi_mel(bins: int, low_hz: float, high_hz: float) -> npt.NDArray[np.float64]:
    """Triangles on Kaldi's mel scale, straight in mel; the bin at Nyquist counts for none."""

    def mel(hz: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
        return np.asarray(1127.0 * np.log(1.0 + np.asarray(hz) / 700.0))

    edges = np.linspace(mel(low_hz), mel(high_hz), bins + 2)
    at = mel(np.arange(_FFT // 2 + 1) * RATE_HZ / _FFT)[:, None]
    triangles = _triangles(at, edges)
    triangles[-1] = 0.0
    return triangles


def _slaney_mel(bins: int, high_hz: float) -> npt.NDArray[np.float64]:
    """Triangles on Slaney's scale (linear to 1 kHz, then logarithmic), straight in hertz, each of the same area."""
    knee_hz, hz_a_mel, log_step = 1000.0, 200.0 / 3.0, np.log(6.4) / 27.0
    knee = knee_hz / hz_a_mel
    highest = knee + np.log(high_hz / knee_hz) / log_step
    mels = np.linspace(0.0, highest, bins + 2)
    edges = np.where(mels < knee, mels * hz_a_mel, knee_hz * np.exp(log_step * (mels - knee)))
    at = (np.arange(_FFT // 2 + 1) * RATE_HZ / _FFT)[:, None]
    return _triangles(at, edges) * (2.0 / (edges[2:] - edges[:-2]))


def _triangles(at: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[frequencies, bins]: 1 at each bin's middle edge, 0 at the edges beside it."""
    widths = np.diff(edges)
    rising, falling = (at - edges[:-2]) / widths[:-1], (edges[2:] - at) / widths[1:]
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)))
