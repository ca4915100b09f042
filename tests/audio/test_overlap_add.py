from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.frame import Samples
from appliance.audio.overlap_add import StreamingOverlapAdd, hann, root_hann
from appliance.errors import WindowError

UNEVEN = np.array([1, 4, 3, 4, 2, 3, 1], dtype=np.float32)
"""A window that is no multiple of its hop (3): what lies three apart adds up to 6."""


def _sound(size: int, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).uniform(-1, 1, size).astype(np.float32)


def _chunked(part: StreamingOverlapAdd, sound: Samples, sizes: list[int]) -> Samples:
    out, at, number = [], 0, 0
    while at < sound.size:
        size = sizes[number % len(sizes)]
        out.append(part.push(sound[at : at + size]))
        at, number = at + size, number + 1
    return np.concatenate([*out, part.flush()])


def _parts() -> list[StreamingOverlapAdd]:
    box = np.ones(12, dtype=np.float32)
    return [
        StreamingOverlapAdd(64, 32, hann(64)),
        StreamingOverlapAdd(64, 16, hann(64)),
        StreamingOverlapAdd(64, 32, root_hann(64), synthesis=root_hann(64)),
        StreamingOverlapAdd(64, 16, root_hann(64), synthesis=root_hann(64)),
        StreamingOverlapAdd(12, 12, box),
        StreamingOverlapAdd(12, 1, box),
        StreamingOverlapAdd(7, 3, UNEVEN),
    ]


KINDS = range(7)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(size=st.integers(0, 400), sizes=st.lists(st.integers(1, 150), min_size=1, max_size=6))
def test_what_nothing_is_done_to_comes_out_as_it_went_in(kind: int, size: int, sizes: list[int]) -> None:
    sound = _sound(size)
    out = _chunked(_parts()[kind], sound, sizes)
    assert out.shape == sound.shape
    np.testing.assert_allclose(out, sound, atol=2e-6)


def _twisted(frame: Samples) -> Samples:
    """A process whose result depends on the whole frame: a spectrum, turned and dampened."""
    spectrum = np.fft.rfft(frame) * np.linspace(1, 0.2, frame.size // 2 + 1) * 1j
    return np.fft.irfft(spectrum, frame.size).astype(np.float32)


@settings(deadline=None)
@given(size=st.integers(0, 600), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_any_chunking_gives_the_same_sound_bit_for_bit(size: int, sizes: list[int]) -> None:
    sound = _sound(size, 1)
    part = StreamingOverlapAdd(64, 16, root_hann(64), _twisted, synthesis=root_hann(64))
    whole = _chunked(part, sound, [max(1, size)])
    assert np.array_equal(_chunked(part, sound, sizes), whole)  # the flush before left nothing behind


@settings(deadline=None)
@given(st.lists(st.integers(0, 100), max_size=20))
def test_what_has_come_out_is_never_more_than_a_frame_behind(sizes: list[int]) -> None:
    part = StreamingOverlapAdd(64, 16, hann(64))
    seen = given_out = 0
    for size in sizes:
        seen += size
        given_out += part.push(_sound(size)).size
        assert seen - part.delay_samples < given_out <= seen
    assert part.flush().size == seen - given_out


def test_the_process_gets_windowed_frames_and_its_work_is_heard() -> None:
    frames: list[Samples] = []

    def louder(frame: Samples) -> Samples:
        frames.append(frame.copy())
        frame *= 3.0
        return frame

    sound = _sound(160)
    out = _chunked(StreamingOverlapAdd(32, 16, hann(32), louder), sound, [50])
    np.testing.assert_allclose(out, 3 * sound, atol=1e-5)
    np.testing.assert_allclose(frames[0], np.concatenate((np.zeros(16), sound[:16])) * hann(32), atol=1e-6)
    np.testing.assert_allclose(frames[1], sound[:32] * hann(32), atol=1e-6)


@settings(deadline=None)
@given(size=st.integers(0, 600), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_what_a_process_fades_itself_is_added_up_as_it_is(size: int, sizes: list[int]) -> None:
    """A network that was trained to have its frames added up: each gives its share of the sound."""

    def share(frame: Samples) -> Samples:
        frame *= root_hann(64) ** 2 / 2  # at a quarter of the frame, that adds up to one
        return frame

    box = np.ones(64, dtype=np.float32)
    sound = _sound(size, 3)
    out = _chunked(StreamingOverlapAdd(64, 16, box, share, fades_itself=True), sound, sizes)
    np.testing.assert_allclose(out, sound, atol=2e-6)
    divided = _chunked(StreamingOverlapAdd(64, 16, box, share), sound, sizes)
    np.testing.assert_allclose(divided, sound / 4, atol=2e-6)


def test_reset_forgets() -> None:
    part = StreamingOverlapAdd(64, 32, hann(64))
    part.push(_sound(100))
    part.reset()
    np.testing.assert_allclose(_chunked(part, _sound(90, 2), [90]), _sound(90, 2), atol=2e-6)


@pytest.mark.parametrize(
    ("frame", "hop", "window", "why"),
    [
        (64, 24, hann(64), "adds up to"),
        (64, 64, hann(64), "adds up to"),
        (64, 32, root_hann(64), "adds up to"),
        (64, 32, np.zeros(64, np.float32), "adds up to"),
        (64, 0, hann(64), "a hop of 0"),
        (64, 65, hann(64), "a hop of 65"),
        (64, 32, hann(63), r"shape \(63,\)"),
        (64, 32, np.full(64, np.nan, np.float32), "finite"),
    ],
)
def test_windows_that_do_not_add_up_are_refused(frame: int, hop: int, window: Samples, why: str) -> None:
    with pytest.raises(WindowError, match=why):
        StreamingOverlapAdd(frame, hop, window)


def test_a_process_that_gives_another_shape_is_refused() -> None:
    part = StreamingOverlapAdd(64, 32, hann(64), lambda frame: frame[:32])
    with pytest.raises(WindowError, match=r"shape \(32,\)"):
        part.push(_sound(100))


def test_hours_of_sound_need_no_more_memory_than_a_second() -> None:
    part = StreamingOverlapAdd(512, 128, hann(512))
    block = _sound(160)
    part.push(block)
    tracemalloc.start()
    for _ in range(200):
        part.push(block)
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(2000):
        part.push(block)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2000
    assert peak - before < 8 * 512 * 4  # a handed-out block or two, and no copies of frames
