"""Circuit breakers: counts and times, one trial at a time, told when they change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.breaker import Breaker, Breakers, BreakerSettings, BreakerState

SETTINGS = BreakerSettings(failures=3, open_s=10.0, longest_s=40.0)


def _broken() -> Breaker:
    breaker = Breaker(SETTINGS)
    for second in range(3):
        assert breaker.allows(float(second))
        breaker.failed(float(second))
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(SETTINGS)
    for outcome in "ff.ff":
        if outcome == "f":
            breaker.failed(0.0)
        else:
            breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    breaker.failed(1.0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allows(2.0)
    assert breaker.wait_s(2.0) == 9.0


def test_after_a_rest_one_call_tries_and_success_closes_it() -> None:
    breaker = _broken()
    assert breaker.allows(12.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.allows(12.1), "a second one must wait for the first"
    breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.allows(12.2)


def test_a_trial_that_fails_doubles_the_rest_up_to_the_longest() -> None:
    breaker, now_s, rests = _broken(), 2.0, []
    for _ in range(4):
        rests.append(breaker.wait_s(now_s))
        now_s += rests[-1]
        assert breaker.allows(now_s)
        breaker.failed(now_s)
    assert rests == [10.0, 20.0, 40.0, 40.0]


def test_a_trial_that_nobody_wanted_says_nothing() -> None:
    breaker = _broken()
    assert breaker.allows(12.0)
    breaker.left()
    assert breaker.state is BreakerState.OPEN
    assert breaker.allows(12.1)


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from("sfl")), max_size=100))
def test_an_open_one_is_never_asked_before_its_time_and_always_again(story: list[tuple[float, str]]) -> None:
    breaker, now_s, opened_s = Breaker(SETTINGS), 0.0, None
    for wait_s, outcome in story:
        now_s += wait_s
        if not breaker.allows(now_s):
            assert opened_s is not None
            assert now_s - opened_s < SETTINGS.longest_s
            continue
        if opened_s is not None:
            assert now_s - opened_s >= SETTINGS.open_s
        if outcome == "s":
            breaker.succeeded()
            opened_s = None
        elif outcome == "f":
            breaker.failed(now_s)
            opened_s = now_s if breaker.state is BreakerState.OPEN else None
        else:
            breaker.left()
    assert breaker.allows(now_s + SETTINGS.longest_s)


def test_changes_are_told_once_each_by_stage() -> None:
    now_s = [0.0]
    told: list[tuple[str, str]] = []
    breakers = Breakers(lambda: now_s[0], lambda stage, state: told.append((stage, state.value)), SETTINGS)
    for _ in range(5):
        if breakers.allows("recognition") is None:
            breakers.failed("recognition", "too warm")
    assert breakers.allows("synthesis") is None
    assert breakers.broken() == {"recognition": BreakerState.OPEN}
    assert breakers.reason("recognition") == "too warm"
    now_s[0] = 10.0
    assert breakers.allows("recognition") is None
    breakers.succeeded("recognition")
    assert told == [("recognition", "open"), ("recognition", "half-open"), ("recognition", "closed")]
    assert breakers.opened == {"recognition": 1}
