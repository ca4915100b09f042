from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.adaptive import NETWORK, DepthController, DepthSettings
from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Samples
from appliance.audio.jitter import CONCEAL_SAMPLES, MOST_WAITING_S, JitterBuffer

PIECE = 320
PIECE_S = PIECE / RATE_HZ


def _voice(seconds: float, pitch_hz: float = 125.0) -> Samples:
    at = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    sound = sum(np.sin(2 * np.pi * pitch_hz * k * at) / k for k in range(1, 6))
    return (0.2 * np.asarray(sound)).astype(np.float32)


def _buffer(**options: bool) -> JitterBuffer:
    return JitterBuffer(DepthController(NETWORK), **options)


def _played(buffer: JitterBuffer, pieces: list[tuple[float, int, Samples]], until_s: float) -> Samples:
    """Pull every 10 ms what comes at those times, in that order."""
    out, waiting = [], list(pieces)
    for now_s in np.arange(0.0, until_s, FRAME_S):
        while waiting and waiting[0][0] <= now_s:
            came_s, at, samples = waiting.pop(0)
            buffer.put(at, samples, came_s)
        out.append(buffer.pull(float(now_s)))
        assert out[-1].shape == (FRAME_SAMPLES,)
    return np.concatenate(out)


def _cut(sound: Samples) -> list[tuple[int, Samples]]:
    return [(at, sound[at : at + PIECE]) for at in range(0, sound.size, PIECE)]


# ---- in time


def test_a_clean_link_is_played_as_it_was_spoken_once_it_is_deep_enough() -> None:
    sound = _voice(1.0)
    buffer = _buffer(stretch=False)
    out = _played(buffer, [(at / RATE_HZ, at, piece) for at, piece in _cut(sound)], 1.05)
    start = round(NETWORK.first_s * RATE_HZ)
    assert not out[:start].any()
    # Behind the 5 ms in which it is faded in.
    assert np.array_equal(out[start + 80 : start + 12_000], sound[80:12_000])
    assert buffer.stats().underruns == 0


def test_on_a_clean_link_the_wait_shrinks_to_next_to_nothing() -> None:
    sound = _voice(20.0)
    buffer = _buffer()
    _played(buffer, [(at / RATE_HZ, at, piece) for at, piece in _cut(sound)], 19.9)
    wait_s = 19.9 - buffer.played / RATE_HZ
    assert wait_s < 0.045
    assert buffer.stats().shortened > 0
    assert buffer.stats().underruns == 0


def test_pieces_out_of_order_are_put_in_order_and_doubles_are_left_out() -> None:
    sound = _voice(0.6)
    pieces = [(at / RATE_HZ, at, piece) for at, piece in _cut(sound)]
    pieces[4] = (pieces[5][0] + 0.004, *pieces[4][1:])
    pieces.append((pieces[8][0] + 0.001, pieces[8][1], pieces[8][2]))
    buffer = _buffer(stretch=False)
    out = _played(buffer, sorted(pieces, key=lambda piece: piece[0]), 0.6)
    start = round(NETWORK.first_s * RATE_HZ)
    assert np.array_equal(out[start + 80 : start + 7000], sound[80:7000])


def test_a_piece_that_never_comes_is_made_up_for_in_its_place() -> None:
    sound = _voice(0.8)
    pieces = [(at / RATE_HZ, at, piece) for at, piece in _cut(sound) if at != 10 * PIECE]
    buffer = _buffer(stretch=False)
    out = _played(buffer, pieces, 0.8)
    start = round(NETWORK.first_s * RATE_HZ)
    heard = out[start : start + 9000]
    assert np.array_equal(heard[80 : 10 * PIECE], sound[80 : 10 * PIECE])
    assert np.array_equal(heard[11 * PIECE + 80 :], sound[11 * PIECE + 80 : 9000])
    assert float(np.mean((heard - sound[:9000])[10 * PIECE : 11 * PIECE] ** 2)) < 0.05 * float(np.mean(sound**2))
    assert buffer.stats().missing == PIECE


def test_a_stall_pauses_softly_loses_nothing_and_is_remembered() -> None:
    sound = _voice(3.0)
    pieces = [(at / RATE_HZ + (0.15 if 0.8 <= at / RATE_HZ < 0.95 else 0.0), at, piece) for at, piece in _cut(sound)]
    pieces = [(max(came, 0.95) if 0.8 <= at / RATE_HZ < 0.95 else came, at, piece) for came, at, piece in pieces]
    buffer = _buffer()
    out = _played(buffer, sorted(pieces, key=lambda piece: piece[:2]), 2.9)
    stats = buffer.stats()
    assert stats.underruns == 1
    assert (stats.missing, stats.late) == (0, 0)
    assert stats.depth_s > 0.12
    assert np.abs(np.diff(out)).max() < 2.0 * np.abs(np.diff(sound)).max()


def test_a_fixed_buffer_that_drops_stays_in_time_and_throws_late_sound_away() -> None:
    depth = DepthController(DepthSettings(first_s=0.06, least_s=0.06, most_s=0.06))
    buffer = JitterBuffer(depth, stretch=False, hold=False)
    pieces = [(at / RATE_HZ + (0.1 if at == 30 * PIECE else 0.0), at, piece) for at, piece in _cut(_voice(2.0))]
    _played(buffer, sorted(pieces, key=lambda piece: piece[:2]), 1.9)
    assert 1.9 - buffer.played / RATE_HZ == pytest.approx(0.06, abs=0.011)
    assert buffer.stats().late + buffer.stats().missing > 0


@pytest.mark.parametrize("drift", [-400e-6, 400e-6])
def test_a_clock_that_runs_away_is_followed_by_stretching(drift: float) -> None:
    seconds = 240.0
    sound = np.tile(_voice(1.0), int(seconds))
    random = np.random.default_rng(2)
    pieces = [(at / RATE_HZ * (1 + drift) + random.uniform(0, 0.01), at, piece) for at, piece in _cut(sound)]
    buffer = _buffer()
    _played(buffer, pieces, seconds * (1 - 1e-3))
    stats = buffer.stats()
    # 96 ms in all: without correction they would be waited longer, or have run out.
    wait_s = seconds * (1 - 1e-3) / (1 + drift) - buffer.played / RATE_HZ
    assert wait_s < 0.06
    assert stats.underruns <= 1
    made = stats.lengthened - stats.shortened
    assert made / RATE_HZ == pytest.approx(drift * seconds, abs=0.08)


def test_what_waits_is_bounded_and_what_is_let_go_is_counted() -> None:
    buffer = _buffer()
    for at, piece in _cut(_voice(5.0)):
        buffer.put(at, piece, 1.0)
    assert buffer.stats().late == pytest.approx((5.0 - MOST_WAITING_S) * RATE_HZ, abs=PIECE)
    heard = sum(run.samples.size for run in buffer.drain(1.0))
    assert heard == pytest.approx(MOST_WAITING_S * RATE_HZ, abs=CONCEAL_SAMPLES + PIECE)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2000, 60_000), st.integers(0, 900), st.floats(0, 0.1)), max_size=40),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_no_order_of_anything_breaks_it(
    pieces: list[tuple[int, int, float]], ordered: bool, stretch: bool, pulls: bool
) -> None:
    buffer = JitterBuffer(DepthController(NETWORK), ordered=ordered, stretch=stretch)
    now_s, given_out = 0.0, 0
    for at, size, step_s in pieces:
        now_s += step_s
        buffer.put(at, np.ones(size, np.float32), now_s)
        if pulls:
            frame = buffer.pull(now_s)
            assert frame.shape == (FRAME_SAMPLES,)
            assert np.abs(frame).max() <= 1.0
        else:
            for run in buffer.drain(now_s):
                assert run.skipped % FRAME_SAMPLES == 0
                given_out += run.samples.size
    assert given_out <= sum(size for _, size, _ in pieces) + len(pieces) * (CONCEAL_SAMPLES + FRAME_SAMPLES)


# ---- as it comes


def test_a_listener_gets_what_is_there_at_once_however_late_it_was() -> None:
    sound = _voice(0.5)
    buffer = _buffer(ordered=True)
    out: list[Samples] = []
    for at, piece in _cut(sound):
        now_s = at / RATE_HZ + (0.3 if at > 5000 else 0.0)
        buffer.put(at, piece, now_s)
        runs = buffer.drain(now_s)
        assert [run.skipped for run in runs] == [0]
        out.append(runs[0].samples)
    assert np.array_equal(np.concatenate(out), sound)
    assert buffer.stats().concealed == 0


def test_a_listener_hears_a_short_hole_made_up_for_and_a_long_one_as_a_hole() -> None:
    sound = _voice(1.0)
    for hole in (200, CONCEAL_SAMPLES, 5000):
        buffer = _buffer(ordered=True)
        buffer.put(0, sound[:3200], 0.2)
        buffer.drain(0.2)
        buffer.put(3200 + hole, sound[3200 + hole : 3200 + hole + PIECE], 1.0)
        runs = buffer.drain(1.0)
        skipped = sum(run.skipped for run in runs)
        assert skipped + sum(run.samples.size for run in runs) == hole + PIECE
        assert skipped == (0 if hole <= CONCEAL_SAMPLES else (5000 - CONCEAL_SAMPLES) // FRAME_SAMPLES * FRAME_SAMPLES)
        assert buffer.stats().missing == hole


def test_where_the_link_may_yet_fill_a_hole_it_is_waited_for_as_deep_as_it_is_late() -> None:
    sound = _voice(0.5)
    buffer = _buffer()
    buffer.put(0, sound[:PIECE], 0.0)
    buffer.drain(0.0)
    buffer.put(2 * PIECE, sound[2 * PIECE : 3 * PIECE], 0.04)
    assert buffer.drain(0.04) == []
    buffer.put(PIECE, sound[PIECE : 2 * PIECE], 0.05)
    (run,) = buffer.drain(0.05)
    assert np.array_equal(run.samples, sound[PIECE : 3 * PIECE])
    buffer.put(4 * PIECE, sound[4 * PIECE : 5 * PIECE], 0.1)
    assert buffer.drain(0.1) == []
    (run,) = buffer.drain(0.1 + NETWORK.first_s)
    assert run.samples.size == 2 * PIECE
    buffer.put(3 * PIECE, sound[3 * PIECE : 4 * PIECE], 0.2)
    assert buffer.stats().late == PIECE


# ---- beside fixed buffers


def _bench() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "jitter_bench.py"
    spec = importlib.util.spec_from_file_location("jitter_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("link", ["uniform", "bursty", "drifting"])
def test_the_controller_runs_dry_no_more_and_waits_less_than_fixed_buffers(link: str) -> None:
    outcomes = _bench().compare(link, minutes=2.5, seeds=[6], drops_only=True)
    ours = outcomes.pop("controller")
    assert ours.lost_ms == 0
    assert len(outcomes) == 3
    for theirs in outcomes.values():
        # Where theirs never runs dry ours does not either: less is not possible.
        assert ours.underruns < theirs.underruns or ours.underruns == theirs.underruns == 0
        assert ours.delay_ms < theirs.delay_ms
