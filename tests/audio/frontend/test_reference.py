"""What was played is laid beside what the microphone heard, whatever the blocks, the rates, the clocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Samples
from appliance.audio.frontend.played import PlayedBlock, PlayedTap
from appliance.audio.frontend.reference import LEAD_S, EchoReference

HEARD_S = 100.0


def _noise(seconds: float, rate_hz: int = RATE_HZ) -> Samples:
    return np.random.default_rng(5).standard_normal(round(seconds * rate_hz)).astype(np.float32) * np.float32(0.1)


def _blocks(sound: Samples, sizes: list[int], rate_hz: int = RATE_HZ, start: int = 0) -> list[PlayedBlock]:
    blocks, at, i = [], 0, 0
    while at < sound.size:
        part = sound[at : at + sizes[i % len(sizes)]]
        blocks.append(PlayedBlock(part, HEARD_S + (start + at) / rate_hz, start + at, rate_hz))
        at += part.size
        i += 1
    return blocks


def _taken(reference: EchoReference, count: int, start_s: float = HEARD_S - LEAD_S) -> list[Samples | None]:
    return [reference.take(start_s + i * FRAME_S) for i in range(count)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=20))
def test_however_it_was_played_the_same_reference_comes_out(sizes: list[int]) -> None:
    sound = _noise(0.5)
    reference = EchoReference()
    reference.push(_blocks(sound, sizes))
    taken = _taken(reference, 50)
    assert np.array_equal(np.concatenate([frame for frame in taken if frame is not None]), sound)


def test_a_frame_gets_what_is_heard_the_lead_after_it() -> None:
    sound = np.zeros(RATE_HZ, dtype=np.float32)
    sound[8000] = 1.0  # heard at 100.5
    reference = EchoReference()
    reference.push(_blocks(sound, [480]))
    time_s = HEARD_S
    found = []
    for _ in range(90):
        frame = reference.take(time_s)
        if frame is not None and frame.any():
            found.append(time_s + float(np.argmax(frame)) / RATE_HZ)
        time_s += FRAME_S
    assert found == [pytest.approx(HEARD_S + 0.5 - LEAD_S, abs=1.5 / RATE_HZ)]


def test_silence_has_no_reference() -> None:
    reference = EchoReference()
    assert reference.take(50.0) is None
    reference.push(_blocks(_noise(0.1), [480]))
    assert reference.take(HEARD_S - 1.0) is None
    assert reference.take(HEARD_S) is not None
    assert reference.take(HEARD_S + 1.0) is None


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_a_speaker_of_another_rate_is_resampled_once(rate_hz: int) -> None:
    time_s = np.arange(rate_hz) / rate_hz
    reference = EchoReference()
    reference.push(_blocks(np.sin(2 * np.pi * 440 * time_s).astype(np.float32), [480], rate_hz))
    taken = np.concatenate([frame for frame in _taken(reference, 90) if frame is not None])
    wanted = np.sin(2 * np.pi * 440 * np.arange(taken.size) / RATE_HZ)
    assert np.abs(taken - wanted)[400:].max() < 0.01


def test_a_short_silence_between_two_sounds_is_as_long_as_it_was() -> None:
    sound = _noise(0.2)
    reference = EchoReference()
    reference.push(_blocks(sound, [480]))
    reference.push(_blocks(sound, [480], start=sound.size + 1600))
    taken = np.concatenate([frame for frame in _taken(reference, 50) if frame is not None])
    assert np.array_equal(taken[: sound.size], sound)
    assert not taken[sound.size : sound.size + 1600].any()
    assert np.array_equal(taken[sound.size + 1600 : 2 * sound.size + 1600], sound)


@settings(max_examples=30, deadline=None)
@given(st.floats(-300e-6, 300e-6), st.floats(0.0, 0.002))
def test_clocks_that_drift_and_jitter_never_pull_it_away(drift: float, jitter_s: float) -> None:
    """The microphone's seconds are longer or shorter than the speaker's, and every time is a little wrong."""
    random = np.random.default_rng(3)
    sound = _noise(20.0)
    ramp = np.arange(sound.size, dtype=np.float32)  # tells of every sample where it was
    reference = EchoReference()
    worst, at = 0.0, 0
    for i in range(1900):
        time_s = i * FRAME_S * (1.0 + drift)
        while at < sound.size and at / RATE_HZ < time_s + 0.1:
            heard_s = HEARD_S + at / RATE_HZ + random.uniform(0.0, jitter_s)
            reference.push([PlayedBlock(ramp[at : at + 480], heard_s, at, RATE_HZ)])
            at += 480
        frame = reference.take(HEARD_S - LEAD_S + time_s)
        if frame is not None and i > 5:
            worst = max(worst, abs(float(frame[0]) / RATE_HZ - time_s))
    assert worst < 0.001 + jitter_s + 0.001
    assert reference.jumps == 0


def test_after_lost_sound_it_is_laid_anew_at_once() -> None:
    ramp = np.arange(RATE_HZ, dtype=np.float32)
    reference = EchoReference()
    reference.push(_blocks(ramp, [480]))
    first = reference.take(HEARD_S + 0.2 - LEAD_S)
    later = reference.take(HEARD_S + 0.5 - LEAD_S)  # the microphone lost 0.29 s
    assert first is not None and later is not None  # noqa: PT018
    assert (first[0], later[0]) == (pytest.approx(3200, abs=1), pytest.approx(8000, abs=1))
    assert reference.jumps == 1


def test_the_tap_takes_jitter_out_of_the_times_and_leaves_silence_out() -> None:
    random = np.random.default_rng(1)
    tap = PlayedTap()
    end = tap.connect(48_000)
    for i in range(400):
        block = np.full(480, 0.1, dtype=np.float32)
        end.take(block, 10.0 + i * 0.01 + random.uniform(0.0, 0.008), sounding=i >= 300)
    blocks = list(tap.read())
    assert [block.index for block in blocks] == [480 * i for i in range(300, 400)]
    assert max(abs(block.heard_s - (10.0 + block.index / 48_000)) for block in blocks) < 0.002
    assert list(tap.read()) == []


def test_a_tap_that_nobody_reads_drops_and_counts() -> None:
    tap = PlayedTap()
    end = tap.connect(RATE_HZ)
    for i in range(300):
        end.take(np.zeros(FRAME_SAMPLES, dtype=np.float32), i * FRAME_S, sounding=True)
    assert tap.dropped == 100
    tap.connect(48_000)
    assert tap.dropped == 100
