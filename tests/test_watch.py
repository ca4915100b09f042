"""The watch beside the appliance: heat told once a level, sensors as events, engines measured only in quiet."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance import events, watch
from appliance.events import Event
from appliance.planning import MeasuringError, current_plan
from appliance.watch import MachineWatch
from hw.probe import Machine, ReplayRunner, Root
from hw.thermal import DOWN_AFTER, UP_AFTER, HeatAdvice
from models import Store

ZONE = "sys/class/thermal/thermal_zone0"


class Room:
    """A machine in a folder, whose temperature is set by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.store = folder / "root", Store(folder / "store")
        zone = self.root / ZONE
        zone.mkdir(parents=True)
        (zone / "type").write_text("cpu-thermal\n")
        (zone / "trip_point_0_type").write_text("passive\n")
        (zone / "trip_point_0_temp").write_text("80000\n")
        self.told: list[HeatAdvice] = []
        self.events: list[Event] = []
        self.idle_s = 1000.0
        self.measured = 0
        monkeypatch.setattr(watch, "this_machine", lambda store, fresh: Machine(arch="x86_64"))
        self.watch = self.make()

    def make(self, *, may_measure: bool = True) -> MachineWatch:
        return MachineWatch(
            self.store,
            current_plan(self.store, Machine(arch="x86_64")),
            self.events.append,
            self.told.append,
            lambda: self.idle_s,
            may_measure=may_measure,
            root=Root(self.root),
            runner=ReplayRunner(Root(self.root)),
            interval_s=0.01,
        )

    def at(self, celsius: float, times: int = 1) -> None:
        (self.root / ZONE / "temp").write_text(f"{round(celsius * 1000)}\n")
        for _ in range(times):
            self.watch.look()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(tmp_path, monkeypatch)


def test_sensors_are_events_and_shown(room: Room) -> None:
    room.at(41.5)
    (event,) = room.events
    assert isinstance(event, events.SensorsRead)
    assert event.session == events.MACHINE
    assert [(row.name, row.value, row.unit) for row in event.readings] == [("cpu-thermal", 41.5, "C")]
    assert room.watch.state().readings == event.readings
    assert room.watch.state().degraded == ()


def test_a_hot_machine_does_less_before_the_kernel_slows_it_and_more_when_it_has_cooled(room: Room) -> None:
    room.at(50.0, 3)
    assert room.told == []
    room.at(77.0, UP_AFTER)
    (hot,) = room.told
    assert (hot.max_threads, hot.speculate, hot.background) == (1, False, False)
    assert "hot" in room.watch.state().degraded[0]
    changed = [event for event in room.events if isinstance(event, events.HeatChanged)]
    assert [event.level for event in changed] == ["hot"]
    room.at(60.0, DOWN_AFTER)
    assert room.told[-1].speculate
    room.at(60.0, DOWN_AFTER)
    assert room.told[-1].background
    assert room.watch.state().degraded == ()


def test_a_single_glitch_changes_nothing(room: Room) -> None:
    room.at(95.0)
    room.at(50.0)
    assert room.told == []


def test_a_machine_without_sensors_is_no_trouble(room: Room) -> None:
    (room.root / ZONE / "temp").unlink(missing_ok=True)
    room.watch.look()
    assert room.events == []
    assert room.watch.state().readings == ()


def _run_for_some_rounds(made: MachineWatch, rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    look = made.look

    def counted() -> None:
        rounds.append(1)
        if len(rounds) >= 12:
            made._closed.set()
        look()

    monkeypatch.setattr(made, "look", counted)
    made.start()
    made._thread.join(10.0)
    assert not made._thread.is_alive()


def test_engines_are_measured_once_and_only_while_nobody_speaks(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    at: list[int] = []

    def measured(store: Store, machine: Machine, *, background: bool, asr: str) -> None:
        assert background
        at.append(len(rounds))
        raise_if_first = len(at) == 1
        if raise_if_first:
            raise MeasuringError("made to fail")
        monkeypatch.setattr(watch, "kept_timings", lambda *_: {})

    monkeypatch.setattr(watch, "measure", measured)
    room.at(40.0)
    monkeypatch.setattr(room, "idle_s", 0.0)

    look = room.watch.look

    def quiet_later() -> None:
        if len(rounds) >= 5:
            room.idle_s = 1000.0
        look()

    monkeypatch.setattr(room.watch, "look", quiet_later)
    _run_for_some_rounds(room.watch, rounds, monkeypatch)
    assert len(at) == 2  # failed once, tried again, then never more
    assert min(at) >= 5


def test_a_trouble_that_stays_is_logged_once_and_does_not_end_the_watch(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("an odd sensor")

    monkeypatch.setattr(room.watch, "look", broken)
    rounds: list[int] = []
    _run_for_some_rounds(room.watch, rounds, monkeypatch)
    assert len(rounds) == 12
    assert [record.getMessage() for record in caplog.records] == ["the machine could not be looked at"]


def test_measuring_can_be_turned_off(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "measure", lambda *_, **__: pytest.fail("measured"))
    room.at(40.0)
    _run_for_some_rounds(room.make(may_measure=False), [], monkeypatch)


def test_nothing_is_measured_on_a_warm_machine(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "measure", lambda *_, **__: pytest.fail("measured"))
    room.at(72.0, UP_AFTER)
    assert not room.told[-1].background
    _run_for_some_rounds(room.watch, [], monkeypatch)
