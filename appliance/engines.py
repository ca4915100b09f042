"""The engines that serve: a ladder for each graph, from the plan's choice down; what serves instead of it is said."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from appliance import events
from appliance.measuring import PARTS
from models.engines.given import GivenGraphs, given_rungs, open_given
from models.engines.rungs import TABLE, open_task, quarantine_of, rungs_for, with_engine

if TYPE_CHECKING:
    from appliance.events import Listener
    from hw.plan import Choice, Plan
    from hw.thermal import HeatAdvice
    from models import Store
    from models.engines.base import Engine
    from models.engines.ladder import LadderEngine, LadderState, Rung, RungChanged
    from models.engines.tensorrt.provide import Provider

__all__ = ["EngineOpener", "Settled"]

_LOG = logging.getLogger(__name__)

PARTS_SERVED: Final[Mapping[str, tuple[str, ...]]] = {**PARTS, "vad": ("vad",), "denoise": ("mask", "wave")}
"""Graphs of each task. The wake word is not among them: its library runs its own."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What runs a task now."""

    task: str
    backend: str
    """That of the graph on the lowest rung."""
    precision: str
    scheme: str | None
    """Kind of INT8, where the plan's own choice runs."""
    threads: int
    degraded: tuple[str, ...]
    """Where a graph is on a lower rung than planned, and why, a sentence each."""
    ladders: tuple[LadderState, ...]


def _provider_here(store: Store) -> Provider:
    from models.engines.tensorrt.provide import provider_here

    return provider_here(store)


@dataclass(slots=True)
class EngineOpener:
    """Opens tasks by the plan and keeps their ladders. Thread-safe."""

    store: Store
    plan: Plan
    emit: Listener | None = None
    """Told of every rung that takes over, once somebody listens."""
    make_provider: Callable[[Store], Provider] = _provider_here
    given: Mapping[str, GivenGraphs] = field(default_factory=dict)
    """Task -> the files that it runs on instead of a pack's graphs."""
    _provider: Provider | None = None
    _ladders: dict[str, dict[str, LadderEngine]] = field(default_factory=dict)
    _choices: dict[str, Choice] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _sharing: threading.Lock = field(default_factory=threading.Lock)
    """Held while something shared is opened: whoever asks second waits for it."""

    def open(self, task: str) -> Mapping[str, Engine]:
        """Graph part -> engine, weights loaded. Raises `EngineError` where not one rung works."""
        choice, quarantine = self.plan.tasks[task], quarantine_of(self.store)
        machine, changed = self.plan.machine, self._changed
        if (given := self.given.get(task)) is not None:
            ladders = open_given(
                task,
                given,
                choice.threads,
                quarantine=quarantine,
                listener=changed,
                machine=machine,
                cores=choice.cores,
            )
        else:
            ladders = open_task(
                self.store,
                choice,
                PARTS_SERVED[task],
                quarantine=quarantine,
                listener=changed,
                machine=machine,
                provider=self.provider,
            )
        with self._lock:
            self._ladders[task], self._choices[task] = ladders, choice
        return ladders

    def opened(self, task: str) -> Mapping[str, Engine]:
        """As `open`, but once: for what several microphones share and none may need."""
        with self._sharing:
            with self._lock:
                ladders = self._ladders.get(task)
            return self.open(task) if ladders is None else ladders

    @property
    def settled(self) -> Mapping[str, Settled]:
        """Task -> what runs it now, for those that were opened here."""
        with self._lock:
            rows = {task: (ladders, self._choices[task]) for task, ladders in self._ladders.items()}
        return {task: _settled(choice, ladders) for task, (ladders, choice) in rows.items()}

    @property
    def degraded(self) -> tuple[str, ...]:
        """Where something less than the plan's choice runs, a sentence each."""
        return tuple(sentence for row in self.settled.values() for sentence in row.degraded)

    def heat(self, advice: HeatAdvice) -> None:
        """Take fewer threads, or the plan's again, as the machine's heat asks for; the change takes a second or so."""
        for task, choice in self.plan.tasks.items():
            limit = choice.threads if advice.max_threads is None else min(choice.threads, advice.max_threads)
            with self._lock:
                now = self._choices.get(task)
                if now is None or now.threads == limit:
                    continue
            self._again(task, replace(choice, threads=limit), advice.text)

    def waiting(self, task: str, backend: str) -> tuple[str, ...]:
        """Graphs of a task whose planned rung on a backend does not serve, and was not put away for a fault."""
        with self._lock:
            ladders = dict(self._ladders.get(task, {}))
        found = []
        for part, ladder in ladders.items():
            first = ladder.state().rungs[0]
            if first.backend == backend and first.status == "failed":
                found.append(part)
        return tuple(found)

    def built(self, task: str, part: str, engine: Engine) -> bool:
        """The engine of the plan's own rung, which can be had now; see `LadderEngine.offer`."""
        with self._lock:
            ladder = self._ladders[task][part]
        return ladder.offer(with_engine(self._rungs(self.plan.tasks[task])[part][0], engine))

    def provider(self) -> Provider:
        """What makes TensorRT's engines here, with one pool of device memory. Raises `TensorRtMissingError`."""
        with self._lock:
            if self._provider is None:
                self._provider = self.make_provider(self.store)
            return self._provider

    def close(self) -> None:
        """Release all weights."""
        with self._lock:
            ladders = [ladder for parts in self._ladders.values() for ladder in parts.values()]
        for ladder in ladders:
            ladder.close()

    def _again(self, task: str, choice: Choice, reason: str) -> None:
        """The rung that serves, opened anew with other threads; streams go over at their next `reset`."""
        rungs = self._rungs(choice)
        for part, ladder in self._ladders[task].items():
            serving = ladder.state().serving
            rung = next((rung for rung in rungs[part] if rung.name == serving), None)
            if rung is None or not ladder.replace(rung, f"{choice.threads} threads: {reason}"):
                _LOG.warning("%s %s keeps its threads: %s cannot be opened again", task, part, serving)
        with self._lock:
            self._choices[task] = choice

    def _rungs(self, choice: Choice) -> dict[str, tuple[Rung, ...]]:
        """Of all parts together: which bits a part is in depends on the others' too, and its name with it."""
        if (given := self.given.get(choice.task)) is not None:
            return given_rungs(given, choice.threads, self.plan.machine, choice.cores)
        parts = PARTS_SERVED[choice.task]
        return rungs_for(self.store, choice, parts, machine=self.plan.machine, provider=self.provider)

    def _changed(self, change: RungChanged) -> None:
        if self.emit is not None:
            self.emit(events.EngineChanged(time.monotonic(), events.MACHINE, change.task, change.after, change.reason))


def _settled(choice: Choice, ladders: Mapping[str, LadderEngine]) -> Settled:
    states = tuple(ladder.state() for ladder in ladders.values())
    serving = [(row.backend, row.precision) for state in states for row in state.rungs if row.name == state.serving]
    backends = [kind.backend for kind in TABLE]
    backend, precision = max(
        serving, key=lambda row: backends.index(row[0]), default=(choice.backend, choice.precision)
    )
    scheme = choice.scheme if (backend, precision) == (choice.backend, choice.precision) else None
    return Settled(choice.task, backend, precision, scheme, choice.threads, tuple(_degraded(states)), states)


def _degraded(states: Sequence[LadderState]) -> Sequence[str]:
    found = []
    for state in states:
        if state.degraded:
            above = []
            for rung in state.rungs:
                if rung.name == state.serving:
                    break
                if rung.reason:
                    above.append(f"{rung.name} {rung.status} ({rung.reason})")
            found.append(f"{state.task} runs on {state.serving}: {'; '.join(above)}")
    return found
