from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from appliance.intent.lexicon import naming
from appliance.intent.phrase_graph import END, GraphBuilder
from appliance.intent.types import HomeView
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.bias_keeper import BiasKeeper
from tests.intent.homes import entity, home


class FakeWorker:
    """Runs jobs when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.closed = False

    def submit(self, job: Callable[[], None]) -> None:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.jobs.append(job)

    def run(self) -> int:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()
        return len(jobs)


class House:
    """A view that tests change, and a keeper for it."""

    def __init__(self) -> None:
        self.view = home(entity("Lamp")).view()
        self.worker = FakeWorker()
        self.broken = False
        self.keeper = BiasKeeper(lambda: self.view, self.worker.submit, build=self._build, naming=naming)

    def change(self, *names: str) -> None:
        self.view = replace(self.view, version=self.view.version + 1, entities=tuple(entity(n) for n in names))

    def knows(self, text: str) -> bool:
        bias = self.keeper.current()
        return bias is not None and bias.look(text).complete

    def _build(self, view: HomeView) -> LetterBias:
        if self.broken:
            raise ValueError("no such template")
        builder = GraphBuilder()  # a small grammar: the real one takes a second to build
        start = builder.words([(f"turn on the {e.name.lower()}", END) for e in view.entities])
        return LetterBias(builder.graph(view.version, start))


def test_there_is_none_until_the_first_is_built() -> None:
    house = House()
    assert house.keeper.current() is None
    assert house.keeper.current() is None
    assert house.worker.run() == 1
    assert house.knows("turn on the lamp")


def test_a_new_name_is_known_after_the_next_build_and_the_old_ones_until_then() -> None:
    house = House()
    house.keeper.current()
    house.worker.run()
    house.change("Lamp", "Disco Ball")
    assert not house.knows("turn on the disco ball")
    assert house.knows("turn on the lamp")
    house.worker.run()
    assert house.knows("turn on the disco ball")
    assert house.keeper.counts.built == 2


def test_a_change_of_states_builds_nothing() -> None:
    house = House()
    house.keeper.current()
    house.worker.run()
    lamp = replace(house.view.entities[0], state="on")
    house.view = replace(house.view, version=house.view.version + 1, entities=(lamp,))
    house.keeper.current()
    assert house.worker.run() == 0


def test_what_changes_during_a_build_is_built_after_it() -> None:
    house = House()
    house.keeper.current()
    house.change("Disco Ball")
    house.keeper.current()
    assert house.worker.run() == 1
    house.keeper.current()
    assert house.worker.run() == 1
    assert house.knows("turn on the disco ball")


def test_a_failure_is_counted_and_the_last_good_one_stays() -> None:
    house = House()
    house.keeper.current()
    house.worker.run()
    house.broken = True
    house.change("Disco Ball")
    house.keeper.current()
    house.worker.run()
    assert house.keeper.counts.failed == 1
    assert house.knows("turn on the lamp")
    house.keeper.current()
    assert house.worker.run() == 0, "the same names are not tried again and again"
    house.broken = False
    house.change("Disco Ball", "Lamp")
    house.keeper.current()
    house.worker.run()
    assert house.knows("turn on the disco ball")


def test_a_closed_worker_is_no_fault_of_the_utterance() -> None:
    house = House()
    house.worker.closed = True
    assert house.keeper.current() is None
    assert house.keeper.counts.failed == 1
