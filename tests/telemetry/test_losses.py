"""What counts as lost lately."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appliance.telemetry.losses import RECENT_S, STEP_S, RecentLosses


def test_a_loss_is_news_for_a_while() -> None:
    now_s = [0.0]
    losses = RecentLosses(lambda: now_s[0])
    assert losses.recent(0) == 0
    assert losses.recent(3) == 3
    now_s[0] = RECENT_S / 2
    assert losses.recent(5) == 5
    now_s[0] = RECENT_S + 1.0
    assert losses.recent(5) == 2
    now_s[0] = 2 * RECENT_S
    assert losses.recent(5) == 0
    assert losses.recent(6) == 1


@given(st.lists(st.tuples(st.floats(0, 2 * RECENT_S), st.integers(0, 1000)), max_size=200))
def test_none_of_the_last_ten_minutes_is_forgotten_and_the_memory_is_bounded(steps: list[tuple[float, int]]) -> None:
    now_s, total, told = 0.0, 0, []
    losses = RecentLosses(lambda: now_s)
    for wait_s, new in steps:
        now_s, total = now_s + wait_s, total + new
        told.append((now_s, new))
        shown = losses.recent(total)
        assert shown >= sum(count for at_s, count in told if now_s - at_s <= RECENT_S - STEP_S)
        assert shown <= sum(count for at_s, count in told if now_s - at_s <= RECENT_S + STEP_S)
        assert len(losses._moments) <= RECENT_S / STEP_S + 2
