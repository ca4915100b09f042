"""Waiting: grows, never beyond its bound, and each kind of trouble by itself."""

from __future__ import annotations

import itertools
import random

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
    for trouble in (Trouble.NETWORK, Trouble.NETWORK, Trouble.TAKEN_OVER):
        backoff.failed(trouble)
    assert backoff.ended(Trouble.NETWORK, 3.0) is Trouble.UNSTABLE
    assert backoff.times(Trouble.NETWORK) == 2
    assert backoff.ended(Trouble.NETWORK, 60.0) is Trouble.NETWORK
    assert backoff.times(Trouble.NETWORK) == 0
    assert backoff.failed(Trouble.TAKEN_OVER) == LADDERS[Trouble.TAKEN_OVER][1]
    assert backoff.ended(Trouble.TAKEN_OVER, 3600.0) is Trouble.TAKEN_OVER
    assert backoff.failed(Trouble.TAKEN_OVER) == LADDERS[Trouble.TAKEN_OVER][0]


@given(st.integers(0, 10**6))
def test_two_with_one_id_at_a_broker_that_does_not_say_so_stop_fighting(seed: int) -> None:
    chance = random.Random(seed).random
    two = [Backoff(chance), Backoff(chance)]
    now_s, holder, since_s, back_s = 0.0, 0, -3600.0, [0.0, 0.0]
    takeovers = 0
    while (now_s := back_s[1 - holder]) < 3600.0:  # the other comes back and throws the holder out
        loser = two[holder]
        back_s[holder] = now_s + loser.failed(loser.ended(Trouble.NETWORK, now_s - since_s))
        holder, since_s = 1 - holder, now_s
        takeovers += 1
    assert takeovers <= 50, "an hour of fighting"
