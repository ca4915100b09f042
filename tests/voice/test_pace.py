"""How much of a reply is made at a time, where making it is slow or stalls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.voice.tts.pace import LARGEST_FRAMES, Ahead, VoicePace

HOP_S = 256 / 22_050
OVERLAP = 38
PLANNED = (12, 24, 40)
REST = 60


def _planned(number: int) -> int:
    return PLANNED[number] if number < len(PLANNED) else REST


def _speak(pace: VoicePace, frames: int, frame_s: float, stalls: Iterator[float], *, adapt: bool = True) -> list[float]:
    """Make and play a reply; seconds that each of its pieces came too late."""
    now_s, ahead, due_s = 0.0, Ahead(), None
    late: list[float] = []
    at = number = 0
    while at < frames:
        size = pace.frames(_planned(number), REST, ahead.seconds(now_s)) if adapt else _planned(number)
        size = min(size, frames - at)
        cost_s = frame_s * (size + OVERLAP) + next(stalls)
        pace.made(size, cost_s)
        now_s += cost_s
        if due_s is not None:
            late.append(max(0.0, now_s - due_s))
        due_s = max(now_s, due_s or now_s) + size * HOP_S
        ahead.given(now_s, size * HOP_S)
        at, number = at + size, number + 1
    return late


def _calm() -> Iterator[float]:
    return itertools.repeat(0.0)


def test_a_fast_voice_keeps_to_its_plan_at_first_and_then_makes_as_much_as_it_may() -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    assert pace.frames(12, REST, None) == 12
    _speak(pace, 400, 0.1 * HOP_S, _calm())
    assert pace.frames(12, REST, None) == 12
    assert pace.frames(12, REST, 3.0) == REST
    assert not pace.strained


@pytest.mark.parametrize("ahead_s", [0.14, 0.3, 0.8, 2.0])
def test_a_fast_voice_leaves_time_for_others(ahead_s: float) -> None:
    """A chunk longer than planned takes no more than half of what plays meanwhile."""
    pace = VoicePace(HOP_S, OVERLAP)
    _speak(pace, 200, 0.2 * HOP_S, _calm())
    frames = pace.frames(12, REST, ahead_s)
    assert frames == 12 or 0.2 * HOP_S * (frames + OVERLAP) <= ahead_s / 2 + 1e-9


@pytest.mark.parametrize("rtf", [0.3, 0.5, 0.6, 0.7])
def test_once_it_knows_how_slow_the_voice_is_no_piece_comes_too_late(rtf: float) -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    _speak(pace, 200, rtf * HOP_S, _calm())
    assert max(_speak(pace, 400, rtf * HOP_S, _calm()), default=0.0) < 1e-6
    fixed = max(_speak(VoicePace(HOP_S, OVERLAP), 400, rtf * HOP_S, _calm(), adapt=False))
    assert fixed > 0.05 or rtf <= 0.3


@pytest.mark.parametrize("stall_s", [0.05, 0.2, 0.5])
def test_after_the_first_stall_further_ones_are_not_heard(stall_s: float) -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    _speak(pace, 200, 0.15 * HOP_S, _calm())
    _speak(pace, 200, 0.15 * HOP_S, itertools.cycle([0.0, 0.0, stall_s]))
    for phase in range(4):
        stalls = itertools.chain([0.0] * phase, itertools.cycle([stall_s, 0.0, 0.0, 0.0]))
        late = _speak(pace, 500, 0.15 * HOP_S, stalls)
        assert max(late) < 1e-6


def test_a_stall_is_forgotten() -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    _speak(pace, 200, 0.15 * HOP_S, itertools.cycle([0.0, 0.5]))
    assert pace.frames(12, REST, None) > 40
    _speak(pace, 6000, 0.15 * HOP_S, _calm())
    assert pace.frames(12, REST, None) == 12


def test_slower_than_speech_means_few_and_long_chunks() -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    _speak(pace, 500, 1.3 * HOP_S, _calm())
    assert pace.strained
    assert pace.frames(12, REST, None) == LARGEST_FRAMES
    assert pace.frames(60, REST, 0.1) == LARGEST_FRAMES


def test_what_waited_to_be_wanted_was_not_played_meanwhile() -> None:
    ahead = Ahead()
    assert ahead.seconds(0.0) is None
    ahead.given(1.0, 0.14)
    ahead.resumed(9.0, 8.0)
    assert ahead.seconds(9.0) == pytest.approx(0.14)
    ahead.given(9.1, 0.3)
    ahead.resumed(9.2, 0.1)  # work of others: the speaker did not wait for it
    assert ahead.seconds(9.2) == pytest.approx(0.24)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 120), st.floats(0, 30)), max_size=30),
    st.integers(1, 60), st.one_of(st.none(), st.floats(0, 120)),
)  # fmt: skip
def test_there_is_always_a_next_chunk_and_it_is_no_longer_than_engines_take(
    made: list[tuple[int, float]], planned: int, ahead_s: float | None
) -> None:
    pace = VoicePace(HOP_S, OVERLAP)
    for frames, cost_s in made:
        pace.made(frames, cost_s)
    assert 1 <= pace.frames(planned, REST, ahead_s) <= LARGEST_FRAMES
