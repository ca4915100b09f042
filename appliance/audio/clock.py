"""When was a sample captured, and was sound lost? Both are read off the clock: drivers report neither (measured).

Blocks arrive late by a jitter that is never negative, so the earliest arrivals of late show the true line of
time over samples (its lower envelope). Lost sound lifts that line for good; jitter, however large, comes back to it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GAP_S", "Envelope", "StreamClock"]

GAP_S: Final = 0.022
"""A lasting shift above this is lost sound: below the 30 ms that must be found, above what the envelope wanders."""
HOLD_S: Final = 1.5
"""How long a shift must last on a jittery stream: with 60 ms of jitter and 30 ms blocks chance stays below 1e-9."""
CALM_HOLD_S: Final = 0.3
"""The same on a calm one: longer than a stall of the machine that loses nothing."""
MIN_BLOCKS: Final = 4
CALM_S: Final = GAP_S / 2
JITTER_MEMORY_S: Final = 10.0
"""A stream younger than this is not known to be calm."""
TRIAL_S: Final = 5.0
"""The driver's stamps are believed after this long, if they were sane and steadier than the arrivals."""
MAX_DRIFT: Final = 500e-6
"""Sound card against monotonic clock: crystals are within 100 ppm, a poor one within some hundred."""
BUCKET_S: Final = 1.0
MAX_AGE_S: Final = 1.0
"""An older first sample than this is a driver's nonsense: no buffer of ours is that deep."""


class Envelope:
    """Follows the lower envelope of (time - samples / rate), and finds lasting shifts of it. No clock of its own."""

    def __init__(self) -> None:
        self._base_s: float | None = None
        self._jitter_s = 0.0
        self._began_s = 0.0
        self._last_s = 0.0
        self._bucket_end_s = 0.0
        self._bucket_min_s = 0.0
        self._high_since_s = 0.0
        self._late_min_s = 0.0
        self._high_max_s = 0.0
        self._high_blocks = 0

    @property
    def base_s(self) -> float:
        """The envelope now: the time of sample 0, had it come without jitter. 0 before the first observation."""
        return 0.0 if self._base_s is None else self._base_s

    @property
    def jitter_s(self) -> float:
        """Largest lateness of the last ten seconds or so."""
        return self._jitter_s

    def push(self, at_s: float, offset_s: float) -> float:
        """One block, arrived at `at_s`, whose time less its place is `offset_s`; returns the seconds found lost."""
        if self._base_s is None:
            self._base_s = offset_s
            self._began_s = self._last_s = at_s
            self._new_bucket(at_s, offset_s)
            return 0.0
        excess_s = offset_s - self._base_s
        if excess_s > GAP_S:
            return self._high(at_s, offset_s)
        if self._high_blocks:
            # It came back: that was jitter.
            self._jitter_s = max(self._jitter_s, self._high_max_s - self._base_s)
            self._high_blocks = 0
        self._jitter_s = max(self._jitter_s * (1.0 - min(1.0, (at_s - self._last_s) / JITTER_MEMORY_S)), excess_s)
        self._last_s = at_s
        self._base_s = min(self._base_s, offset_s)
        self._bucket_min_s = min(self._bucket_min_s, offset_s)
        if at_s >= self._bucket_end_s:
            climb_s = self._bucket_min_s - self._base_s
            self._base_s += min(max(climb_s, 0.0), MAX_DRIFT * (BUCKET_S + at_s - self._bucket_end_s))
            self._new_bucket(at_s, offset_s)
        return 0.0

    def _high(self, at_s: float, offset_s: float) -> float:
        assert self._base_s is not None
        if not self._high_blocks:
            self._high_since_s = at_s
            self._high_max_s = self._late_min_s = offset_s
        calm = self._jitter_s < CALM_S and self._high_since_s - self._began_s > JITTER_MEMORY_S
        hold_s = CALM_HOLD_S if calm else HOLD_S
        self._high_blocks += 1
        self._high_max_s = max(self._high_max_s, offset_s)
        if at_s - self._high_since_s < hold_s / 2:
            # Blocks that were only late may have begun the run; its later half lies after the gap, if there is one.
            self._late_min_s = offset_s
        self._late_min_s = min(self._late_min_s, offset_s)
        if self._high_blocks < MIN_BLOCKS or at_s - self._high_since_s < hold_s:
            return 0.0
        lost_s = self._late_min_s - self._base_s
        self._base_s = self._late_min_s
        self._high_blocks = 0
        self._last_s = at_s
        self._new_bucket(at_s, offset_s)
        return lost_s

    def _new_bucket(self, at_s: float, offset_s: float) -> None:
        self._bucket_end_s = at_s + BUCKET_S
        self._bucket_min_s = offset_s


class StreamClock:
    """Capture times of one stream, and the sound it lost."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._arrivals = Envelope()
        self._stamps = Envelope()
        self._used = self._arrivals
        self._stamps_sane = True
        self._trial_end_s: float | None = None
        self._samples = 0

    @property
    def samples(self) -> int:
        """Samples per channel so far, those known to be dropped included."""
        return self._samples

    @property
    def jitter_s(self) -> float:
        """Largest lateness of late, of the estimate in use."""
        return self._used.jitter_s

    @property
    def trusts_driver(self) -> bool:
        """Whether times come from the driver's stamps; else from the arrival of the blocks."""
        return self._used is self._stamps

    def push(self, samples: int, arrival_s: float, age_s: float, dropped: int = 0) -> float:
        """A block of so many samples per channel came; returns the seconds that the device lost before it.

        `age_s` is how long before the arrival its first sample was captured, as the driver says (0: it does not).
        `dropped` samples came before it and were thrown away by us: known, so not counted as lost by the device.
        """
        self._samples += dropped
        length_s = samples / self._rate_hz
        place_s = self._samples / self._rate_hz
        used = self._used
        lost_s = self._arrivals.push(arrival_s, arrival_s - length_s - place_s)
        if not 0.0 < age_s <= MAX_AGE_S:
            # One senseless stamp and the stream's stamps are done with: some drivers give 0 at times.
            self._stamps_sane = False
        if self._stamps_sane:
            # A first sample younger than its block is long cannot be; some drivers count only the next period.
            by_stamp_s = self._stamps.push(arrival_s, arrival_s - max(age_s, length_s) - place_s)
            lost_s = by_stamp_s if used is self._stamps else lost_s
        self._samples += samples
        self._choose(arrival_s)
        return lost_s

    def time_of(self, sample: float) -> float:
        """Monotonic time at which a recent sample (per channel, from the stream's start) was captured."""
        return self._used.base_s + sample / self._rate_hz

    def _choose(self, now_s: float) -> None:
        if self._trial_end_s is None:
            self._trial_end_s = now_s + TRIAL_S
        if not self._stamps_sane:
            self._used = self._arrivals
        elif self._used is self._arrivals and now_s >= self._trial_end_s:
            # Asked again after each trial only: going back and forth would make times jump.
            self._trial_end_s = now_s + TRIAL_S
            if 2.0 * self._stamps.jitter_s < self._arrivals.jitter_s:
                self._used = self._stamps
