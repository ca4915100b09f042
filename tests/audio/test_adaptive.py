from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.adaptive import PLAYBACK, DepthController, DepthSettings


def _seen(controller: DepthController, late_s: list[float], start_s: float = 0.0, every_s: float = 0.02) -> list[float]:
    targets = []
    for number, late in enumerate(late_s):
        controller.observe(start_s + number * every_s, late)
        targets.append(controller.target_s)
    return targets


def test_it_begins_as_deep_as_it_is_told() -> None:
    assert DepthController().target_s == PLAYBACK.first_s
    assert DepthController(DepthSettings(first_s=0.5, most_s=0.1)).target_s == 0.1


def test_where_nothing_is_late_it_goes_down_to_the_least_slowly_and_only_after_a_calm_while() -> None:
    controller = DepthController(PLAYBACK)
    targets = _seen(controller, [0.0] * 300)
    calm = round(PLAYBACK.calm_s / 0.02)
    assert set(targets[:calm]) == {PLAYBACK.first_s}
    assert targets[-1] == PLAYBACK.least_s
    assert max(a - b for a, b in itertools.pairwise(targets)) <= PLAYBACK.lower_s_per_s * 0.02 + 1e-12


def test_it_covers_even_jitter_and_not_much_more() -> None:
    late = np.random.default_rng(0).uniform(0.0, 0.05, 3000).tolist()
    targets = _seen(DepthController(), late)
    assert min(targets[500:]) > 0.045
    assert max(targets[500:]) < 0.07


def test_an_underrun_raises_it_at_once_by_what_was_short() -> None:
    controller = DepthController()
    controller.underrun(1.0, short_s=0.03)
    assert controller.target_s == pytest.approx(PLAYBACK.first_s + 0.03 + PLAYBACK.underrun_s)
    controller.underrun(1.1)
    assert controller.target_s == PLAYBACK.most_s
    assert controller.underruns == 2


def test_after_an_underrun_it_stays_up_until_it_has_been_calm() -> None:
    controller = DepthController()
    _seen(controller, [0.0] * 300)
    controller.underrun(6.0, short_s=0.05)
    raised = controller.target_s
    targets = _seen(controller, [0.0] * 300, start_s=6.02)
    assert targets[round(PLAYBACK.calm_s / 0.02) - 2] == raised
    assert targets[-1] < raised


def test_time_in_which_nothing_was_seen_is_no_headroom() -> None:
    controller = DepthController()
    controller.observe(0.0, 0.0)
    controller.underrun(0.1)
    raised = controller.target_s
    controller.observe(3600.0, 0.0)
    assert raised - controller.target_s <= PLAYBACK.lower_s_per_s * 0.1 + 1e-12


def test_production_near_or_above_real_time_is_met_by_depth() -> None:
    fast, slow = DepthController(), DepthController()
    for number in range(30):
        fast.observe_rtf(number * 0.3, 0.3)
        slow.observe_rtf(number * 0.3, 1.08)
    assert fast.target_s < PLAYBACK.first_s
    assert 0.079 < slow.target_s <= PLAYBACK.most_s
    assert fast.rtf == pytest.approx(0.3)
    assert DepthController().rtf is None


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["late", "rtf", "underrun"]), st.floats(-1, 5), st.floats(0, 2)), max_size=80)
)
def test_it_stays_in_bounds_rises_at_once_and_never_falls_abruptly(seen: list[tuple[str, float, float]]) -> None:
    controller = DepthController()
    now_s, before = 0.0, controller.target_s
    for kind, value, step_s in seen:
        now_s += step_s
        match kind:
            case "late":
                controller.observe(now_s, value)
            case "rtf":
                controller.observe_rtf(now_s, value)
            case _:
                controller.underrun(now_s, value)
                assert controller.target_s >= min(before + PLAYBACK.underrun_s, PLAYBACK.most_s)
        assert PLAYBACK.least_s <= controller.target_s <= PLAYBACK.most_s
        assert controller.target_s >= before - PLAYBACK.lower_s_per_s * min(step_s, 0.1) - 1e-9
        before = controller.target_s
