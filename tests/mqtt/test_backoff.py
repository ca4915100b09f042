"""Waiting: grows, never beyond its bound, and each kind of trouble by itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.mqtt.backoff import LADDERS, Backoff, Trouble


@given(st.lists(st.tuples(st.sampled_from(Trouble), st.floats(0.0, 1.0, exclude_max=True)), max_size=60))
def test_every_wait_is_between_half_and_all_of_its_step(troubles: list[tuple[Trouble, float]]) -> None:
    chances = iter([chance for _, chance in troubles])
    backoff = Backoff(lambda: next(chances))
    seen: dict[Trouble, int] = {}
    for trouble, _ in troubles:
        wait_s = backoff.failed(trouble)
        ladder = LADDERS[trouble]
        step_s = ladder[min(seen.get(trouble, 0), len(ladder) - 1)]
        seen[trouble] = seen.get(trouble, 0) + 1
        assert step_s / 2 <= wait_s <= step_s
        assert backoff.times(trouble) == seen[trouble]


@pytest.mark.parametrize("trouble", Trouble)
def test_the_ladders_only_climb(trouble: Trouble) -> None:
    assert all(lower < higher for lower, higher in itertools.pairwise(LADDERS[trouble]))


def test_the_broker_is_met_again_within_five_seconds_but_a_wrong_password_waits_minutes() -> None:
    assert LADDERS[Trouble.NETWORK][-1] < 5.0
    assert min(LADDERS[Trouble.REFUSED]) >= 60.0
    assert LADDERS[Trouble.TAKEN_OVER][1] >= 60.0


def test_a_connection_that_held_forgives_all_but_a_takeover() -> None:
    backoff = Backoff(lambda: 0.0)
    for trouble in (Trouble.NETWORK, Trouble.NETWORK, Trouble.UNSTABLE, Trouble.TAKEN_OVER):
        backoff.failed(trouble)
    backoff.held(3.0)
    assert backoff.times(Trouble.NETWORK) == 2
    backoff.held(60.0)
    assert (backoff.times(Trouble.NETWORK), backoff.times(Trouble.UNSTABLE)) == (0, 0)
    assert backoff.failed(Trouble.TAKEN_OVER) == LADDERS[Trouble.TAKEN_OVER][1]
    backoff.held(3600.0)
    assert backoff.failed(Trouble.TAKEN_OVER) == LADDERS[Trouble.TAKEN_OVER][0]
