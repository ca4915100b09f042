"""The sweep finds the layers that do not survive 8 bits, and keeps no more of them than it must."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.quantize.gate import Score, passes
from models.quantize.measure import snr_db
from models.quantize.sensitivity import find_keep_float, sweep
from models.quantize.sites import Site


def _sites(damage: dict[str, float]) -> list[Site]:
    return [Site(n, "MatMul", n, n, None, n, 1, n.split(".")[0]) for n in damage]


def _measure(damage: dict[str, float]):
    def measure(keep_float: Collection[str]) -> float:
        noise = sum(d for n, d in damage.items() if n not in keep_float)
        return -10 * math.log10(noise + 1e-15)

    return measure


@given(
    st.lists(st.floats(1e-6, 1e-5), min_size=6, max_size=24), st.sets(st.integers(0, 5), max_size=3), st.integers(1, 4)
)
def test_planted_culprits_are_kept_and_few_others(small: list[float], bad: set[int], layers: int) -> None:
    damage = {f"layer{i % layers}.{i}": d for i, d in enumerate(small)}
    names = list(damage)
    for i in bad:
        damage[names[i]] = 0.5
    sites = _sites(damage)
    keep, reached = find_keep_float(sweep(sites, _measure(damage), lambda done, of: None), _measure(damage), 30.0)
    assert {names[i] for i in bad} <= set(keep)
    assert reached >= 30.0
    if layers == 1 or not bad:
        assert len(keep) == len(bad)


def test_where_nothing_helps_everything_stays_in_float() -> None:
    damage = {"a.0": 1.0, "b.0": 1.0}
    keep, _ = find_keep_float(sweep(_sites(damage), _measure(damage), lambda d, o: None), lambda k: -1.0, 20.0)
    assert set(keep) == set(damage)


def test_the_gate_looks_the_right_way() -> None:
    fp32 = Score("word error rate", 0.100, True, 10)
    assert passes(Score("word error rate", 0.109, True, 10), fp32)
    assert passes(Score("word error rate", 0.050, True, 10), fp32)
    assert not passes(Score("word error rate", 0.112, True, 10), fp32)
    same = Score("agreement", 1.0, False, 10)
    assert passes(Score("agreement", 0.992, False, 10), same)
    assert not passes(Score("agreement", 0.97, False, 10), same)


def test_signal_to_noise_says_when_a_length_differs() -> None:
    a = [{"y": np.ones((1, 4), dtype=np.float32)}]
    assert snr_db(a, [{"y": np.ones((1, 5), dtype=np.float32)}]) == -math.inf
    assert snr_db(a, a) == 150
    assert abs(snr_db(a, [{"y": np.full((1, 4), 1.1, dtype=np.float32)}]) - 20) < 0.01
    shifted = [{"y": np.array([[1.0, 3.0]], dtype=np.float32)}]
    assert snr_db(shifted, shifted, centred=True) == 150
