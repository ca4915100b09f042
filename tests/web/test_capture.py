"""A browser's microphone as frames: the sound, and when it was captured."""

from __future__ import annotations

import numpy as np
import pytest

from appliance.audio.frame import RATE_HZ, Frame
from appliance.web.capture import DRIFT_WINDOW_S, BrowserCapture
from appliance.web.messages import Encoding
from tests.web.client import f32le, s16le

BLOCK_S = 0.02


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def capture_all(
    capture: BrowserCapture, clock: FakeClock, blocks: list[bytes], delays_s: list[float], rate_hz: int = RATE_HZ
) -> list[Frame]:
    """Blocks captured one after the other from 100 s on, each arriving its delay after its last sample."""
    frames, end_s = [], 100.0
    for block, delay_s in zip(blocks, delays_s, strict=True):
        end_s += capture.seconds(block)
        clock.now_s = max(clock.now_s, end_s + delay_s)
        frames += capture.push(block)
    return frames


@pytest.mark.parametrize(("encoding", "encode"), [("s16le", s16le), ("f32le", f32le)])
@pytest.mark.parametrize("rate_hz", [16_000, 44_100, 48_000])
def test_a_tone_comes_out_at_16_khz_whatever_the_chunking(encoding: Encoding, encode: object, rate_hz: int) -> None:
    assert callable(encode)
    tone = (0.5 * np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz)).astype(np.float32)
    heard = []
    for block in (int(BLOCK_S * rate_hz), 128, 7):
        clock = FakeClock()
        capture = BrowserCapture(rate_hz, encoding, clock)
        pieces = [encode(tone[at : at + block]) for at in range(0, tone.size, block)]
        frames = capture_all(capture, clock, pieces, [0.0] * len(pieces), rate_hz)
        heard.append(np.concatenate([frame.samples for frame in frames]))
        assert [frame.seq for frame in frames] == list(range(len(frames)))
    shortest = min(map(len, heard))
    for sound in heard:
        np.testing.assert_allclose(sound[:shortest], heard[0][:shortest], atol=2e-4)
        expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(sound.size) / RATE_HZ)
        np.testing.assert_allclose(sound[1600:-1600], expected[1600:-1600], atol=5e-3)


def test_times_are_of_the_capture_not_of_the_arrival() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    delays_s = [0.3, *([0.01] * 30), 0.5, 0.4, 0.3, *([0.01] * 30)]
    frames = capture_all(capture, clock, [bytes(640)] * len(delays_s), delays_s)
    late = [frame.time_s - (100.0 + 0.01 * frame.seq) for frame in frames]
    # The first block came late and was taken for punctual; those that caught up showed that it was not.
    assert late[0] == pytest.approx(0.3, abs=1e-6)
    assert max(late[40:]) == pytest.approx(0.01, abs=1e-6)
    assert len(late) == 2 * len(delays_s)


def test_a_frame_is_never_of_the_future() -> None:
    clock = FakeClock()
    capture = BrowserCapture(48_000, "s16le", clock)
    for _ in range(500):
        clock.now_s += BLOCK_S * 0.999  # the browser's clock is fast
        for frame in capture.push(bytes(1920)):
            assert frame.end_s <= clock.now_s + 1e-6


def test_sound_that_is_missing_moves_what_follows() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    blocks = [bytes(640)] * 50
    capture_all(capture, clock, blocks, [0.0] * 50)
    clock.now_s += 2.0  # the page was asleep
    count = int(2.1 * DRIFT_WINDOW_S / BLOCK_S)
    for _ in range(count):
        clock.now_s += BLOCK_S
        frames = capture.push(bytes(640))
    assert frames[-1].end_s == pytest.approx(clock.now_s, abs=0.011)


def test_loud_floats_are_held_to_full_scale() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "f32le", clock)
    frames = capture.push(f32le(np.full(320, 1e30, np.float32)))
    assert max(float(np.abs(frame.samples).max()) for frame in frames) == 1.0
