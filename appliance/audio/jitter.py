"""Sound from a network: pieces that come late, in bursts, out of order or not at all, made into one stream again.

Two ways to take it. Who plays it asks for it in time (`pull`): then it is kept waiting as deep as the controller says,
made a little longer or shorter as depth and clocks drift apart, and made up for where it does not come. Who only
listens to it takes it as it comes (`drain`): nothing that is there waits, for a recogniser does not mind a pause, but
each wait would lengthen the response; only what is really missing is made up for.

Wren itself only listens so far (a page's microphone); `pull` is for sound that is to be played, and is measured by
benchmarks/jitter_bench.py.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

import numpy as np

from appliance.audio.adaptive import DepthController
from appliance.audio.clock import Envelope
from appliance.audio.conceal import LEAST_STRETCH_SAMPLES, MOST_LAG, Concealer, lengthened, shortened
from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Samples

__all__ = ["CONCEAL_SAMPLES", "JitterBuffer", "JitterStats", "Run"]

CONCEAL_SAMPLES: Final = 6 * FRAME_SAMPLES
"""Made up for at most, where a listener takes what comes: a longer hole is told as one. The detectors that listen
begin anew at a hole, so a short one costs more than it is worth."""
STRETCH_SAMPLES: Final = 3 * FRAME_SAMPLES
"""Worked on at a time; three times as long as the period that is added or left out, at most."""
STRETCH_EVERY: Final = 8
"""Frames between two stretches: 8 % faster or slower at most, which nobody hears as haste."""
SLACK_S: Final = MOST_LAG / RATE_HZ
"""Depth too much that is let be: with a period less it would be too little."""
MOST_WAITING_S: Final = 2.0
"""Beyond it the oldest is let go: sound that old is of no use to anybody."""


@dataclass(frozen=True, slots=True)
class JitterStats:
    """What came of a stream so far; samples at 16 kHz."""

    late: int
    """Came after they had been made up for, or too many of them waited: thrown away."""
    missing: int
    """Never came."""
    concealed: int
    """Made up: for what is missing, and for what was late."""
    lengthened: int
    shortened: int
    underruns: int
    """Times that there was nothing to play."""
    depth_s: float
    """As the controller has it."""


@dataclass(frozen=True, slots=True)
class Run:
    """Sound without a hole in it, and the hole before it."""

    skipped: int
    """Samples that are missing before it and were not made up for: a multiple of 160."""
    samples: Samples


class JitterBuffer:
    """One stream at 16 kHz. No clock, no threads: times are told.

    `ordered` says that the link keeps the order (TCP): what is missing when later sound is there never comes.
    `stretch` and `hold` are for comparison: without `hold` what is late is not waited for, and thrown away when it
    comes.
    """

    def __init__(
        self, depth: DepthController, *, ordered: bool = False, stretch: bool = True, hold: bool = True
    ) -> None:
        self._depth = depth
        self._ordered, self._stretch, self._hold = ordered, stretch, hold
        self._concealer = Concealer()
        self._arrivals = Envelope()
        self._starts: list[int] = []
        self._pieces: list[Samples] = []
        self._came_s: list[float] = []
        self._next: int | None = None
        """Index of the sample that is handed out next."""
        self._ready: Samples = np.empty(0, dtype=np.float32)
        self._begun = False
        self._starved = True
        self._since_stretch = 0
        self._late = self._missing = self._concealed = self._lengthened = self._shortened = self._underruns = 0

    @property
    def base_s(self) -> float:
        """The time at which sample 0 came, or would have come had nothing been late; follows the sender's clock."""
        return self._arrivals.base_s

    @property
    def played(self) -> int:
        """Index of the sample that is handed out next, less what is stretched already and waits."""
        return 0 if self._next is None else self._next - self._ready.size

    def stats(self) -> JitterStats:
        """Counts since it was made."""
        return JitterStats(
            late=self._late,
            missing=self._missing,
            concealed=self._concealed,
            lengthened=self._lengthened,
            shortened=self._shortened,
            underruns=self._underruns,
            depth_s=self._depth.target_s,
        )

    def put(self, at: int, samples: Samples, now_s: float) -> None:
        """A piece came: [n] float32, `at` the index of its first sample at the sender (counted from anywhere)."""
        if not samples.size:
            return
        offset_s = now_s - at / RATE_HZ
        self._arrivals.push(now_s, offset_s)
        self._depth.observe(now_s, offset_s - self._arrivals.base_s)
        if self._next is None:
            self._next = at
        self._store(at, samples, now_s)
        while sum(piece.size for piece in self._pieces) > MOST_WAITING_S * RATE_HZ:
            self._next = self._starts[0]
            self._late += self._take(self._pieces[0].size).size

    def pull(self, now_s: float) -> Samples:
        """The next frame to play, [160] float32; ask every 10 ms."""
        self._since_stretch += 1
        while self._ready.size < FRAME_SAMPLES:
            self._ready = np.concatenate((self._ready, self._more(now_s)))
        frame, self._ready = self._ready[:FRAME_SAMPLES], self._ready[FRAME_SAMPLES:]
        return frame

    def drain(self, now_s: float) -> list[Run]:
        """All that can be heard now. A hole is waited for as long as the depth, where the link may yet fill it."""
        runs: list[Run] = []
        while self._starts and self._next is not None:
            hole = self._starts[0] - self._next
            if hole and not self._ordered and now_s - self._came_s[0] < self._depth.target_s:
                break
            skipped = max(0, hole - CONCEAL_SAMPLES) // FRAME_SAMPLES * FRAME_SAMPLES
            parts = [self._conceal(hole - skipped)] if hole else []
            self._missing += hole
            self._next += hole
            parts.append(self._concealer.heard(self._take(self._available())))
            if skipped:
                # What is made up belongs before the hole: it goes on from what was heard.
                runs += [Run(0, parts.pop(0)), Run(skipped, parts.pop())]
            else:
                runs.append(Run(0, np.concatenate(parts) if len(parts) > 1 else parts[0]))
        return runs

    # ---- what waits

    def _store(self, at: int, samples: Samples, now_s: float) -> None:
        """Keep what is neither played nor there already."""
        assert self._next is not None
        behind = min(max(0, self._next - at), samples.size)
        self._late += behind
        at, samples = at + behind, samples[behind:]
        place = bisect_left(self._starts, at)
        if place and samples.size:
            double = min(max(0, self._starts[place - 1] + self._pieces[place - 1].size - at), samples.size)
            at, samples = at + double, samples[double:]
        if place < len(self._starts):
            samples = samples[: max(0, self._starts[place] - at)]
        if samples.size:
            self._starts.insert(place, at)
            self._pieces.insert(place, samples)
            self._came_s.insert(place, now_s)

    def _available(self) -> int:
        """Samples that are there from the next one on without a hole."""
        end = self._next
        for start, piece in zip(self._starts, self._pieces, strict=True):
            if start != end:
                break
            end = start + piece.size
        return 0 if end is None or self._next is None else end - self._next

    def _take(self, count: int) -> Samples:
        """Samples that are there, handed out."""
        assert self._next is not None
        parts: list[Samples] = []
        self._next += count
        while count:
            piece = self._pieces[0]
            parts.append(piece[:count])
            count -= parts[-1].size
            if parts[-1].size == piece.size:
                del self._starts[0], self._pieces[0], self._came_s[0]
            else:
                self._starts[0] += parts[-1].size
                self._pieces[0] = piece[parts[-1].size :]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    # ---- what is played

    def _more(self, now_s: float) -> Samples:
        """Some samples, in time."""
        if self._next is None:
            return self._conceal(FRAME_SAMPLES)
        delay_s = now_s - self.base_s - self._next / RATE_HZ
        there = self._available()
        waits = (self._hold or not self._begun) and delay_s < self._depth.target_s
        if self._starved and (not there or waits):
            # As a pause: what comes next is played when it is as deep as it should be.
            return self._absent(there)
        if there:
            if self._starved and self._begun:
                # Now it is known how deep it would have had to be.
                self._depth.underrun(now_s, delay_s - self._depth.target_s)
            self._begun, self._starved = True, False
            return self._present(there, delay_s - self._depth.target_s)
        if self._starts:
            # Later sound is there already: this is missing, and waiting would not bring it.
            hole = min(self._starts[0] - self._next, FRAME_SAMPLES)
            self._next += hole
            self._missing += hole
            return self._conceal(hole)
        self._starved = True
        self._underruns += 1
        return self._absent(there)

    def _absent(self, there: int) -> Samples:
        if self._begun and not self._hold and not there and self._next is not None:
            self._next += FRAME_SAMPLES
        return self._conceal(FRAME_SAMPLES)

    def _present(self, there: int, too_deep_s: float) -> Samples:
        """What is there; longer where it should wait more, shorter where less."""
        if (
            self._stretch
            and self._since_stretch >= STRETCH_EVERY
            and there >= LEAST_STRETCH_SAMPLES
            and not 0.0 <= too_deep_s <= SLACK_S
        ):
            piece = self._take(min(there, STRETCH_SAMPLES))
            made = shortened(piece) if too_deep_s > 0.0 else lengthened(piece)
            if made.size != piece.size:
                self._since_stretch = 0
            self._lengthened += max(0, made.size - piece.size)
            self._shortened += max(0, piece.size - made.size)
            return self._concealer.heard(made)
        return self._concealer.heard(self._take(min(there, FRAME_SAMPLES)))

    def _conceal(self, count: int) -> Samples:
        self._concealed += count
        return self._concealer.missing(count)
