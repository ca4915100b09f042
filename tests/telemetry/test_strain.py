"""How far Wren steps down: fast, back slowly, never to and fro."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.telemetry.strain import BOUNDS, StrainMonitor, StrainSettings

SETTINGS = StrainSettings(settle_s=1.0, calm_s=10.0, longest_calm_s=80.0, relapse_s=30.0, stale_s=30.0)
HELPS = ({"recognition"}, {"recognition", "synthesis"}, {"synthesis"}, {"recognition", "synthesis", "wake"})


def _monitor() -> StrainMonitor:
    return StrainMonitor(HELPS, SETTINGS)


def test_strain_steps_down_at_once_and_to_a_step_that_helps_the_stage() -> None:
    monitor = _monitor()
    monitor.note("synthesis", 2.0, 0.0, 0.0)
    assert monitor.step(0.0)
    assert monitor.taken == (1,)
    assert monitor.because == "synthesis"


def test_one_late_piece_of_a_reply_is_enough() -> None:
    monitor = _monitor()
    for second in range(20):
        monitor.note("playback", 0.001, 0.0, float(second))
        assert not monitor.step(float(second))
    monitor = StrainMonitor(({"playback"},), SETTINGS)
    monitor.note("playback", 0.001, 0.0, 0.0)
    monitor.note("playback", 0.001, 0.05, 0.1)
    assert monitor.step(0.1)
    assert len(monitor.taken) == 1


def test_what_was_begun_before_a_step_does_not_lead_to_the_next() -> None:
    monitor = _monitor()
    monitor.note("recognition", 5.0, 0.0, 0.0)
    assert monitor.step(0.0)
    assert len(monitor.taken) == 1
    monitor.note("recognition", 5.0, 0.0, 0.5)
    assert not monitor.step(0.5)
    assert not monitor.step(3.0)
    monitor.note("recognition", 5.0, 0.0, 3.5)
    assert monitor.step(3.5)
    assert len(monitor.taken) == 2


def test_headroom_leads_up_one_step_at_a_time() -> None:
    monitor = _monitor()
    for second in (0.0, 2.0):
        monitor.note("synthesis", 2.0, 0.0, second)
        monitor.step(second)
    assert monitor.taken == (1, 2)
    levels = []
    for second in range(3, 25):
        monitor.note("synthesis", 0.1, 0.0, float(second))
        if monitor.step(float(second)):
            levels.append((second, monitor.taken))
    assert levels == [(12, (1,)), (22, ())]
    assert monitor.because is None


def test_without_headroom_it_stays_and_silence_counts_as_headroom_only_when_it_is_old() -> None:
    monitor = _monitor()
    monitor.note("synthesis", 2.0, 0.0, 0.0)
    monitor.step(0.0)
    for second in range(2, 40):
        monitor.note("synthesis", 0.5, 0.0, float(second))  # between calm and strained
        assert not monitor.step(float(second))
    assert not monitor.step(39.0 + SETTINGS.stale_s - 1.0)
    assert monitor.step(39.0 + SETTINGS.stale_s + SETTINGS.calm_s)
    assert len(monitor.taken) == 0


def test_a_relapse_asks_for_twice_the_headroom_and_is_forgiven_after_a_while() -> None:
    monitor = _monitor()
    times = []
    now_s, relapses = 0.0, 3
    while len(times) < 6 and now_s < 1000.0:
        if not monitor.taken and relapses:
            relapses -= 1
            monitor.note("recognition", 5.0, 0.0, now_s)
            assert monitor.step(now_s)
            down_s = now_s
        now_s += 1.0
        monitor.note("recognition", 0.1, 0.0, now_s)
        if monitor.step(now_s) and not monitor.taken:
            times.append(now_s - down_s)
            now_s += 2.0
    assert times == pytest.approx([10.0, 20.0, 40.0])
    now_s += SETTINGS.relapse_s
    monitor.step(now_s)
    monitor.note("recognition", 5.0, 0.0, now_s)
    assert monitor.step(now_s)
    assert len(monitor.taken) == 1
    assert not monitor.step(now_s + 9.9)
    assert monitor.step(now_s + 10.0)
    assert len(monitor.taken) == 0


STORY = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.sampled_from(sorted(BOUNDS)), st.floats(0.0, 3.0), st.floats(0.0, 2.0)),
    max_size=300,
)


@given(STORY)
def test_it_never_swings_faster_than_it_holds(story: list[tuple[float, str, float, float]]) -> None:
    monitor = _monitor()
    now_s, changed_s = 0.0, float("-inf")
    before: tuple[int, ...] = ()
    for wait_s, stage, rtf, age_s in story:
        now_s += wait_s
        monitor.note(stage, rtf, age_s, now_s)
        changed = monitor.step(now_s)
        assert changed == (monitor.taken != before)
        if not changed:
            continue
        if len(monitor.taken) < len(before):
            assert monitor.taken == before[:-1]
            assert now_s - changed_s >= SETTINGS.calm_s
        else:
            (new,) = set(monitor.taken) - set(before)
            assert stage in HELPS[new] or monitor.because in HELPS[new]
            assert now_s - changed_s >= SETTINGS.settle_s
        before, changed_s = monitor.taken, now_s


def _lived(story: list[tuple[float, str, float, float]]) -> tuple[StrainMonitor, float]:
    """A monitor after a story, and the time that it is then."""
    monitor, now_s = _monitor(), 0.0
    for wait_s, stage, rtf, age_s in story:
        now_s += wait_s
        monitor.note(stage, rtf, age_s, now_s)
        monitor.step(now_s)
    return monitor, now_s


@given(STORY)
def test_after_any_story_rest_leads_back_to_the_top(story: list[tuple[float, str, float, float]]) -> None:
    monitor, now_s = _lived(story)
    for _ in range(200):
        now_s += 10.0
        monitor.step(now_s)
    assert monitor.taken == ()


@given(STORY)
def test_strain_that_a_deeper_step_helps_is_never_left_standing(story: list[tuple[float, str, float, float]]) -> None:
    monitor, now_s = _lived(story)
    for _ in range(12):
        now_s += 1.5
        monitor.note("recognition", 3.0, 0.0, now_s)
        monitor.step(now_s)
    assert {0, 1, 3} <= set(monitor.taken)
