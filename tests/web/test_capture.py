"""A browser's microphone as frames: the sound, and when it was captured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from appliance.audio.frame import RATE_HZ, Frame
from appliance.web.capture import BrowserCapture
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
    for _ in range(100):
        clock.now_s += BLOCK_S
        frames = capture.push(bytes(640))
    assert frames[-1].end_s == pytest.approx(clock.now_s, abs=0.011)
    assert capture.stats().lost_s == pytest.approx(2.0, abs=0.011)


def _tone(seconds: float) -> bytes:
    return s16le((0.5 * np.sin(2 * np.pi * 125 * np.arange(round(seconds * RATE_HZ)) / RATE_HZ)).astype(np.float32))


def test_on_a_clean_link_no_sample_waits() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    for number in range(1, 200):
        clock.now_s += BLOCK_S
        frames = capture.push(bytes(640))
        assert frames[-1].seq == 2 * number - 1
        assert frames[-1].end_s == pytest.approx(clock.now_s)


def test_what_comes_late_is_heard_as_soon_as_it_is_there_and_nothing_is_made_up() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    sound = _tone(2.0)
    delays_s = [0.0] * 40 + [0.8 - BLOCK_S * number for number in range(40)] + [0.0] * 20
    frames = capture_all(capture, clock, [sound[at : at + 640] for at in range(0, len(sound), 640)], delays_s)
    heard = np.concatenate([frame.samples for frame in frames])
    assert np.array_equal(s16le(heard), s16le(np.frombuffer(sound, "<i2").astype(np.float32) / 32768))
    assert capture.stats().concealed_s == 0.0
    assert capture.stats().jitter_s > 0.5


def test_a_block_longer_than_the_buffer_lets_wait_is_heard_whole() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    sound = _tone(4.0)
    clock.now_s += 4.0
    frames = capture.push(sound)
    heard = np.concatenate([frame.samples for frame in frames])
    assert np.array_equal(s16le(heard), s16le(np.frombuffer(sound, "<i2").astype(np.float32) / 32768))
    assert frames[-1].end_s == pytest.approx(clock.now_s)


def test_a_short_hole_is_made_up_for_and_the_numbers_go_on() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    sound = _tone(2.0)
    frames = capture_all(capture, clock, [sound[:6400]], [0.0])
    capture.missed(480)
    clock.now_s += 0.03
    frames += capture_all(capture, clock, [sound[7360:12800]], [0.0])
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    assert len(frames) == 40
    heard = np.concatenate([frame.samples for frame in frames])
    true = np.frombuffer(sound, "<i2")[:6400].astype(np.float32) / 32768
    # The tone goes on through the hole (a steady one, in the 20 ms before it begins to fade).
    np.testing.assert_allclose(heard[3200:3500], true[3200:3500], atol=0.1)
    stats = capture.stats()
    assert (stats.missing_s, stats.concealed_s) == (0.03, 0.03)


@pytest.mark.parametrize("rate_hz", [16_000, 44_100, 48_000])
def test_a_long_hole_is_a_hole_and_what_follows_is_where_it_was_spoken(rate_hz: int) -> None:
    clock = FakeClock()
    capture = BrowserCapture(rate_hz, "s16le", clock)
    block = bytes(2 * round(BLOCK_S * rate_hz))
    frames = capture_all(capture, clock, [block] * 50, [0.0] * 50)
    capture.missed(3 * rate_hz)
    clock.now_s += 3.0
    for _ in range(50):
        clock.now_s += BLOCK_S
        frames += capture.push(block)
    holes = [(a.seq, b.seq - a.seq, b.time_s - a.end_s) for a, b in itertools.pairwise(frames) if b.seq != a.seq + 1]
    assert len(holes) == 1
    (at, jump, silent_s) = holes[0]
    assert 100 <= at <= 110
    assert jump - 1 == pytest.approx(3.0 / 0.01, abs=10)
    assert silent_s == pytest.approx((jump - 1) * 0.01, abs=1e-6)
    assert frames[-1].end_s == pytest.approx(clock.now_s, abs=0.015)


@pytest.mark.parametrize("drift", [-300e-6, 300e-6])
def test_times_follow_a_browser_whose_clock_is_not_ours(drift: float) -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "s16le", clock)
    random = np.random.default_rng(1)
    end_s = clock.now_s
    for _ in range(round(600 / BLOCK_S)):
        end_s += BLOCK_S * (1 + drift)
        clock.now_s = max(clock.now_s, end_s + random.uniform(0.0, 0.01))
        frames = capture.push(bytes(640))
    assert frames[-1].end_s == pytest.approx(end_s, abs=0.012)
    assert capture.stats().lost_s == 0.0


def test_an_unusual_rate_is_heard_too() -> None:
    clock = FakeClock()
    capture = BrowserCapture(96_001, "f32le", clock)
    sound = np.sin(2 * np.pi * 440 * np.arange(96_001) / 96_001).astype(np.float32)
    pieces = [f32le(sound[at : at + 1920]) for at in range(0, sound.size, 1920)]
    heard = np.concatenate([frame.samples for frame in capture_all(capture, clock, pieces, [0.0] * len(pieces))])
    expected = np.sin(2 * np.pi * 440 * np.arange(heard.size) / RATE_HZ)
    np.testing.assert_allclose(heard[1600:-1600], expected[1600:-1600], atol=5e-3)


def test_loud_floats_are_held_to_full_scale() -> None:
    clock = FakeClock()
    capture = BrowserCapture(RATE_HZ, "f32le", clock)
    frames = capture.push(f32le(np.full(320, 1e30, np.float32)))
    assert max(float(np.abs(frame.samples).max()) for frame in frames) == 1.0
