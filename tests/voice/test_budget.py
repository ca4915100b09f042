from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from appliance.voice.budget import SpeculationBudget, SpeculationSettings


def test_work_beyond_the_share_is_refused_until_time_has_passed() -> None:
    budget = SpeculationBudget(SpeculationSettings(share=0.5, burst_s=1.0))
    assert budget.allows(0.0)
    budget.spend(1.5)
    assert not budget.allows(0.5)
    assert budget.allows(1.2)


def test_a_share_of_nothing_allows_nothing() -> None:
    assert not SpeculationBudget(SpeculationSettings(share=0.0)).allows(1000.0)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.4)), max_size=200))
def test_over_time_no_more_is_spent_than_the_share(story: list[tuple[float, float]]) -> None:
    settings = SpeculationSettings(share=0.3, burst_s=0.5)
    budget, now_s, spent_s = SpeculationBudget(settings), 0.0, 0.0
    for wait_s, cost_s in story:
        now_s += wait_s
        if budget.allows(now_s):
            budget.spend(cost_s)
            spent_s += cost_s
    assert spent_s <= settings.burst_s + settings.share * now_s + 0.4 + 1e-9
