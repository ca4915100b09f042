from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.bench.statistics import Spread, nearest_rank

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)
percents = st.floats(0.0, 100.0)


@given(values, percents)
def test_a_percentile_is_a_measured_value_that_enough_of_the_others_do_not_exceed(
    numbers: list[float], percent: float
) -> None:
    value = nearest_rank(numbers, percent)
    assert value in numbers
    share = sum(number <= value for number in numbers) / len(numbers)
    assert share >= percent / 100.0 - 1e-9
    below = sum(number < value for number in numbers) / len(numbers)
    assert below < percent / 100.0 or percent == 0.0 or below == 0.0


@given(values, percents, percents)
def test_percentiles_rise(numbers: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert nearest_rank(numbers, low) <= nearest_rank(numbers, high)


@given(values)
def test_the_ends_are_the_least_and_the_most(numbers: list[float]) -> None:
    assert nearest_rank(numbers, 0) == min(numbers)
    assert nearest_rank(numbers, 100) == max(numbers)


@pytest.mark.parametrize(
    ("percent", "value"), [(5, 15), (30, 20), (40, 20), (50, 35), (100, 50)]
)  # the example of the definition: ranks ceil(P/100 * 5) of 15, 20, 35, 40, 50
def test_nearest_rank_of_the_textbook_example(percent: float, value: float) -> None:
    assert nearest_rank([15, 20, 35, 40, 50], percent) == value


def test_whole_ranks_are_not_skipped_for_a_rounding_error() -> None:
    numbers = [float(n) for n in range(1, 101)]
    assert [nearest_rank(numbers, percent) for percent in range(1, 101)] == numbers


@pytest.mark.parametrize(("numbers", "percent"), [([], 50), ([1.0], -1), ([1.0], 101)])
def test_what_has_no_percentile_is_refused(numbers: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"percentile|between"):
        nearest_rank(numbers, percent)


def test_unknown_values_do_not_count() -> None:
    spread = Spread.of([None, 10.0, 20.0, None, 30.0])
    assert spread is not None
    assert (spread.n, spread.p50, spread.mean, spread.least, spread.most) == (3, 20.0, 20.0, 10.0, 30.0)
    assert spread.sd == pytest.approx(math.sqrt(200 / 3))
    assert Spread.of([None]) is None
    assert Spread.of([]) is None


@given(values)
def test_the_spread_of_equal_values_is_none(numbers: list[float]) -> None:
    spread = Spread.of([numbers[0]] * len(numbers))
    assert spread is not None
    assert spread.sd == pytest.approx(0.0, abs=1e-6)
    assert spread.p50 == spread.p95 == numbers[0]
