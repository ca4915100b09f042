from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, Frame, Framer, level_dbfs
from appliance.audio.ring import PreRoll


def _sound(length: int) -> np.ndarray:
    return np.arange(length, dtype=np.float32) / 4096


def _frames(sound: np.ndarray, cuts: list[int]) -> list[Frame]:
    framer = Framer(start_s=2.0)
    frames: list[Frame] = []
    at = 0
    for cut in cuts:
        frames += framer.push(sound[at : at + cut])
        at += cut
    return frames + framer.push(sound[at:]) + framer.flush()


@given(st.integers(0, 2000), st.lists(st.integers(0, 700), max_size=12))
def test_any_chunking_gives_the_same_frames_and_loses_no_sample(length: int, cuts: list[int]) -> None:
    sound = _sound(length)
    whole, cut = _frames(sound, []), _frames(sound, cuts)
    assert [f.time_s for f in whole] == [f.time_s for f in cut]
    assert [f.seq for f in cut] == list(range(len(cut)))
    joined = np.concatenate([f.samples for f in cut]) if cut else np.empty(0, np.float32)
    assert np.array_equal(joined[:length], sound)
    assert not joined[length:].any()
    assert joined.size - length < FRAME_SAMPLES


def test_a_frame_carries_the_time_of_its_first_sample() -> None:
    frames = Framer(start_s=5.0).push(_sound(480))
    assert [f.time_s for f in frames] == pytest.approx([5.0, 5.01, 5.02])
    assert frames[0].end_s == pytest.approx(5.0 + FRAME_S)


def test_reset_starts_counting_anew() -> None:
    framer = Framer()
    framer.push(_sound(250))
    framer.reset(9.0)
    assert framer.flush() == []
    assert framer.push(_sound(160))[0].time_s == 9.0


def test_level_of_full_scale_square_and_of_silence() -> None:
    assert level_dbfs(np.ones(160, np.float32)) == pytest.approx(0.0, abs=1e-6)
    assert level_dbfs(np.zeros(160, np.float32)) == pytest.approx(-120.0)
    assert level_dbfs(np.empty(0, np.float32)) == -120.0


def test_pre_roll_keeps_the_newest_frames_only() -> None:
    ring = PreRoll(0.05)
    frames = Framer().push(_sound(160 * 8))
    for frame in frames:
        ring.push(frame)
    assert [f.seq for f in ring.last(1.0)] == [3, 4, 5, 6, 7]
    assert [f.seq for f in ring.last(0.02)] == [6, 7]
    assert [f.seq for f in ring.since(frames[5].time_s)] == [5, 6, 7]
    ring.clear()
    assert ring.last(1.0) == []
