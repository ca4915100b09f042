"""Sound in overlapping windowed frames, worked on one by one, and added up again to whole sound.

What every effect on a spectrum needs, and every cross-fade: denoising (`frontend/denoise.py`), concealment, joins. With
nothing done to the frames, what comes out is what went in, sample for sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from appliance.audio.frame import Samples
from appliance.errors import WindowError

__all__ = ["Process", "StreamingOverlapAdd", "hann", "root_hann"]

Process = Callable[[Samples], Samples]
"""Works on one windowed frame, [frame] float32, valid only during the call: changes it in place or gives another."""

MAX_RIPPLE: Final = 1e-4
"""Of the windows' sum, relative: -80 dB, below what any microphone's noise hides."""


def hann(frame: int) -> Samples:
    """Periodic Hann window [frame]: adds up at any hop that divides frame / 2."""
    window: Samples = (0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(frame) / frame)).astype(np.float32)
    return window


def root_hann(frame: int) -> Samples:
    """Square root of `hann`: for use before and behind a process, where it fades what was done at the edges."""
    window: Samples = np.sqrt(hann(frame), dtype=np.float32)
    return window


def _as_it_is(frame: Samples) -> Samples:
    return frame


class StreamingOverlapAdd:
    """A streaming part: the output does not depend on how the input was chunked.

    A sample comes out when the last frame that covers it is done, up to `frame` samples later; `flush` gives the
    rest, so that as many samples come out as went in, each in its place. Nothing is allocated but what is handed out.
    """

    def __init__(
        self,
        frame: int,
        hop: int,
        window: Samples,
        process: Process = _as_it_is,
        *,
        synthesis: Samples | None = None,
        fades_itself: bool = False,
    ) -> None:
        """`window` [frame] is applied before `process`, `synthesis` [frame] (where there is one) behind it.

        Constant overlap-add: shifted by `hop`, the windows' product must add up to a constant (any: it is divided
        out). Raises `WindowError` where it does not. See Allen and Rabiner, A unified approach to short-time Fourier
        analysis and synthesis, Proc. IEEE 65 (1977).

        `fades_itself`: what `process` gives adds up to the sound as it is, as of a network that was trained to have it
        added up. Nothing is divided out then, and what comes out is as good as the process.
        """
        if not 1 <= hop <= frame:
            raise WindowError(f"a hop of {hop} samples with frames of {frame}; it must be 1 to the frame")
        for name, values in (("window", window), ("synthesis window", synthesis)):
            if values is not None and (values.shape != (frame,) or not np.isfinite(values).all()):
                raise WindowError(
                    f"a {name} of shape {values.shape} for frames of {frame}; give [{frame}] finite numbers"
                )
        overlapped = _overlapped(window if synthesis is None else window * synthesis, hop)
        gain = 1.0 if fades_itself else overlapped
        self._frame, self._hop, self._process = frame, hop, process
        self._analysis = window.astype(np.float32)
        behind = np.ones(frame) if synthesis is None else synthesis
        self._synthesis: Samples = (behind / gain).astype(np.float32)
        self._windowed: Samples = np.empty(frame, dtype=np.float32)
        # In pairs: shifting within one buffer would make NumPy copy it first.
        self._heard, self._heard_next = (np.empty(frame, dtype=np.float32) for _ in range(2))
        self._sum, self._sum_next = (np.empty(frame, dtype=np.float32) for _ in range(2))
        self.reset()

    @property
    def delay_samples(self) -> int:
        """What a sample waits at most for the frames that cover it."""
        return self._frame

    def push(self, block: Samples) -> Samples:
        """Take [n] float32, give [m] float32 that is whole now (m may be 0). Raises `WindowError` where `process`
        gives another shape than it got."""
        out: Samples = np.empty(self._whole(self._seen + block.size) - self._given, dtype=np.float32)
        self._seen += block.size
        at = written = 0
        while at < block.size:
            count = min(block.size - at, self._frame - self._filled)
            self._heard[self._filled : self._filled + count] = block[at : at + count]
            self._filled += count
            at += count
            if self._filled == self._frame:
                written += self._turn(out[written:])
        self._given += written
        return out

    def flush(self) -> Samples:
        """The rest, as if silence followed; then as after `reset`."""
        left = self._seen - self._given
        if not left:
            self.reset()
            return np.empty(0, dtype=np.float32)
        tail = self.push(np.zeros(self._frame + self._hop, dtype=np.float32))[:left]
        self.reset()
        return tail

    def reset(self) -> None:
        """Forget everything pushed."""
        self._heard.fill(0.0)
        self._sum.fill(0.0)
        # The first frames begin before the sound, so that its first samples are covered as often as all others.
        self._lead = self._frame - self._hop
        self._filled = self._lead
        self._seen = self._given = 0

    def _whole(self, seen: int) -> int:
        """Samples that are whole when so many were seen."""
        turns = seen // self._hop
        return max(0, turns * self._hop - (self._frame - self._hop))

    def _turn(self, out: Samples) -> int:
        """Work on the frame that is full; samples written to the front of `out`."""
        hop, keep = self._hop, self._frame - self._hop
        np.multiply(self._heard, self._analysis, out=self._windowed)
        made = self._process(self._windowed)
        if made.shape != (self._frame,):
            raise WindowError(f"a process gave shape {made.shape} for a frame of {self._frame} samples")
        np.multiply(made, self._synthesis, out=self._windowed)
        self._sum += self._windowed
        # The lead lies before the sound: it is nobody's.
        lead = min(self._lead, hop)
        self._lead -= lead
        count = hop - lead
        out[:count] = self._sum[lead:hop]
        self._sum_next[:keep] = self._sum[hop:]
        self._sum_next[keep:] = 0.0
        self._sum, self._sum_next = self._sum_next, self._sum
        self._heard_next[:keep] = self._heard[hop:]
        self._heard, self._heard_next = self._heard_next, self._heard
        self._filled = keep
        return count


def _overlapped(window: Samples, hop: int) -> float:
    """What shifted windows add up to. Raises `WindowError` where that is not one number above zero."""
    sums = np.zeros(hop)
    for at in range(0, window.size, hop):
        part = window[at : at + hop]
        sums[: part.size] += part
    mean = float(sums.mean())
    ripple = float(np.abs(sums - mean).max())
    if mean <= 0.0 or ripple > MAX_RIPPLE * mean:
        raise WindowError(
            f"a window of {window.size} samples shifted by {hop} adds up to {sums.min():.4g} to {sums.max():.4g},"
            " not to one number: what went in would not come out; take a hop that fits the window (half or a quarter of"
            " it for `hann`)"
        )
    return mean
