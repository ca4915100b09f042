"""The ladder as data: each step does less than the one before it, and is undone by the level alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from appliance.telemetry.strain import BOUNDS
from appliance.voice.relief import LADDER, LIGHT_RECOGNISER, LIGHT_VOICE, Relief, possible, relief_of


def test_the_top_is_all_that_wren_can_do() -> None:
    assert relief_of(()) == Relief()


def test_every_step_takes_something_away_and_gives_nothing_back() -> None:
    def given_up(relief: Relief) -> tuple[float, ...]:
        flags = (relief.light_recogniser, relief.whole_replies, relief.light_voice, relief.kept_replies)
        return (1.0 - relief.share, *map(float, flags), 1.0 - relief.patience)

    rows = [given_up(relief_of(LADDER[:level])) for level in range(len(LADDER) + 1)]
    for before, after in pairwise(rows):
        assert all(a <= b for a, b in zip(before, after, strict=True))
    # The last step is a hint: there is nothing left to take away.
    assert len(set(rows[:-1])) == len(rows) - 1


def test_a_step_that_is_not_possible_here_is_left_out() -> None:
    names = [step.name for step in possible(LADDER, {LIGHT_VOICE})]
    assert LIGHT_RECOGNISER not in names
    assert LIGHT_VOICE in names
    assert not relief_of(possible(LADDER, ())).light_voice
    assert all(step.to_get for step in LADDER if step.needs), "people are told how to have it"


@pytest.mark.parametrize("stage", sorted(BOUNDS))
def test_every_stage_that_reports_is_relieved_by_some_step_even_with_nothing_installed(stage: str) -> None:
    assert any(stage in step.relieves for step in possible(LADDER, ()))
    assert {name for step in LADDER for name in step.relieves} == set(BOUNDS)
