from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame
from appliance.audio.framing import CaptureFramer, Gap
from appliance.audio.spsc import Block


def _feed(
    framer: CaptureFramer, sound: np.ndarray, rate_hz: int, size: int, start_s: float, *, dropped: int = 0
) -> tuple[list[Frame], list[Gap]]:
    """Push [n, channels] sound in blocks that arrive just when their last sample was captured."""
    frames, gaps = [], []
    for at in range(0, len(sound) - size + 1, size):
        block = Block(sound[at : at + size].reshape(-1), start_s + (at + size) / rate_hz, 0.0, dropped)
        dropped = 0
        got, lost = framer.push(block)
        frames += got
        gaps += lost
    return frames, gaps


@pytest.mark.parametrize(("rate_hz", "size"), [(16_000, 64), (48_000, 480), (44_100, 256)])
def test_a_click_is_found_at_the_time_it_was_made(rate_hz: int, size: int) -> None:
    framer = CaptureFramer()
    framer.open(rate_hz, 1)
    sound = np.zeros((rate_hz, 1), dtype=np.float32)
    click = rate_hz // 2
    sound[click] = 1.0
    frames, gaps = _feed(framer, sound, rate_hz, size, 100.0)
    assert gaps == []
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    loudest = max(frames, key=lambda frame: np.abs(frame.samples).max())
    at_s = loudest.time_s + int(np.abs(loudest.samples).argmax()) / 16_000
    assert at_s == pytest.approx(100.0 + click / rate_hz, abs=1 / 16_000)


def test_a_frame_is_handed_out_as_soon_as_it_is_whole() -> None:
    framer = CaptureFramer()
    framer.open(16_000, 1)
    frames, _ = framer.push(Block(np.zeros(160, dtype=np.float32), 5.0, 0.0, 0))
    assert len(frames) == 1
    assert frames[0].samples.shape == (FRAME_SAMPLES,)
    assert frames[0].samples.dtype == np.float32
    assert frames[0].end_s == pytest.approx(5.0)


def test_sound_lost_by_the_device_is_a_hole_in_the_numbers_and_in_the_times() -> None:
    framer = CaptureFramer()
    framer.open(16_000, 1)
    sound = np.ones((16_000 * 3, 1), dtype=np.float32)
    before, none = _feed(framer, sound, 16_000, 160, 10.0)
    after, gaps = _feed(framer, sound, 16_000, 160, 13.2)
    assert none == []
    assert [gap.cause for gap in gaps] == ["device"]
    assert gaps[0].lost_s == pytest.approx(0.2, abs=0.011)
    assert after[-1].seq - before[0].seq == pytest.approx(round((after[-1].time_s - before[0].time_s) / FRAME_S), abs=1)
    holes = np.diff([frame.seq for frame in (*before, *after)])
    assert sorted(holes)[-1] in {20, 21, 22}
    assert after[-1].end_s == pytest.approx(16.2, abs=0.001)


def test_blocks_that_we_dropped_are_a_gap_of_their_length() -> None:
    framer = CaptureFramer()
    framer.open(48_000, 2)
    sound = np.ones((48_000, 2), dtype=np.float32)
    _feed(framer, sound, 48_000, 480, 10.0)
    after, gaps = _feed(framer, sound, 48_000, 480, 11.1, dropped=4800 * 2)
    assert [gap.cause for gap in gaps] == ["overrun"]
    assert gaps[0].lost_s == pytest.approx(0.1, abs=0.012)
    assert after[-1].end_s == pytest.approx(12.1 - FRAME_S, abs=0.006)  # the filter holds on to the last 2 ms


def test_after_a_gap_no_sound_from_before_it_remains() -> None:
    framer = CaptureFramer()
    framer.open(48_000, 1)
    _feed(framer, np.ones((4800 + 100, 1), dtype=np.float32), 48_000, 100, 10.0)
    frames, _ = _feed(framer, np.zeros((4800, 1), dtype=np.float32), 48_000, 100, 11.0, dropped=44_000)
    assert frames
    assert not any(frame.samples.any() for frame in frames)


def test_another_stream_with_another_rate_goes_on_with_the_numbers() -> None:
    framer = CaptureFramer()
    framer.open(16_000, 1)
    first, _ = _feed(framer, np.zeros((16_000, 1), dtype=np.float32), 16_000, 160, 10.0)
    framer.open(48_000, 1)
    second, gaps = _feed(framer, np.zeros((48_000, 1), dtype=np.float32), 48_000, 480, 15.0)
    assert [gap.cause for gap in gaps] == ["lost"]
    assert second[0].seq - first[-1].seq == pytest.approx(400, abs=2)
    framer.close()
    framer.open(48_000, 1)
    _, gaps = _feed(framer, np.zeros((48_000, 1), dtype=np.float32), 48_000, 480, 20.0)
    assert [gap.cause for gap in gaps] == ["closed"]


@given(st.lists(st.floats(0.0, 0.3), min_size=5, max_size=200))
def test_times_and_numbers_only_ever_grow(late: list[float]) -> None:
    framer = CaptureFramer()
    framer.open(16_000, 1)
    frames: list[Frame] = []
    arrival_s = 0.0
    for number, late_s in enumerate(late):
        arrival_s = max(arrival_s, (number + 1) * 0.01 + late_s)
        frames += framer.push(Block(np.zeros(160, dtype=np.float32), arrival_s, 0.0, 0))[0]
    assert all(b.seq > a.seq and b.time_s > a.time_s for a, b in itertools.pairwise(frames))


def test_two_channels_are_averaged_of_more_the_first_is_heard_and_one_can_be_named() -> None:
    levels = np.array([0.1, 0.2, 0.4, 0.8], dtype=np.float32)
    for channels, channel, wanted in ((2, None, 0.15), (4, None, 0.1), (4, 2, 0.4), (2, 7, 0.2)):
        framer = CaptureFramer(channel)
        framer.open(16_000, channels)
        sound = np.broadcast_to(levels[:channels], (1600, channels))
        frames, _ = _feed(framer, np.ascontiguousarray(sound), 16_000, 160, 1.0)
        assert frames[3].samples == pytest.approx(np.full(FRAME_SAMPLES, wanted, dtype=np.float32))
