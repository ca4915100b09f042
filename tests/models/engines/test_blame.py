"""Who is blamed for a fault, and what becomes of a rung that is put away."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from models.engines.ladder import LadderEngine, RungChanged
from models.errors import EngineError, UncoveredShapeError
from tests.models.engines.fakes import SUM, FakeFaults, FakeFaultyEngine, FakeSumEngine, rung
from tests.models.engines.ladders import SumLadder, x


def test_inputs_that_every_rung_refuses_are_the_callers_mistake() -> None:
    ladder = SumLadder(FakeFaults())
    stream = ladder.engine.stream()
    stream.run(x(1))
    with pytest.raises(EngineError, match=r"wants inputs \['x'\]"):
        stream.run({"z": np.zeros(2, np.float32)})
    assert ladder.events == []
    assert ladder.quarantine.entries() == ()
    assert ladder.engine.state().serving == "upper fp16"
    assert stream.run(x(1))["y"][0] == 2


def test_infinities_on_every_rung_are_an_error_and_not_handed_out() -> None:
    ladder = SumLadder(FakeFaults())
    stream = ladder.engine.stream()
    stream.run(x(1))
    with pytest.raises(EngineError, match="sum on upper fp16: output y is not finite"):
        stream.run(x(float("inf")))
    assert ladder.quarantine.entries() == ()
    assert stream.run(x(1))["y"][0] == 2  # the state from before


def test_the_last_rung_is_never_put_away() -> None:
    faults = FakeFaults(at=1)
    ladder = LadderEngine("sum", [rung("only", lambda: FakeFaultyEngine(FakeSumEngine(), faults))], [SUM])
    stream = ladder.stream()
    stream.run(x(1))
    with pytest.raises(EngineError, match="told to fail"):
        stream.run(x(1))
    faults.at = 10**9
    assert stream.run(x(1))["y"][0] == 2
    assert ladder.state().serving == "only"


def test_an_error_that_may_pass_puts_a_rung_aside_and_is_not_remembered() -> None:
    class PassingError(EngineError):
        retry = True

    ladder = SumLadder(FakeFaults(at=1, error=PassingError("no memory just now")))
    stream = ladder.engine.stream()
    assert [stream.run(x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    row = ladder.engine.state().rungs[0]
    assert (row.status, row.reason) == ("set aside", "no memory just now")
    assert ladder.quarantine.entries() == ()


def test_an_error_of_no_known_class_is_a_fault_too() -> None:
    ladder = SumLadder(FakeFaults(at=1, error=RuntimeError("driver: 719")))
    stream = ladder.engine.stream()
    assert [stream.run(x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    (entry,) = ladder.quarantine.entries()
    assert (entry.kind, entry.reason, entry.rung) == ("error", "driver: 719", "upper fp16")


def _closed_soon(engine: FakeFaultyEngine) -> bool:
    for _ in range(200):
        if engine.closed:
            return True
        threading.Event().wait(0.01)
    return False


def test_the_weights_of_a_failed_engine_go_when_its_last_stream_has_left() -> None:
    ladder = SumLadder(FakeFaults(at=2))
    a, b = ladder.engine.stream(), ladder.engine.stream()
    a.run(x(1))
    b.run(x(1))
    assert a.run(x(1))["y"][0] == 2
    assert not ladder.upper.closed
    b.reset()
    assert _closed_soon(ladder.upper)
    assert b.run(x(1))["y"][0] == 1


def test_a_rung_whose_weights_are_gone_is_opened_again_when_it_is_tried_again() -> None:
    ladder = SumLadder(FakeFaults(at=0))
    stream = ladder.engine.stream()
    stream.run(x(1))
    assert _closed_soon(ladder.upper)
    ladder.upper.faults.at = 10**9
    ladder.quarantine.clear()
    ladder.engine.retry()
    assert ladder.opened == ["upper", "middle", "upper"]
    stream.reset()
    assert stream.run(x(1))["y"][0] == 1
    assert ladder.engine.state().serving == "upper fp16"


def test_a_listener_that_fails_costs_no_word() -> None:
    def fail(event: RungChanged) -> None:
        raise ValueError(event.after)

    faults = FakeFaults(at=1)
    rungs = [rung("a", lambda: FakeFaultyEngine(FakeSumEngine(), faults)), rung("b", FakeSumEngine)]
    stream = LadderEngine("sum", rungs, [SUM], listener=fail).stream()
    assert [stream.run(x(1))["y"][0] for _ in range(3)] == [1, 2, 3]


def test_a_rung_that_has_no_room_for_a_run_is_not_put_away_and_serves_again_from_the_next_reset() -> None:
    ladder = SumLadder(FakeFaults(at=1, error=UncoveredShapeError("no profile covers x [1, 90]")))
    stream, other = ladder.engine.stream(), ladder.engine.stream()
    assert [stream.run(x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    assert ladder.events == []
    assert ladder.quarantine.entries() == ()
    assert [(r.name, r.status, r.reason) for r in ladder.engine.state().rungs][:2] == [
        ("upper fp16", "serving", ""),
        ("middle fp32", "ready", ""),
    ]
    assert ladder.upper.faults.runs == 2
    ladder.upper.faults.at = 10**9
    other.run(x(1))
    stream.reset()
    assert stream.run(x(1))["y"][0] == 1
    assert ladder.upper.faults.runs == 4


def test_of_two_rungs_that_fail_in_one_run_only_the_broken_one_is_put_away() -> None:
    upper = FakeFaults(at=1, error=UncoveredShapeError("no profile covers x [1, 90]"))
    ladder = SumLadder(upper, FakeFaults(at=0))
    stream = ladder.engine.stream()
    assert [stream.run(x(1))["y"][0] for _ in range(3)] == [1, 2, 3]
    assert [r.status for r in ladder.engine.state().rungs] == ["serving", "quarantined", "ready"]
    assert ladder.events == []


def test_the_weights_of_a_failed_engine_go_too_when_its_last_stream_was_only_let_go() -> None:
    ladder = SumLadder(FakeFaults(at=2))
    a, b = ladder.engine.stream(), ladder.engine.stream()
    a.run(x(1))
    b.run(x(1))
    assert a.run(x(1))["y"][0] == 2
    assert not ladder.upper.closed
    del b
    gc.collect()
    ladder.engine.stream()
    assert _closed_soon(ladder.upper)
