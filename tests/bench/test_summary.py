from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.bench.summary import STEPS, Summary, at_percentile, timed

from .material import a_clip, a_result


def test_only_answers_to_commands_are_timed() -> None:
    talk = a_clip(intent=None, slots={})
    results = [
        a_result(200.0),
        a_result(300.0, right=False),  # "Sorry": the person waited for it
        a_result(900.0, clip=talk),
        a_result(None),
        a_result(None, cut=True),
        a_result(100.0, error="unreadable"),
    ]
    assert [split.total for _, split in timed(results)] == [200.0, 300.0]
    total = Summary.of(results).times_ms["total"]
    assert total is not None
    assert (total.n, total.p50, total.p95) == (2, 200.0, 300.0)


def test_clips_are_counted_by_kind() -> None:
    results = [
        a_result(),
        a_result(right=False, wrong_action=True, actions=()),
        a_result(clip=a_clip(kind="tts")),
        a_result(clip=a_clip(intent=None, slots={}), actions=(), right=True),
        a_result(None, cut=True, right=False),
        a_result(None, error="unreadable", right=False),
    ]
    summary = Summary.of(results)
    assert (summary.clips, summary.failed, summary.cut, summary.wrong_actions) == (6, 1, 1, 1)
    human, synthesised = summary.accuracy["human"], summary.accuracy["synthesised"]
    assert (human.clips, human.right, human.rate) == (3, 1, pytest.approx(1 / 3))
    assert (synthesised.clips, synthesised.right) == (1, 1)
    assert (summary.right.clips, summary.right.right) == (4, 2)
    assert summary.ahead == pytest.approx(
        {"recognitions": 2.0, "replies": 1.0, "hits": 1.0, "spent_s": 0.3, "wasted_s": 0.1}
    )


def test_nothing_played_gives_no_figures() -> None:
    summary = Summary.of([])
    assert summary.clips == 0
    assert summary.times_ms["total"] is None
    assert summary.right.rate is None
    assert summary.ahead is None
    assert at_percentile([], 50) is None


@given(totals=st.lists(st.floats(210.0, 5000.0), min_size=1, max_size=50), percent=st.sampled_from([50, 75, 95]))
def test_the_split_at_a_percentile_is_of_one_clip_so_its_steps_add_up(totals: list[float], percent: int) -> None:
    results = [a_result(total) for total in totals]
    split = at_percentile(results, percent)
    assert split is not None
    assert split.total in totals
    assert sum(getattr(split, step) for step in STEPS) == pytest.approx(split.total)
