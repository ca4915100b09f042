"""A task's engines as the plan wants them, or as near to it as this machine can; what differs is said."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from appliance.measuring import PACKS, PARTS
from models.errors import EngineError, PackMissingError
from models.graphs import Form, form_of

if TYPE_CHECKING:
    from hw.plan import Choice, Plan
    from models import Store
    from models.engines.base import Engine

__all__ = ["EngineOpener", "Settled"]

_LOG = logging.getLogger(__name__)

_LAST_RUNGS: Final = (("int8", "s8-dynamic"), ("fp32", None))
"""What is tried on the CPU where the plan's own choice cannot be had: (precision, scheme), best first."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What runs a task in the end."""

    task: str
    backend: str
    precision: str
    scheme: str | None
    threads: int
    wanted: str | None = None
    """What the plan wanted, and why it is not that; None where it is."""


@dataclass(slots=True)
class EngineOpener:
    """Opens by task; remembers what it settled on."""

    store: Store
    plan: Plan
    settled: dict[str, Settled] = field(default_factory=dict)

    def open(self, task: str) -> Mapping[str, Engine]:
        """Graph part -> engine, weights loaded. Raises `EngineError` or `PackMissingError` where nothing works."""
        from models.engines.onnx_cpu import OrtCpuEngine

        choice = self.plan.tasks[task]
        states = self.store.catalogue.get(PACKS[task])
        troubles: list[str] = []
        for form in self._forms(task, choice, troubles):
            try:
                engines = {
                    part: OrtCpuEngine(form.path(part), states.state_tensors(part), threads=choice.threads)
                    for part in PARTS[task]
                }
            except EngineError as error:
                troubles.append(f"{form.precision} on ort-cpu: {error}")
                continue
            self._settle(task, choice, form, troubles)
            return engines
        raise PackMissingError(f"nothing runs {task} here: {'; '.join(troubles)}; run: wren doctor")

    @property
    def degraded(self) -> tuple[str, ...]:
        """Where something less than the plan's choice runs, a sentence each."""
        return tuple(
            f"{row.task} runs at {row.precision} on {row.backend}: {row.wanted}"
            for row in self.settled.values()
            if row.wanted
        )

    def _forms(self, task: str, choice: Choice, troubles: list[str]) -> Sequence[Form]:
        wanted = [(choice.precision, choice.scheme)] if choice.backend == "ort-cpu" else []
        if not wanted:
            troubles.append(f"{choice.backend} {choice.precision} was planned, and engines for it are not built yet")
        found = []
        for precision, scheme in dict.fromkeys((*wanted, *_LAST_RUNGS)):
            try:
                form = form_of(self.store, PACKS[task], PARTS[task], precision, scheme)
            except PackMissingError as error:
                if (precision, scheme) in wanted:
                    troubles.append(str(error))
                continue
            if form.passed:
                found.append(form)
        return found

    def _settle(self, task: str, choice: Choice, form: Form, troubles: Sequence[str]) -> None:
        wanted = "; ".join(troubles) or None
        self.settled[task] = Settled(task, "ort-cpu", form.precision, form.scheme, choice.threads, wanted)
        if wanted is not None:
            _LOG.warning("%s runs at %s on ort-cpu: %s", task, form.precision, wanted)
