"""What was really played, from the loudspeaker's callback to whoever cancels its echo: blocks with the times heard.

The callback copies a block and follows its clock, nothing more; silence is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from appliance.audio.clock import Envelope
from appliance.audio.frame import Samples
from appliance.audio.spsc import BlockRing

__all__ = ["MixerTap", "PlayedBlock", "PlayedTap"]

RING_S: Final = 2.0
"""Sound kept while the reader cannot run; what is older has no echo any more."""
MIN_BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class PlayedBlock:
    """What one callback gave to the device."""

    samples: Samples
    """Shape [n], float32, at `rate_hz`, volume and ducking applied."""
    heard_s: float
    """Monotonic time at which its first sample is heard, jitter taken out."""
    index: int
    """Number of its first sample in the stream, those of silence counted too."""
    rate_hz: int


class MixerTap:
    """The callback's end, for one rate."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._ring = BlockRing(round(RING_S * rate_hz), round(RING_S * rate_hz) // MIN_BLOCK)
        self._clock = Envelope()
        self._index = 0

    @property
    def dropped(self) -> int:
        """Blocks that found the ring full: nobody read it."""
        return self._ring.overruns

    def take(self, block: Samples, heard_s: float, *, sounding: bool) -> None:
        """Callback: a block is on its way, its first sample heard at `heard_s` as the driver says."""
        self._clock.push(heard_s, heard_s - self._index / self.rate_hz)
        if sounding:
            self._ring.write(block, self._clock.base_s + self._index / self.rate_hz, float(self._index))
        self._index += block.size

    def rested(self) -> None:
        """Callback: nothing was played for a while; places tell a new time from here on."""
        self._clock = Envelope()

    def read(self) -> Iterator[PlayedBlock]:
        """Reader: all that has come since the last time."""
        while (block := self._ring.read()) is not None:
            yield PlayedBlock(block.samples, block.arrival_s, int(block.age_s), self.rate_hz)


class PlayedTap:
    """A loudspeaker's tap, over all its streams: one reader."""

    def __init__(self) -> None:
        self._now: MixerTap | None = None
        self._earlier_drops = 0

    @property
    def dropped(self) -> int:
        """Blocks that were lost because the reader was too slow."""
        return self._earlier_drops + (0 if self._now is None else self._now.dropped)

    def connect(self, rate_hz: int) -> MixerTap:
        """A new stream at a rate; what the old one still held is given up."""
        if self._now is not None:
            self._earlier_drops += self._now.dropped
        self._now = MixerTap(rate_hz)
        return self._now

    def read(self) -> Iterator[PlayedBlock]:
        """What was played since the last time, oldest first."""
        now = self._now
        if now is not None:
            yield from now.read()
