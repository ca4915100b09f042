"""Recognitions at once, tried: what is made of the figures, and the process that makes them."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance import throughput
from appliance.measuring import Job
from appliance.throughput import ROUNDS, _ask, _measured, _Request, _Round, _tried_once, levels, tried
from hw.plan import Candidate, Plan, Timing, make_plan
from models import Store
from tests.hw.test_plan import ASR
from tests.hw.test_workers import VNNI

INT8 = Candidate("ort-cpu", "int8", "s8-dynamic", 1)
ROW = Timing(INT8, 100.0)
"""Ten a second, alone."""
OTHER = Timing(dataclasses.replace(INT8, threads=2), 90.0)


def _plan(*rows: Timing) -> Plan:
    return make_plan(VNNI, [dataclasses.replace(ASR, model="moonshine-base-en")], {"asr": rows})


def _answering(monkeypatch: pytest.MonkeyPatch, *rounds: _Round) -> list[_Request]:
    asked: list[_Request] = []

    def ask(store: Store, request: _Request, nice: int) -> list[_Round]:
        del store, nice
        asked.append(request)
        return list(rounds)

    monkeypatch.setattr(throughput, "_ask", ask)
    return asked


@given(st.integers(1, 300))
def test_one_and_what_is_planned_and_one_more_are_tried_and_few_others(planned: int) -> None:
    found = levels(planned)
    assert {1, planned, planned + 1} <= set(found)
    assert len(found) <= 4
    assert list(found) == sorted(found)


def test_the_best_round_of_each_number_counts_and_waits_are_those_of_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = [_Round(1, 9.0, 0.4), _Round(2, 14.0, 0.1), _Round(4, 20.0, 0.0), _Round(5, 19.0, 0.0)]
    rounds += [_Round(1, 10.0, 0.2), _Round(2, 19.0, 0.0), _Round(4, 17.0, 0.0), _Round(5, 20.04, 0.0)]
    asked = _answering(monkeypatch, *rounds)
    plan = _plan(ROW, OTHER)
    assert plan.workers.recognitions == 4
    found = tried(Store(), plan, {"asr": (ROW, OTHER), "tts": (OTHER,)})
    assert asked == [_Request(Job("asr", "moonshine-base-en", INT8), (1, 2, 4, 5), ())]
    wanted = dataclasses.replace(ROW, waits=0.2, at_once=((1, 10.0), (2, 19.0), (4, 20.0), (5, 20.04)))
    assert found == {"asr": (wanted, OTHER), "tts": (OTHER,)}
    workers = _plan(*found["asr"]).workers
    assert (workers.recognitions, workers.measured) == (2, True)


@pytest.mark.parametrize(
    "rounds",
    [
        [],
        [_Round(1, 10.0, 0.0), _Round(2, 18.0, 0.0)],  # it died before the others
        [_Round(level, 5.0 * level, 1.5) for level in (1, 2, 4, 5)],  # something else is at work here
    ],
)
def test_figures_that_tell_nothing_leave_it_to_the_rule(monkeypatch: pytest.MonkeyPatch, rounds: list[_Round]) -> None:
    asked = _answering(monkeypatch, *rounds)
    assert tried(Store(), _plan(ROW), {"asr": (ROW,)}) == {"asr": (ROW,)}
    assert asked


def test_what_was_not_timed_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _answering(monkeypatch)
    assert tried(Store(), _plan(), {}) == {}
    assert not asked


@given(st.floats(0.1, 1e4), st.lists(st.builds(_Round, st.integers(1, 3), st.floats(0, 1e3), st.floats(-1, 50))))
def test_any_rounds_make_a_timing_that_can_be_planned_with(ms: float, rounds: list[_Round]) -> None:
    row = _measured(Timing(INT8, ms), (1, 2), rounds)
    assert row.waits is None or row.waits >= 0.0
    assert _plan(row).workers.recognitions >= 1


def test_all_at_once_are_at_once_and_whoever_waits_is_seen_to() -> None:
    together, met = threading.Barrier(3), threading.local()

    def work() -> None:
        if not hasattr(met, "others"):
            met.others = together.wait(timeout=10.0)  # only passed if all three are there
        time.sleep(0.02)

    found = _tried_once([work] * 3, threads=1)
    assert found.at_once == 3
    assert found.per_s > 0.0
    assert found.waits > 1.0


@pytest.mark.models
@pytest.mark.slow
def test_the_process_tries_each_number_in_each_round() -> None:
    request = _Request(Job("asr", "moonshine-base-en", Candidate("ort-cpu", "fp32", None, 1)), (1, 2), ())
    rounds = _ask(Store(), request, 0)
    assert [one.at_once for one in rounds] == [1, 2] * ROUNDS
    assert all(one.per_s > 0.0 for one in rounds)


@pytest.mark.models
def test_a_process_that_cannot_do_it_tells_nothing() -> None:
    request = _Request(Job("asr", "moonshine-base-en", Candidate("ort-cpu", "fp16", None, 1)), (1,), ())
    assert _ask(Store(), request, 0) == []
