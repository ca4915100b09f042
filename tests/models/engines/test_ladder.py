"""The ladder over fakes: who takes over when, and from which state."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engines.base import HELD_BYTES, StateTensor
from models.engines.ladder import LadderEngine
from models.engines.watchdog import Watchdog
from models.errors import EngineError, StreamLostError
from tests.models.engines.fakes import QUICK, SUM, Break, FakeFaults, FakeFaultyEngine, FakeSumEngine, rung
from tests.models.engines.ladders import SumLadder, x

BREAKS: tuple[Break, ...] = ("raise", "hang", "nan")


@pytest.mark.parametrize("lose_state", [False, True])
@pytest.mark.parametrize("how", BREAKS)
def test_a_fault_in_mid_stream_is_not_heard(how: Break, lose_state: bool, released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=3, how=how, lose_state=lose_state)
    released.append(faults)
    ladder = SumLadder(faults)
    stream = ladder.engine.stream()
    totals = [stream.run(x(n))["y"].tolist() for n in range(1, 7)]
    assert totals == [[t, -t] for t in (1, 3, 6, 10, 15, 21)]
    (event,) = ladder.events
    assert (event.task, event.before, event.after) == ("sum", "upper fp16", "middle fp32")
    assert event.carried == ("replay" if how == "hang" or lose_state else "state")
    assert stream.snapshot()["total"].dtype == np.float32


@pytest.mark.parametrize("how", BREAKS)
def test_two_rungs_may_fail_in_one_run(how: Break, released: list[FakeFaults]) -> None:
    upper, middle = FakeFaults(at=2, how=how), FakeFaults(at=0, how="raise")
    released.append(upper)
    ladder = SumLadder(upper, middle)
    stream = ladder.engine.stream()
    assert [stream.run(x(1))["y"][0] for _ in range(4)] == [1, 2, 3, 4]
    state = ladder.engine.state()
    assert state.serving == "lower fp32"
    assert state.degraded
    assert [r.status for r in state.rungs] == ["quarantined", "quarantined", "serving"]


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(st.integers(-30, 30), min_size=1, max_size=12),
    at=st.integers(0, 12),
    how=st.sampled_from(["raise", "nan"]),
    lose=st.booleans(),
    resets=st.sets(st.integers(0, 11)),
    snapshots=st.sets(st.integers(0, 11)),
)
def test_wherever_it_breaks_the_sums_are_right(
    values: list[int], at: int, how: Break, lose: bool, resets: set[int], snapshots: set[int]
) -> None:
    stream, total = SumLadder(FakeFaults(at=at, how=how, lose_state=lose)).engine.stream(), 0
    for number, value in enumerate(values):
        if number in resets:
            stream.reset()
            total = 0
        if number in snapshots:
            kept = stream.snapshot()
            stream.run(x(7))
            stream.restore(kept)
        total += value
        assert stream.run(x(value))["y"].tolist() == [total, -total]


def test_other_streams_go_over_when_they_begin_anew(released: list[FakeFaults]) -> None:
    ladder = SumLadder(FakeFaults(at=4, how="raise"))
    a, b = ladder.engine.stream(), ladder.engine.stream()
    for _ in range(2):
        a.run(x(1))
        b.run(x(10))
    assert a.run(x(1))["y"][0] == 3  # breaks, goes to the middle
    b.reset()
    assert b.run(x(10))["y"][0] == 10
    assert ladder.upper.faults.runs == 5  # b did not try the broken one
    assert len(ladder.events) == 1


def test_a_stream_that_runs_on_a_hung_engine_leaves_it_at_once(released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=2, how="hang")
    released.append(faults)
    ladder = SumLadder(faults)
    a, b = ladder.engine.stream(), ladder.engine.stream()
    a.run(x(1))
    b.run(x(10))
    assert a.run(x(1))["y"][0] == 2
    assert b.run(x(10))["y"][0] == 20
    assert faults.runs == 3
    assert ladder.watchdog.abandoned == 1
    ladder.engine.close()
    assert not ladder.upper.closed  # a call is still in it
    assert ladder.middle.closed


def test_a_long_stream_is_made_again_from_a_new_base_and_not_from_its_beginning(released: list[FakeFaults]) -> None:
    ladder = SumLadder(FakeFaults(at=700, how="raise", lose_state=True))
    stream = ladder.engine.stream()
    values = [stream.run(x(1))["y"][0] for _ in range(702)]
    assert values[-1] == 702
    assert ladder.middle.faults.runs < 256 + 3


@pytest.mark.parametrize("kept", [True, False])
def test_a_large_input_is_not_held_and_a_stream_that_needs_it_says_so(kept: bool) -> None:
    size = HELD_BYTES // 4
    tensor = StateTensor("total", "next_total", (size,))

    def engine() -> FakeSumEngine:
        made = FakeSumEngine()
        made.states = (tensor,)
        return made

    upper = FakeFaultyEngine(engine(), FakeFaults(at=1, lose_state=True))
    stream = LadderEngine("sum", [rung("a", lambda: upper), rung("b", engine)], [tensor]).stream()
    large = {"x": np.ones(size, np.float32)}
    stream.run(large)
    if kept:
        assert stream.run(large)["y"][0] == 2
        return
    large = {"x": np.ones(size, np.float32)}
    gc.collect()
    with pytest.raises(StreamLostError, match="input x is gone"):
        stream.run(large)
    stream.reset()
    assert stream.run(large)["y"][0] == 1


@pytest.mark.parametrize("how", BREAKS)
def test_many_streams_fall_at_once_and_none_counts_wrong(how: Break, released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=20, how=how)
    released.append(faults)
    ladder = SumLadder(faults)
    results: list[list[float]] = []

    def talk(step: float) -> None:
        stream = ladder.engine.stream()
        results.append([float(stream.run(x(step))["y"][0]) / step for _ in range(12)])

    threads = [threading.Thread(target=talk, args=(float(n),)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[float(n) for n in range(1, 13)]] * 5
    assert [(e.before, e.after) for e in ladder.events] == [("upper fp16", "middle fp32")]


# ---- closing, and what is seen of it -----------------------------------------------------------------


def test_a_closed_ladder_refuses() -> None:
    ladder = SumLadder(FakeFaults())
    stream = ladder.engine.stream()
    ladder.engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.run(x(1))
    with pytest.raises(EngineError, match="closed"):
        ladder.engine.stream()
    assert ladder.upper.closed
    assert ladder.quarantine.entries() == ()


def test_the_state_says_how_long_a_run_takes() -> None:
    ladder = SumLadder(FakeFaults())
    assert ladder.engine.state().rungs[0].run_ms is None
    ladder.engine.stream().run(x(1))
    assert [row.run_ms is not None and row.run_ms >= 0 for row in ladder.engine.state().rungs] == [True, False, False]


def test_an_engine_that_cannot_be_closed_keeps_no_other_from_it(released: list[FakeFaults]) -> None:
    gate = FakeFaults()
    released.append(gate)

    class Sticking(FakeSumEngine):
        def close(self) -> None:
            gate.release.wait()

    class Failing(FakeSumEngine):
        def close(self) -> None:
            raise RuntimeError("driver: 4")

    last = FakeSumEngine()
    ladder = LadderEngine("sum", [rung("a", lambda: last)], [SUM])
    assert ladder.offer(rung("b", Failing))
    assert ladder.offer(rung("c", Sticking))
    ladder.close()
    assert last.closed


def test_only_a_rung_that_is_watched_runs_on_another_thread() -> None:
    seen: list[str] = []

    class Seeing(FakeSumEngine):
        def stream(self) -> Any:
            seen.append(threading.current_thread().name)
            return super().stream()

    watchdog = Watchdog("seen")
    for limits in (None, QUICK):
        LadderEngine("sum", [rung("a", Seeing, limits=limits)], [SUM], watchdog=watchdog).stream()
    assert seen == [threading.current_thread().name, "seen-run"]
