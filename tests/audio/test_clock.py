"""The gap finder and the capture times, on simulated drivers: jitter, drift, lost sound, senseless stamps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.clock import StreamClock

BLOCKS = st.sampled_from([(64, 16_000), (256, 16_000), (480, 16_000), (480, 48_000), (441, 44_100)])
DRIFT = st.floats(-200e-6, 200e-6)
Stamp = Callable[[float, float], float]


def _no_stamp(_captured_s: float, _arrival_s: float) -> float:
    return 0.0


def _drive(
    clock: StreamClock,
    block: int,
    rate_hz: int,
    seconds: float,
    *,
    jitter_s: float = 0.0,
    drift: float = 0.0,
    gaps: dict[float, float] | None = None,
    stalls: dict[float, float] | None = None,
    stamp: Stamp = _no_stamp,
    seed: int = 0,
) -> tuple[list[tuple[float, float]], list[float]]:
    """Push blocks; returns (time, lost) of what was found, and the errors of the times given after 3 s.

    `gaps` lose sound; `stalls` only hold it back: the driver then delivers all at once.
    """
    rng = np.random.default_rng(seed)
    to_lose, to_hold = sorted((gaps or {}).items()), sorted((stalls or {}).items())
    found, errors = [], []
    lost_s = arrival_s = 0.0
    for number in range(int(seconds * rate_hz / block)):
        sound_s = number * block / rate_hz
        while to_lose and to_lose[0][0] <= sound_s:
            lost_s += to_lose.pop(0)[1]
        captured_s = 1000.0 + sound_s * (1.0 + drift) + lost_s
        due_s = captured_s + block / rate_hz + rng.uniform(0.0, jitter_s)
        if to_hold and to_hold[0][0] <= sound_s:
            due_s += to_hold.pop(0)[1]
        arrival_s = max(arrival_s, due_s)  # blocks do not overtake each other
        at = clock.samples
        lost = clock.push(block, arrival_s, stamp(captured_s, arrival_s))
        if lost:
            found.append((sound_s, lost))
        if sound_s > 3.0:
            errors.append(clock.time_of(at) - captured_s)
    return found, errors


@settings(max_examples=25, deadline=None)
@given(BLOCKS, DRIFT, st.floats(0.0, 0.06), st.integers(0, 10_000))
def test_jitter_and_drift_are_never_taken_for_lost_sound(
    block: tuple[int, int], drift: float, jitter_s: float, seed: int
) -> None:
    found, _ = _drive(StreamClock(block[1]), *block, 40.0, jitter_s=jitter_s, drift=drift, seed=seed)
    assert found == []


@settings(max_examples=25, deadline=None)
@given(
    BLOCKS,
    DRIFT,
    st.floats(0.0, 0.06),
    st.lists(st.floats(0.03, 0.4), min_size=1, max_size=4),
    st.integers(0, 10_000),
)
def test_every_loss_of_30_ms_or_more_is_found_soon_and_measured(
    block: tuple[int, int], drift: float, jitter_s: float, losses: list[float], seed: int
) -> None:
    gaps = {4.0 + 6.0 * i: lost_s for i, lost_s in enumerate(losses)}
    found, _ = _drive(StreamClock(block[1]), *block, 30.0, jitter_s=jitter_s, drift=drift, gaps=gaps, seed=seed)
    assert len(found) == len(gaps)
    for (at_s, measured_s), (wanted_at_s, wanted_s) in zip(found, gaps.items(), strict=True):
        assert wanted_at_s <= at_s <= wanted_at_s + 1.7
        assert measured_s == pytest.approx(wanted_s, abs=0.25 * jitter_s + 0.008)


def test_on_a_calm_stream_a_loss_is_found_within_a_third_of_a_second() -> None:
    found, _ = _drive(StreamClock(16_000), 256, 16_000, 30.0, jitter_s=0.004, gaps={20.0: 0.048})
    assert len(found) == 1
    assert found[0][0] < 20.4
    assert found[0][1] == pytest.approx(0.048, abs=0.004)


@pytest.mark.parametrize("stall_s", [0.1, 0.4, 1.2])
def test_a_stall_after_which_everything_arrives_is_no_loss(stall_s: float) -> None:
    found, _ = _drive(StreamClock(16_000), 256, 16_000, 40.0, jitter_s=0.004, stalls={15.0: stall_s, 25.0: stall_s})
    assert found == []


def test_capture_times_follow_the_device_however_late_its_blocks_come() -> None:
    _, errors = _drive(StreamClock(48_000), 480, 48_000, 60.0, jitter_s=0.02, drift=100e-6)
    assert max(map(abs, errors)) < 0.006


def test_sane_stamps_give_better_times_than_arrivals() -> None:
    clock = StreamClock(16_000)

    def stamp(captured_s: float, arrival_s: float) -> float:
        return arrival_s - captured_s

    found, errors = _drive(clock, 480, 16_000, 20.0, jitter_s=0.05, gaps={15.0: 0.05}, stamp=stamp)
    assert clock.trusts_driver
    assert len(found) == 1
    assert max(map(abs, errors[240:360])) < 0.001


@pytest.mark.parametrize("nonsense", [0.0, -0.2, 50_000.0, float("nan")])
def test_one_senseless_stamp_and_the_arrivals_are_used_again(nonsense: float) -> None:
    clock = StreamClock(16_000)
    calls = 0

    def stamp(captured_s: float, arrival_s: float) -> float:
        nonlocal calls
        calls += 1
        return nonsense if calls == 700 else arrival_s - captured_s

    found, errors = _drive(clock, 256, 16_000, 30.0, jitter_s=0.02, gaps={25.0: 0.1}, stamp=stamp)
    assert not clock.trusts_driver
    assert len(found) == 1
    assert max(map(abs, errors[:1000])) < 0.02


def test_stamps_that_only_repeat_the_arrival_are_not_believed() -> None:
    clock = StreamClock(16_000)
    found, _ = _drive(clock, 480, 16_000, 40.0, jitter_s=0.06, stamp=lambda _captured, _arrival: 0.031)
    assert not clock.trusts_driver
    assert found == []


def test_sound_that_we_dropped_ourselves_is_counted_and_not_found_again() -> None:
    clock = StreamClock(16_000)
    for number in range(1000):
        if 500 <= number < 520:
            continue
        dropped = 20 * 256 if number == 520 else 0
        assert clock.push(256, 10.0 + (number + 1) * 0.016, 0.0, dropped) == 0.0
    assert clock.samples == 1000 * 256
    assert clock.time_of(clock.samples) == pytest.approx(10.0 + 1000 * 0.016, abs=0.001)
