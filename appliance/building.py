"""TensorRT engines built beside the serving rung: one at a time, while it is quiet, and swapped in when checked."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from appliance import events
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.engines import EngineOpener
    from models.engines.base import Engine
    from models.engines.tensorrt.provide import BackgroundBuild, EngineSpec, Provider

__all__ = ["BuildState", "EngineBuilds"]

_LOG = logging.getLogger(__name__)

BACKEND: Final = "tensorrt"
_VARIANTS: Final = {"fp32": "fp32", "fp16": "fp16", "int8": "int8-trt"}
"""Precision of a plan -> how the quantised graph is called."""
_TOLD_EVERY: Final = 0.05
"""Of a build, between two events of its progress."""


@dataclass(frozen=True, slots=True)
class BuildState:
    """How a build stands."""

    name: str
    """`asr.decoder`."""
    status: str
    """`waiting`, `building`, `done`, `failed`."""
    stage: str = ""
    share: float | None = None
    """Of the stage, 0..1; None where nobody knows."""
    reason: str = ""
    """Why it failed."""


class EngineBuilds:
    """What the plan wants on TensorRT and is not built. `step` is called now and then; it returns at once."""

    def __init__(self, opener: EngineOpener, emit: Callable[[events.Event], None]) -> None:
        self._opener, self._emit = opener, emit
        self._lock = threading.Lock()
        self._states: dict[str, BuildState] = {
            f"{task}.{part}": BuildState(f"{task}.{part}", "waiting")
            for task, choice in opener.plan.tasks.items()
            if choice.backend == BACKEND
            for part in opener.waiting(task, BACKEND)
        }
        self._running: BackgroundBuild | None = None
        self._told = -1.0
        self._closed = False

    @property
    def states(self) -> tuple[BuildState, ...]:
        """All that were wanted at the start; empty where TensorRT is not planned or everything is built."""
        with self._lock:
            return tuple(self._states.values())

    def step(self) -> None:
        """Begin the next build, if none is under way; none after `close`."""
        if self._closed or (self._running is not None and not self._running.join(0.0)):
            return
        waiting = next((state for state in self.states if state.status == "waiting"), None)
        if waiting is not None:
            self._begin(waiting.name)

    def close(self) -> None:
        """End a build that is under way; nothing is left behind."""
        self._closed = True  # first: `step`, on another thread, may be about to begin one
        if self._running is not None:
            self._running.cancel()
            self._running.join(10.0)

    def _begin(self, name: str) -> None:
        task, part = name.split(".")
        try:
            provider = self._opener.provider()
            spec, variant = self._spec(task, part)
            self._set(BuildState(name, "building"))
            self._running = self._start(provider, spec, name, variant)
            if self._closed:
                self._running.cancel()
        except ModelsError as error:
            self._failed(name, error)

    def _spec(self, task: str, part: str) -> tuple[EngineSpec, str]:
        from models.engines.tensorrt.key import BuildSettings
        from models.engines.tensorrt.sources import spec_for

        choice = self._opener.plan.tasks[task]
        variant = _VARIANTS[choice.precision]
        return spec_for(self._opener.store, choice.model, part, variant, BuildSettings()), variant

    def _start(self, provider: Provider, spec: EngineSpec, name: str, variant: str) -> BackgroundBuild:
        from appliance.evaluation import words_judge
        from models.engines.tensorrt.sources import golden

        task, part = name.split(".")

        def progress(stage: str, done: int, total: int | None) -> None:
            share = done / total if total else None
            self._set(BuildState(name, "building", stage, share))
            if share is None or abs(share - self._told) >= _TOLD_EVERY:
                self._told = -1.0 if share is None else share
                self._emit(events.EngineBuilding(time.monotonic(), events.MACHINE, name, stage, share))

        store, model = self._opener.store, self._opener.plan.tasks[task].model
        wanted = dataclasses.replace(golden(store, model, part, variant), extra=words_judge(store, model, part))
        return provider.in_background(
            spec,
            wanted,
            lambda engine: self._ready(name, engine),
            lambda error: self._failed(name, error),
            progress,
        )

    def _ready(self, name: str, engine: Engine) -> None:
        task, part = name.split(".")
        taken = self._opener.built(task, part, engine)
        self._set(BuildState(name, "done" if taken else "failed", reason="" if taken else "the ladder refused it"))

    def _failed(self, name: str, error: Exception) -> None:
        reason = " ".join(str(error).split())
        _LOG.warning("%s could not be built for TensorRT: %s", name, reason)
        self._set(BuildState(name, "failed", reason=reason))

    def _set(self, state: BuildState) -> None:
        with self._lock:
            self._states[state.name] = state
