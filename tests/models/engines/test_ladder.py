"""The ladder over fakes: who takes over when, from which state, who is blamed, and what is remembered."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.engines.base import HELD_BYTES, StateTensor
from models.engines.ladder import LadderEngine, RungChanged, TimeLimits
from models.engines.quarantine import Quarantine
from models.engines.watchdog import Watchdog
from models.errors import EngineError, EngineHungError, StreamLostError
from tests.models.engines.fakes import QUICK, SUM, Break, FakeFaults, FakeFaultyEngine, FakeSumEngine, rung

BREAKS: tuple[Break, ...] = ("raise", "hang", "nan")


def _x(value: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.array([value, -value], dtype=np.float32)}


@pytest.fixture
def released() -> Iterator[list[FakeFaults]]:
    """Faults whose hanging calls are let go at the end."""
    made: list[FakeFaults] = []
    yield made
    for faults in made:
        faults.release.set()


class Ladder:
    """A ladder of three rungs over sums, the upper two breakable, and what it told its listener."""

    def __init__(self, upper: FakeFaults, middle: FakeFaults | None = None, quarantine: Quarantine | None = None):
        self.events: list[RungChanged] = []
        self.quarantine = quarantine or Quarantine(None)
        self.watchdog = Watchdog("test")
        self._made: dict[str, Callable[[], Any]] = {
            "upper": lambda: FakeFaultyEngine(FakeSumEngine("float16"), upper),
            "middle": lambda: FakeFaultyEngine(FakeSumEngine(), middle or FakeFaults()),
            "lower": FakeSumEngine,
        }
        self.upper, self.middle, self.lower = (make() for make in self._made.values())
        self.opened: list[str] = []
        self.engine = LadderEngine(
            "sum",
            [
                rung("upper fp16", self._opener("upper")),
                rung("middle fp32", self._opener("middle")),
                rung("lower fp32", self._opener("lower"), limits=None),
            ],
            [SUM],
            quarantine=self.quarantine,
            watchdog=self.watchdog,
            listener=self.events.append,
        )

    def _opener(self, name: str) -> Callable[[], Any]:
        def open_() -> Any:
            if name in self.opened:
                setattr(self, name, self._made[name]())
            self.opened.append(name)
            return getattr(self, name)

        return open_


# ---- taking over ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose_state", [False, True])
@pytest.mark.parametrize("how", BREAKS)
def test_a_fault_in_mid_stream_is_not_heard(how: Break, lose_state: bool, released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=3, how=how, lose_state=lose_state)
    released.append(faults)
    ladder = Ladder(faults)
    stream = ladder.engine.stream()
    totals = [stream.run(_x(n))["y"].tolist() for n in range(1, 7)]
    assert totals == [[t, -t] for t in (1, 3, 6, 10, 15, 21)]
    (event,) = ladder.events
    assert (event.task, event.before, event.after) == ("sum", "upper fp16", "middle fp32")
    assert event.carried == ("replay" if how == "hang" or lose_state else "state")
    assert stream.snapshot()["total"].dtype == np.float32


@pytest.mark.parametrize("how", BREAKS)
def test_two_rungs_may_fail_in_one_run(how: Break, released: list[FakeFaults]) -> None:
    upper, middle = FakeFaults(at=2, how=how), FakeFaults(at=0, how="raise")
    released.append(upper)
    ladder = Ladder(upper, middle)
    stream = ladder.engine.stream()
    assert [stream.run(_x(1))["y"][0] for _ in range(4)] == [1, 2, 3, 4]
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
    stream, total = Ladder(FakeFaults(at=at, how=how, lose_state=lose)).engine.stream(), 0
    for number, value in enumerate(values):
        if number in resets:
            stream.reset()
            total = 0
        if number in snapshots:
            kept = stream.snapshot()
            stream.run(_x(7))
            stream.restore(kept)
        total += value
        assert stream.run(_x(value))["y"].tolist() == [total, -total]


def test_other_streams_go_over_when_they_begin_anew(released: list[FakeFaults]) -> None:
    ladder = Ladder(FakeFaults(at=4, how="raise"))
    a, b = ladder.engine.stream(), ladder.engine.stream()
    for _ in range(2):
        a.run(_x(1))
        b.run(_x(10))
    assert a.run(_x(1))["y"][0] == 3  # breaks, goes to the middle
    b.reset()
    assert b.run(_x(10))["y"][0] == 10
    assert ladder.upper.faults.runs == 5  # b did not try the broken one
    assert len(ladder.events) == 1


def test_a_stream_that_runs_on_a_hung_engine_leaves_it_at_once(released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=2, how="hang")
    released.append(faults)
    ladder = Ladder(faults)
    a, b = ladder.engine.stream(), ladder.engine.stream()
    a.run(_x(1))
    b.run(_x(10))
    assert a.run(_x(1))["y"][0] == 2
    assert b.run(_x(10))["y"][0] == 20
    assert faults.runs == 3
    assert ladder.watchdog.abandoned == 1
    ladder.engine.close()
    assert not ladder.upper.closed  # a call is still in it
    assert ladder.middle.closed


def test_a_long_stream_is_made_again_from_a_new_base_and_not_from_its_beginning(released: list[FakeFaults]) -> None:
    ladder = Ladder(FakeFaults(at=700, how="raise", lose_state=True))
    stream = ladder.engine.stream()
    values = [stream.run(_x(1))["y"][0] for _ in range(702)]
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


# ---- blame ------------------------------------------------------------------------------------------


def test_inputs_that_every_rung_refuses_are_the_callers_mistake() -> None:
    ladder = Ladder(FakeFaults())
    stream = ladder.engine.stream()
    stream.run(_x(1))
    with pytest.raises(EngineError, match=r"wants inputs \['x'\]"):
        stream.run({"z": np.zeros(2, np.float32)})
    assert ladder.events == []
    assert ladder.quarantine.entries() == ()
    assert ladder.engine.state().serving == "upper fp16"
    assert stream.run(_x(1))["y"][0] == 2


def test_infinities_on_every_rung_are_an_error_and_not_handed_out() -> None:
    ladder = Ladder(FakeFaults())
    stream = ladder.engine.stream()
    stream.run(_x(1))
    with pytest.raises(EngineError, match="sum on upper fp16: output y is not finite"):
        stream.run(_x(float("inf")))
    assert ladder.quarantine.entries() == ()
    assert stream.run(_x(1))["y"][0] == 2  # the state from before


def test_the_last_rung_is_never_put_away() -> None:
    faults = FakeFaults(at=1)
    ladder = LadderEngine("sum", [rung("only", lambda: FakeFaultyEngine(FakeSumEngine(), faults))], [SUM])
    stream = ladder.stream()
    stream.run(_x(1))
    with pytest.raises(EngineError, match="told to fail"):
        stream.run(_x(1))
    faults.at = 10**9
    assert stream.run(_x(1))["y"][0] == 2
    assert ladder.state().serving == "only"


def test_an_error_that_may_pass_puts_a_rung_aside_and_is_not_remembered() -> None:
    class PassingError(EngineError):
        retry = True

    ladder = Ladder(FakeFaults(at=1, error=PassingError("no memory just now")))
    stream = ladder.engine.stream()
    assert [stream.run(_x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    row = ladder.engine.state().rungs[0]
    assert (row.status, row.reason) == ("set aside", "no memory just now")
    assert ladder.quarantine.entries() == ()


def test_an_error_of_no_known_class_is_a_fault_too() -> None:
    ladder = Ladder(FakeFaults(at=1, error=RuntimeError("driver: 719")))
    stream = ladder.engine.stream()
    assert [stream.run(_x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    (entry,) = ladder.quarantine.entries()
    assert (entry.kind, entry.reason, entry.rung) == ("error", "driver: 719", "upper fp16")


def _closed_soon(engine: FakeFaultyEngine) -> bool:
    for _ in range(200):
        if engine.closed:
            return True
        threading.Event().wait(0.01)
    return False


def test_the_weights_of_a_failed_engine_go_when_its_last_stream_has_left() -> None:
    ladder = Ladder(FakeFaults(at=2))
    a, b = ladder.engine.stream(), ladder.engine.stream()
    a.run(_x(1))
    b.run(_x(1))
    assert a.run(_x(1))["y"][0] == 2
    assert not ladder.upper.closed
    b.reset()
    assert _closed_soon(ladder.upper)
    assert b.run(_x(1))["y"][0] == 1


def test_a_rung_whose_weights_are_gone_is_opened_again_when_it_is_tried_again() -> None:
    ladder = Ladder(FakeFaults(at=0))
    stream = ladder.engine.stream()
    stream.run(_x(1))
    assert _closed_soon(ladder.upper)
    ladder.upper.faults.at = 10**9
    ladder.quarantine.clear()
    ladder.engine.retry()
    assert ladder.opened == ["upper", "middle", "upper"]
    stream.reset()
    assert stream.run(_x(1))["y"][0] == 1
    assert ladder.engine.state().serving == "upper fp16"


def test_a_listener_that_fails_costs_no_word() -> None:
    def fail(event: RungChanged) -> None:
        raise ValueError(event.after)

    faults = FakeFaults(at=1)
    rungs = [rung("a", lambda: FakeFaultyEngine(FakeSumEngine(), faults)), rung("b", FakeSumEngine)]
    stream = LadderEngine("sum", rungs, [SUM], listener=fail).stream()
    assert [stream.run(_x(1))["y"][0] for _ in range(3)] == [1, 2, 3]


# ---- opening, quarantine and offers -----------------------------------------------------------------


def test_rungs_below_the_first_are_opened_when_they_are_needed() -> None:
    ladder = Ladder(FakeFaults(at=1))
    assert ladder.opened == ["upper"]
    stream = ladder.engine.stream()
    stream.run(_x(1))
    stream.run(_x(1))
    assert ladder.opened == ["upper", "middle"]


def test_a_rung_that_cannot_be_opened_is_passed_over_loudly() -> None:
    events: list[RungChanged] = []

    def absent() -> Any:
        raise ImportError("no module named tensorrt")

    ladder = LadderEngine("sum", [rung("a", absent), rung("b", FakeSumEngine)], [SUM], listener=events.append)
    assert ladder.state().serving == "b"
    assert [(e.before, e.after) for e in events] == [(None, "b")]
    assert "no module named tensorrt" in events[0].reason
    assert ladder.state().degraded


def test_no_rung_at_all_is_an_error_with_every_reason() -> None:
    def absent() -> Any:
        raise ImportError("not there")

    with pytest.raises(EngineError, match=r"no rung can be opened: a: not there; b: not there"):
        LadderEngine("sum", [rung("a", absent), rung("b", absent)])


def test_opening_that_hangs_is_passed_over(released: list[FakeFaults]) -> None:
    gate = FakeFaults()
    released.append(gate)

    def hang() -> Any:
        gate.release.wait()

    slow = rung("a", hang, limits=TimeLimits(open_s=0.2))
    assert LadderEngine("sum", [slow, rung("b", FakeSumEngine)], [SUM]).state().serving == "b"


def test_what_failed_is_not_tried_at_the_next_start_until_it_is_another_engine(tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    first = Ladder(FakeFaults(at=0, how="nan"), quarantine=Quarantine(path))
    first.engine.stream().run(_x(1))
    again = Ladder(FakeFaults(), quarantine=Quarantine(path))
    assert again.opened == ["middle"]
    assert again.engine.state().rungs[0].status == "quarantined"
    assert "not finite" in again.engine.state().rungs[0].reason
    rebuilt = LadderEngine(
        "sum", [rung("upper fp16", FakeSumEngine, key="another"), rung("b", FakeSumEngine)], [SUM],
        quarantine=Quarantine(path),
    )  # fmt: skip
    assert rebuilt.state().serving == "upper fp16"


def test_a_rung_is_tried_again_when_the_list_is_cleared() -> None:
    ladder = Ladder(FakeFaults(at=1))
    stream = ladder.engine.stream()
    stream.run(_x(1))
    stream.run(_x(1))
    ladder.upper.faults.at = 10**9
    assert ladder.quarantine.clear() == 1
    ladder.engine.retry()
    assert ladder.engine.state().serving == "upper fp16"
    assert stream.run(_x(1))["y"][0] == 3  # in mid-stream it stays where it is
    stream.reset()
    stream.run(_x(1))
    assert ladder.upper.faults.runs == 3


def test_a_better_rung_is_taken_by_new_streams_at_once_and_by_others_when_they_begin_anew() -> None:
    events: list[RungChanged] = []
    slow = FakeFaultyEngine(FakeSumEngine(), FakeFaults())
    ladder = LadderEngine("sum", [rung("slow", lambda: slow)], [SUM], listener=events.append)
    old = ladder.stream()
    old.run(_x(1))
    fast = FakeFaultyEngine(FakeSumEngine("float16"), FakeFaults())
    assert ladder.offer(rung("fast", lambda: fast))
    assert [(e.before, e.after, e.carried) for e in events] == [("slow", "fast", None)]
    ladder.stream().run(_x(1))
    assert (fast.faults.runs, slow.faults.runs) == (1, 1)
    assert old.run(_x(1))["y"][0] == 2
    assert slow.faults.runs == 2
    old.reset()
    assert old.run(_x(1))["y"][0] == 1
    assert fast.faults.runs == 2
    assert not ladder.state().degraded


def test_streams_without_state_take_a_better_rung_at_their_next_run() -> None:
    a, b = (FakeFaultyEngine(FakeSumEngine(), FakeFaults()) for _ in range(2))
    ladder = LadderEngine("sum", [rung("slow", lambda: a)])
    stream = ladder.stream()
    stream.run(_x(1))
    ladder.offer(rung("fast", lambda: b))
    stream.run(_x(1))
    assert (a.faults.runs, b.faults.runs) == (1, 1)


def test_an_offer_takes_the_place_of_the_rung_of_its_name_that_failed() -> None:
    def absent() -> Any:
        raise EngineError("not built yet")

    ladder = LadderEngine("sum", [rung("trt", absent), rung("cpu", FakeSumEngine)], [SUM])
    assert ladder.offer(rung("trt", FakeSumEngine))
    assert [r.name for r in ladder.state().rungs] == ["trt", "cpu"]
    assert not ladder.state().degraded


def test_an_offer_that_fails_or_is_quarantined_changes_nothing() -> None:
    def broken() -> Any:
        raise EngineError("plan of another version")

    quarantine = Quarantine(None)
    quarantine.add("bad", task="sum", rung="x", kind="hang", reason="hung")
    ladder = LadderEngine("sum", [rung("cpu", FakeSumEngine)], [SUM], quarantine=quarantine)
    assert not ladder.offer(rung("trt", broken))
    assert not ladder.offer(rung("trt2", FakeSumEngine, key="bad"))
    assert ladder.state().serving == "cpu"
    assert {r.name: r.reason for r in ladder.state().rungs if r.reason} == {
        "trt": "plan of another version",
        "trt2": "hung",
    }


def test_a_rung_opened_anew_takes_streams_over_at_their_next_reset_and_the_old_weights_go() -> None:
    old = [FakeSumEngine()]
    gone = weakref.ref(old[0])
    ladder = LadderEngine("sum", [rung("cpu", old.pop), rung("numpy", FakeSumEngine)], [SUM])
    stream = ladder.stream()
    stream.run(_x(1))
    assert ladder.replace(rung("cpu", FakeSumEngine), "one thread")
    assert stream.run(_x(2))["y"][0] == 3  # in mid-utterance nothing changes
    assert gone() is not None
    stream.reset()
    assert stream.run(_x(2))["y"][0] == 2
    gc.collect()
    assert gone() is None
    assert [row.status for row in ladder.state().rungs] == ["serving", "not opened"]


def test_a_rung_that_cannot_be_opened_anew_stays_as_it_is() -> None:
    def broken() -> Any:
        raise EngineError("no memory for a second one")

    ladder = LadderEngine("sum", [rung("cpu", FakeSumEngine)], [SUM])
    assert not ladder.replace(rung("cpu", broken), "one thread")
    assert not ladder.replace(rung("other", FakeSumEngine), "one thread")
    assert ladder.stream().run(_x(1))["y"][0] == 1


def test_a_stream_whose_rung_was_replaced_and_then_fails_goes_over_to_the_replacement() -> None:
    faults = FakeFaults(at=1, how="raise")
    ladder = LadderEngine("sum", [rung("cpu", lambda: FakeFaultyEngine(FakeSumEngine(), faults))], [SUM])
    stream = ladder.stream()
    stream.run(_x(1))
    assert ladder.replace(rung("cpu", FakeSumEngine), "one thread")
    assert stream.run(_x(2))["y"][0] == 3


def test_a_failed_offer_does_not_stand_beside_the_rung_of_its_name_that_serves() -> None:
    def broken() -> Any:
        raise EngineError("plan of another version")

    ladder = LadderEngine("sum", [rung("trt", FakeSumEngine), rung("cpu", FakeSumEngine)], [SUM])
    assert not ladder.offer(rung("trt", broken))
    state = ladder.state()
    assert ([r.name for r in state.rungs], state.serving, state.degraded) == (["trt", "cpu"], "trt", False)


def test_a_swap_under_load_loses_nothing() -> None:
    ladder = LadderEngine("sum", [rung("slow", FakeSumEngine)], [SUM])
    wrong: list[float] = []

    def talk() -> None:
        stream = ladder.stream()
        for _ in range(60):
            stream.reset()
            made = [float(stream.run(_x(1))["y"][0]) for _ in range(5)]
            if made != [1, 2, 3, 4, 5]:
                wrong.extend(made)

    threads = [threading.Thread(target=talk) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(5):
        ladder.offer(rung(f"fast{number}", FakeSumEngine))
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert ladder.state().serving == "fast4"


def test_a_closed_ladder_refuses() -> None:
    ladder = Ladder(FakeFaults())
    stream = ladder.engine.stream()
    ladder.engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.run(_x(1))
    with pytest.raises(EngineError, match="closed"):
        ladder.engine.stream()
    assert ladder.upper.closed
    assert ladder.quarantine.entries() == ()


def test_the_state_says_how_long_a_run_takes() -> None:
    ladder = Ladder(FakeFaults())
    assert ladder.engine.state().rungs[0].run_ms is None
    ladder.engine.stream().run(_x(1))
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


def test_watchdog_hands_on_errors_keeps_its_threads_and_gives_up_on_time() -> None:
    watchdog, gate = Watchdog(), threading.Event()

    def fail() -> None:
        raise ValueError("as it is")

    for _ in range(50):
        assert watchdog.call(lambda: 7, 5) == 7
    with pytest.raises(ValueError, match="as it is"):
        watchdog.call(fail, 5)
    assert watchdog.workers == 1
    with pytest.raises(EngineHungError, match=r"within 0\.05 s"):
        watchdog.call(gate.wait, 0.05)
    assert (watchdog.workers, watchdog.abandoned) == (0, 1)
    gate.set()
    assert watchdog.call(lambda: 8, 5) == 8
    for _ in range(200):
        if watchdog.abandoned == 0:
            break
        threading.Event().wait(0.01)
    assert watchdog.abandoned == 0


@pytest.mark.parametrize("how", BREAKS)
def test_many_streams_fall_at_once_and_none_counts_wrong(how: Break, released: list[FakeFaults]) -> None:
    faults = FakeFaults(at=20, how=how)
    released.append(faults)
    ladder = Ladder(faults)
    results: list[list[float]] = []

    def talk(step: float) -> None:
        stream = ladder.engine.stream()
        results.append([float(stream.run(_x(step))["y"][0]) / step for _ in range(12)])

    threads = [threading.Thread(target=talk, args=(float(n),)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[float(n) for n in range(1, 13)]] * 5
    assert [(e.before, e.after) for e in ladder.events] == [("upper fp16", "middle fp32")]
