"""Between an audio callback and its worker: rings that one thread writes and one thread reads, without locks.

Each index has one writer, only grows, and is published after the samples it speaks of; an index read by the other
side is at worst old, never wrong. That rests on CPython, which stores an attribute in one piece and in order.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from appliance.audio.frame import Samples

__all__ = ["Block", "BlockRing", "Doorbell", "SampleRing"]


class SampleRing:
    """A ring of float32 samples. Full: `write` takes what fits and says how much that was."""

    def __init__(self, capacity: int) -> None:
        self._data = np.zeros(capacity, dtype=np.float32)
        self._written = 0
        self._taken = 0

    @property
    def written(self) -> int:
        """Samples ever written; only the producer changes it."""
        return self._written

    @property
    def taken(self) -> int:
        """Samples ever read; only the consumer changes it."""
        return self._taken

    @property
    def available(self) -> int:
        """Samples that can be read: at least this many, seen from the consumer."""
        return self._written - self._taken

    @property
    def space(self) -> int:
        """Samples that can be written: at least this many, seen from the producer."""
        return self._data.size - (self._written - self._taken)

    def write(self, samples: Samples) -> int:
        """Producer: copy in what fits of [n] float32; returns how many samples that was."""
        count = min(samples.size, self.space)
        start = self._written % self._data.size
        first = min(count, self._data.size - start)
        self._data[start : start + first] = samples[:first]
        if count > first:
            self._data[: count - first] = samples[first:count]
        self._written += count
        return count

    def read_into(self, out: Samples) -> int:
        """Consumer: copy the oldest samples to the front of `out`; returns how many there were."""
        count = min(out.size, self.available)
        start = self._taken % self._data.size
        first = min(count, self._data.size - start)
        out[:first] = self._data[start : start + first]
        if count > first:
            out[first:count] = self._data[: count - first]
        self._taken += count
        return count


@dataclass(frozen=True, slots=True)
class Block:
    """What a device gave in one callback."""

    samples: Samples
    """Interleaved channels, shape [frames * channels]; the reader's own copy."""
    arrival_s: float
    """Monotonic time of the callback."""
    age_s: float
    """How long before that the first sample was captured, as the driver says; 0 where it says nothing."""
    dropped: int
    """Samples of earlier blocks, directly before this one, that found the ring full."""


class BlockRing:
    """Blocks with their times. Full: the new block is dropped whole (the reader owns the old ones), counted."""

    def __init__(self, capacity: int, max_blocks: int) -> None:
        self._samples = SampleRing(capacity)
        self._lengths = np.zeros(max_blocks, dtype=np.int64)
        self._dropped = np.zeros(max_blocks, dtype=np.int64)
        self._times = np.zeros((max_blocks, 2), dtype=np.float64)
        self._blocks_in = 0
        self._blocks_out = 0
        self._lost = 0
        self.overruns = 0
        """Blocks dropped because the reader was too slow."""

    def write(self, samples: Samples, arrival_s: float, age_s: float) -> bool:
        """Producer: copy a block in; False if it was dropped."""
        if self._blocks_in - self._blocks_out == self._lengths.size or self._samples.space < samples.size:
            self.overruns += 1
            self._lost += samples.size
            return False
        self._samples.write(samples)
        slot = self._blocks_in % self._lengths.size
        self._lengths[slot] = samples.size
        self._dropped[slot] = self._lost
        self._times[slot, 0] = arrival_s
        self._times[slot, 1] = age_s
        self._lost = 0
        self._blocks_in += 1
        return True

    def read(self) -> Block | None:
        """Consumer: the oldest block; None where there is none."""
        if self._blocks_in == self._blocks_out:
            return None
        slot = self._blocks_out % self._lengths.size
        samples = np.empty(int(self._lengths[slot]), dtype=np.float32)
        self._samples.read_into(samples)
        arrival_s, age_s = self._times[slot]
        block = Block(samples, float(arrival_s), float(age_s), int(self._dropped[slot]))
        self._blocks_out += 1
        return block


class Doorbell:
    """Wakes one waiting thread; rung twice before it is answered, it rings once. Ringing never waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Any thread, an audio callback too: one C call, no waiting."""
        with suppress(RuntimeError):  # already rung
            self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """True if it rang, before or while waiting."""
        return self._lock.acquire(timeout=max(0.0, timeout_s))
