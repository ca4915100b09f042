"""Which rungs a ladder opens, which it passes over, and how better ones come in."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from models.engines.ladder import LadderEngine, RungChanged, TimeLimits
from models.engines.quarantine import Quarantine
from models.errors import EngineError
from tests.models.engines.fakes import SUM, FakeFaults, FakeFaultyEngine, FakeSumEngine, rung
from tests.models.engines.ladders import SumLadder, x


def test_rungs_below_the_first_are_opened_when_they_are_needed() -> None:
    ladder = SumLadder(FakeFaults(at=1))
    assert ladder.opened == ["upper"]
    stream = ladder.engine.stream()
    stream.run(x(1))
    stream.run(x(1))
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
    first = SumLadder(FakeFaults(at=0, how="nan"), quarantine=Quarantine(path))
    first.engine.stream().run(x(1))
    again = SumLadder(FakeFaults(), quarantine=Quarantine(path))
    assert again.opened == ["middle"]
    assert again.engine.state().rungs[0].status == "quarantined"
    assert "not finite" in again.engine.state().rungs[0].reason
    rebuilt = LadderEngine(
        "sum", [rung("upper fp16", FakeSumEngine, key="another"), rung("b", FakeSumEngine)], [SUM],
        quarantine=Quarantine(path),
    )  # fmt: skip
    assert rebuilt.state().serving == "upper fp16"


def test_a_rung_is_tried_again_when_the_list_is_cleared() -> None:
    ladder = SumLadder(FakeFaults(at=1))
    stream = ladder.engine.stream()
    stream.run(x(1))
    stream.run(x(1))
    ladder.upper.faults.at = 10**9
    assert ladder.quarantine.clear() == 1
    ladder.engine.retry()
    assert ladder.engine.state().serving == "upper fp16"
    assert stream.run(x(1))["y"][0] == 3  # in mid-stream it stays where it is
    stream.reset()
    stream.run(x(1))
    assert ladder.upper.faults.runs == 3


def test_a_better_rung_is_taken_by_new_streams_at_once_and_by_others_when_they_begin_anew() -> None:
    events: list[RungChanged] = []
    slow = FakeFaultyEngine(FakeSumEngine(), FakeFaults())
    ladder = LadderEngine("sum", [rung("slow", lambda: slow)], [SUM], listener=events.append)
    old = ladder.stream()
    old.run(x(1))
    fast = FakeFaultyEngine(FakeSumEngine("float16"), FakeFaults())
    assert ladder.offer(rung("fast", lambda: fast))
    assert [(e.before, e.after, e.carried) for e in events] == [("slow", "fast", None)]
    ladder.stream().run(x(1))
    assert (fast.faults.runs, slow.faults.runs) == (1, 1)
    assert old.run(x(1))["y"][0] == 2
    assert slow.faults.runs == 2
    old.reset()
    assert old.run(x(1))["y"][0] == 1
    assert fast.faults.runs == 2
    assert not ladder.state().degraded


def test_streams_without_state_take_a_better_rung_at_their_next_run() -> None:
    a, b = (FakeFaultyEngine(FakeSumEngine(), FakeFaults()) for _ in range(2))
    ladder = LadderEngine("sum", [rung("slow", lambda: a)])
    stream = ladder.stream()
    stream.run(x(1))
    ladder.offer(rung("fast", lambda: b))
    stream.run(x(1))
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
    stream.run(x(1))
    assert ladder.replace(rung("cpu", FakeSumEngine), "one thread")
    assert stream.run(x(2))["y"][0] == 3  # in mid-utterance nothing changes
    assert gone() is not None
    stream.reset()
    assert stream.run(x(2))["y"][0] == 2
    gc.collect()
    assert gone() is None
    assert [row.status for row in ladder.state().rungs] == ["serving", "not opened"]


def test_a_rung_that_cannot_be_opened_anew_stays_as_it_is() -> None:
    def broken() -> Any:
        raise EngineError("no memory for a second one")

    ladder = LadderEngine("sum", [rung("cpu", FakeSumEngine)], [SUM])
    assert not ladder.replace(rung("cpu", broken), "one thread")
    assert not ladder.replace(rung("other", FakeSumEngine), "one thread")
    assert ladder.stream().run(x(1))["y"][0] == 1


def test_a_stream_whose_rung_was_replaced_and_then_fails_goes_over_to_the_replacement() -> None:
    faults = FakeFaults(at=1, how="raise")
    ladder = LadderEngine("sum", [rung("cpu", lambda: FakeFaultyEngine(FakeSumEngine(), faults))], [SUM])
    stream = ladder.stream()
    stream.run(x(1))
    assert ladder.replace(rung("cpu", FakeSumEngine), "one thread")
    assert stream.run(x(2))["y"][0] == 3


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
            made = [float(stream.run(x(1))["y"][0]) for _ in range(5)]
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
