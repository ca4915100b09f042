"""Noise taken out of what wake words hear: DTLN, two small recurrent networks over overlapping frames.

Westhausen and Meyer, "Dual-signal transformation LSTM network for real-time noise suppression" (Interspeech 2020). The
first network says how much of each frequency of a frame is voice, the second mends the wave that is left. Recogniser
and voice activity do worse on what comes out (docs/benchmarks.md), and never get it.

What comes out was heard 30 ms before, and says so: each frame keeps its own time and number, so that whoever hears the
denoised sound tells the same times as whoever hears the microphone.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame, Samples
from appliance.audio.overlap_add import StreamingOverlapAdd
from appliance.errors import ApplianceError

__all__ = [
    "DELAY_FRAMES",
    "DELAY_S",
    "Denoiser",
    "DenoiserMissingError",
    "DtlnTensors",
    "Net",
    "OpenDenoiser",
    "QuietPath",
    "dtln",
]

_LOG = logging.getLogger(__name__)

WINDOW_SAMPLES: Final = 512
HOP_SAMPLES: Final = 128
"""What the networks were trained on: 32 ms every 8 ms, at 16 kHz."""
DELAY_FRAMES: Final = 3
"""After n frames of 160 samples, 128 * floor(160 n / 128) - 384 samples are whole: n - 3 frames, whatever n is."""
DELAY_S: Final = DELAY_FRAMES * FRAME_S
SHARE: Final = 0.5
"""Of the denoised sound, the rest is the microphone's: wake words are heard less often through it alone."""


class DenoiserMissingError(ApplianceError):
    """The denoiser that was asked for is not here, or does not run on this machine."""

    code = "audio.denoiser"


class Net(Protocol):
    """A network that keeps what it heard before from run to run."""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        """Once more, all but the state going in and coming out."""
        ...

    def reset(self) -> None:
        """Forget all sound."""
        ...


@dataclass(frozen=True, slots=True)
class DtlnTensors:
    """Names of the graphs' tensors other than the state's, as the published files have them."""

    magnitudes: str = "input_2"
    """[1, 1, 257]: of the frame's spectrum."""
    share: str = "activation_2"
    """[1, 1, 257], 0..1: how much of each is voice."""
    wave: str = "input_4"
    """[1, 1, 512]."""
    mended: str = "conv1d_3"
    """[1, 1, 512]: its part of the sum of overlapping frames."""


def dtln(mask: Net, wave: Net, tensors: DtlnTensors = DtlnTensors()) -> StreamingOverlapAdd:
    """Sound of any chunking in, voice out; [n] float32 at 16 kHz. The networks keep their state until `reset`."""

    def process(frame: Samples) -> Samples:
        spectrum = np.fft.rfft(frame)
        magnitudes = np.abs(spectrum).astype(np.float32, copy=False)
        share = mask.run({tensors.magnitudes: magnitudes.reshape(1, 1, -1)})[tensors.share]
        left = np.fft.irfft(spectrum * share.reshape(-1), WINDOW_SAMPLES).astype(np.float32, copy=False)
        mended: Samples = wave.run({tensors.wave: left.reshape(1, 1, -1)})[tensors.mended].reshape(-1)
        return mended

    return StreamingOverlapAdd(
        WINDOW_SAMPLES, HOP_SAMPLES, np.ones(WINDOW_SAMPLES, dtype=np.float32), process, fades_itself=True
    )


class Denoiser:
    """A streaming part: a frame in, the one of 30 ms before out. Its first three are the silence before all sound."""

    def __init__(self, mask: Net, wave: Net, tensors: DtlnTensors = DtlnTensors()) -> None:
        self._nets = (mask, wave)
        self._parts = dtln(mask, wave, tensors)
        self._whole: Samples = np.empty(0, dtype=np.float32)
        self._waiting: deque[Frame] = deque(maxlen=DELAY_FRAMES + 1)
        self.reset()

    def push(self, frame: Frame) -> Frame:
        """Hear 10 ms. Raises what the networks raise; `reset` it before it is used again."""
        if not self._waiting:
            self._waiting.extend(_before(frame))
        self._waiting.append(frame)
        self._whole = np.concatenate((self._whole, self._parts.push(frame.samples)))
        samples, self._whole = self._whole[:FRAME_SAMPLES], self._whole[FRAME_SAMPLES:]
        return replace(self._waiting.popleft(), samples=samples)

    def flush(self) -> tuple[Frame, ...]:
        """The last three, as if silence followed; then as after `reset`."""
        if not self._waiting:
            return ()
        sound = np.concatenate((self._whole, self._parts.flush()))
        frames = tuple(
            replace(frame, samples=sound[at * FRAME_SAMPLES : (at + 1) * FRAME_SAMPLES])
            for at, frame in enumerate(self._waiting)
        )
        self.reset()
        return frames

    def reset(self) -> None:
        """Forget all sound."""
        for net in self._nets:
            net.reset()
        self._parts.reset()
        self._waiting.clear()
        # What lies before all sound is whole already.
        self._whole = np.zeros(DELAY_FRAMES * FRAME_SAMPLES, dtype=np.float32)


OpenDenoiser = Callable[[], Denoiser]
"""Raises `DenoiserMissingError`."""


class QuietPath:
    """What wake words hear, denoised by half. A streaming part that runs 30 ms late, and says the times.

    Where the denoiser fails the sound goes on without it, in place: no frame is lost and none comes twice.
    """

    def __init__(self, denoiser: Denoiser, *, share: float = SHARE) -> None:
        self._denoiser = denoiser
        self._share = np.float32(share)
        self.fault: str | None = None
        """Why nothing is denoised any more; None while it is."""
        self._waiting: deque[tuple[Frame, bool]] = deque(maxlen=DELAY_FRAMES + 1)
        self._next_seq: int | None = None
        self._was_denoised = False
        self._rise = np.linspace(0.0, 1.0, FRAME_SAMPLES, dtype=np.float32)

    def push(self, frame: Frame, *, as_it_is: bool) -> Frame:
        """Hear 10 ms; gives those of 30 ms before, untouched where they were to be heard `as_it_is`.

        A hole in the numbers begins anew.
        """
        if frame.seq != self._next_seq:
            self._begin()
        self._next_seq = frame.seq + 1
        if self.fault is not None and not self._waiting:
            return frame
        if not self._waiting:
            self._waiting.extend((before, True) for before in _before(frame))
        self._waiting.append((frame, as_it_is))
        denoised = self._denoised(frame)
        heard, untouched = self._waiting.popleft()
        was, self._was_denoised = self._was_denoised, denoised is not None and not untouched
        if denoised is None or not (was or self._was_denoised):
            return heard
        change = self._share * (denoised.samples - heard.samples)
        if was != self._was_denoised:
            change = change * (self._rise if self._was_denoised else 1.0 - self._rise)
        return replace(heard, samples=heard.samples + change)

    def reset(self) -> None:
        """Forget all sound."""
        self._next_seq = None
        self._begin()

    def _begin(self) -> None:
        self._waiting.clear()
        self._was_denoised = False
        if self.fault is None:
            try:
                self._denoiser.reset()
            except Exception as error:  # noqa: BLE001 - see `_denoised`
                self._give_up(error)

    def _denoised(self, frame: Frame) -> Frame | None:
        if self.fault is not None:
            return None
        try:
            return self._denoiser.push(frame)
        except Exception as error:  # noqa: BLE001 - whatever a network raises must not make Wren deaf
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self.fault = str(error) or type(error).__name__
        _LOG.error("the denoiser failed (%s); from now on the sound is not denoised", self.fault)


def _before(frame: Frame) -> list[Frame]:
    """The silence before a first frame, as long as the denoiser's delay."""
    silence = np.zeros(FRAME_SAMPLES, dtype=np.float32)
    return [Frame(silence, frame.time_s - back * FRAME_S, frame.seq - back) for back in range(DELAY_FRAMES, 0, -1)]
