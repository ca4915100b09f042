"""Making a plan: pure, and the same every time for the same machine, needs, timings and overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hw.errors import PlanError
from hw.plan.affinity import physical_cores, placed, plan_affinity
from hw.plan.budget import PROGRAM_MB, budget_mb, choice_mb, once_mb
from hw.plan.chunks import chunk_frames
from hw.plan.rules import RULES, Rule, reason_against
from hw.plan.types import (
    Backend,
    Candidate,
    Choice,
    Chunks,
    Fallback,
    Memory,
    Override,
    Overrides,
    Plan,
    Precision,
    Scheme,
    TaskNeed,
    Timing,
    Timings,
)
from hw.plan.workers import plan_workers
from hw.probe.machine import Machine

__all__ = ["make_plan", "thread_counts"]

THREAD_HANDICAP: Final = 1.25
"""A doubling of threads must take a fifth off a job's time: the other cores have work too."""
INT8_HANDICAP: Final = 1.1
"""INT8 must take a tenth off the time to be worth its error, however small."""
MANY_CORES: Final = 4
"""Where there are so many, two threads an engine are taken unmeasured."""


def make_plan(machine: Machine, needs: Sequence[TaskNeed], timings: Timings, user: Overrides | None = None) -> Plan:
    """Backend, precision, scheme, threads and chunks of every task, with the reasons.

    Raises `PlanError` for a need that names no backend of the table (`numpy` always fits).
    """
    user = Overrides() if user is None else user
    warnings: list[str] = []
    options = {}
    for need in needs:
        planner = _TaskPlanner(machine, need, timings.get(need.task, ()), user)
        options[need.task] = planner.options()
        warnings += planner.warnings
    budget = user.memory_mb if user.memory_mb is not None else budget_mb(machine)
    tasks, planned = _fit(options, budget, warnings)
    available = machine.ram_available_kib
    if available is not None and planned > available // 1024:
        warnings.append(f"the plan takes about {planned} MB, and {available // 1024} MB are free now")
    memory = Memory(budget, planned, None if budget is None else planned <= budget)
    affinity = plan_affinity(machine, max((choice.threads for choice in tasks.values()), default=1))
    tasks = {task: placed(choice, affinity) for task, choice in tasks.items()}
    room = None if budget is None else budget - planned
    workers = plan_workers(tasks.get("asr"), physical_cores(machine, affinity.engines), room)
    return Plan(tasks, memory, machine.digest, tuple(warnings), workers, affinity)


def thread_counts(cores: int) -> tuple[int, ...]:
    """Numbers of threads worth trying on so many cores: at six and more, two are always left free."""
    return tuple(count for count, least in ((1, 1), (2, 2), (4, 6)) if cores >= least)


@dataclass(frozen=True, slots=True)
class _Step:
    """A rule that fits, and how far down the ladder it stands."""

    rule: Rule
    passed_over: tuple[str, ...]


class _TaskPlanner:
    """Choices for one task, best first: the later ones are for when memory runs out."""

    def __init__(self, machine: Machine, need: TaskNeed, timings: Sequence[Timing], user: Overrides) -> None:
        self._machine, self._need, self._timings = machine, need, tuple(timings)
        self._set = user.tasks.get(need.task, Override())
        cores = machine.usable_cores or machine.cpu_cores or 1
        limits = [need.max_threads, cores, user.max_threads or cores]
        self._max_threads = max(1, min(limits))
        self._cores = cores
        self.warnings: list[str] = []

    def options(self) -> list[Choice]:
        """At least one choice."""
        if self._need.fixed is not None:
            return [self._fixed(self._need.fixed)]
        ladder = self._ladder()
        if not ladder:
            raise PlanError(f"{self._need.task}: no rule offers any of {', '.join(self._need.backends) or 'nothing'}")
        rungs: list[list[Choice]] = []
        for step in reversed(ladder):
            below = next((rung[0] for rung in reversed(rungs) if rung[0].backend != step.rule.backend), None)
            rungs.append(self._rung(step, below))
        found = [choice for rung in reversed(rungs) for choice in rung]
        wanted = self._set.precision
        if wanted is not None and found[0].precision != wanted:
            why = "" if wanted != "int8" or self._need.int8_gate else f": {self._about_int8()}"
            self.warnings.append(f"{self._need.task}: {wanted} was set, and is not used on {found[0].backend}{why}")
        return found

    def _ladder(self) -> list[_Step]:
        """The rules that fit, best first."""
        steps: list[_Step] = []
        against: list[tuple[Rule, str]] = []
        for rule in RULES:
            if rule.backend in self._need.backends:
                if (why := reason_against(rule, self._machine)) is None:
                    steps.append(_Step(rule, tuple(f"{other.name}: {text}" for other, text in against)))
                else:
                    against.append((rule, why))
        wanted = self._set.backend
        if wanted is not None and steps:
            steps.sort(key=lambda step: step.rule.backend != wanted)
            if steps[0].rule.backend != wanted:
                reasons = [text for rule, text in against if rule.backend == wanted] or ["it does not run this task"]
                self.warnings.append(f"{self._need.task}: {wanted} was set, and is not used: {'; '.join(reasons)}")
        return steps

    def _rung(self, step: _Step, below: Choice | None) -> list[Choice]:
        """A rule's precisions, best first: as measured, where all were measured, else in the rule's order."""
        choices = [self._choice(step, precision, below) for precision in self._precisions(step.rule)]
        if all(choice.ms is not None for choice in choices):
            choices.sort(key=_cost)
        return choices

    def _precisions(self, rule: Rule) -> list[Precision]:
        """Allowed ones, in the order in which they are taken unmeasured."""
        useless = bool(rule.schemes) and set(rule.schemes) <= set(self._need.int8_failed)
        allowed = rule.passed if self._need.int8_gate and not useless else rule.failed
        support = self._machine.precision_support or {}
        found = [p for p in allowed if p == "fp32" or rule.backend == "ort-cpu" or support.get(p, False)]
        # A card without tensor cores is no faster in half precision.
        if rule.backend == "ort-cuda" and not self._machine.tensor_cores:
            found.sort(key=lambda p: p != "fp32")
        if self._set.precision in found:
            return [self._set.precision]
        return found or ["fp32"]

    def _choice(self, step: _Step, precision: Precision, below: Choice | None) -> Choice:
        rule, need = step.rule, self._need
        timing = self._timed(rule, precision)
        scheme = self._scheme(rule, precision) if timing is None else timing.candidate.scheme
        threads = self._threads(rule.backend) if timing is None else timing.candidate.threads
        fallback = None if below is None else Fallback(below.backend, below.precision, below.scheme)
        worst = max((t.ms for t in self._timings), default=None)
        return Choice(
            task=need.task,
            model=need.model,
            backend=rule.backend,
            precision=precision,
            scheme=scheme,
            threads=threads,
            measured=timing is not None,
            reason=self._reason(rule, precision, timing),
            rule=rule.name,
            ms=None if timing is None else timing.ms,
            times_faster_than_worst=None if timing is None or worst is None else round(worst / timing.ms, 2),
            chunks=self._chunks(None if timing is None else timing.frame_ms),
            memory_mb=choice_mb(need, rule.backend, precision),
            fallback=fallback,
            candidates=self._timings,
            passed_over=step.passed_over,
        )

    def _timed(self, rule: Rule, precision: Precision) -> Timing | None:
        """The best timing of that precision on the rule's backend, threads weighed."""
        fitting = [
            timing
            for timing in self._timings
            if timing.candidate.backend == rule.backend
            and timing.candidate.precision == precision
            and timing.candidate.threads <= self._max_threads
            and (timing.candidate.scheme is None or timing.candidate.scheme in rule.schemes)
            and self._set.threads in (None, timing.candidate.threads)
        ]
        return min(fitting, key=lambda t: (_weighed(t.ms, t.candidate.threads), t.candidate.threads), default=None)

    def _scheme(self, rule: Rule, precision: Precision) -> Scheme | None:
        if precision != "int8" or not rule.schemes:
            return None
        passed = [scheme for scheme in rule.schemes if scheme not in self._need.int8_failed]
        return next((scheme for scheme in passed if scheme in self._need.int8_schemes), (*passed, *rule.schemes)[0])

    def _threads(self, backend: Backend) -> int:
        if self._set.threads is not None:
            return max(1, min(self._set.threads, self._cores))
        return min(self._max_threads, 2) if backend == "ort-cpu" and self._cores >= MANY_CORES else 1

    def _chunks(self, frame_ms: float | None) -> Chunks | None:
        need = self._need
        if need.hop_ms is not None:
            return Chunks("frames", chunk_frames(frame_ms, need.hop_ms, need.overlap_frames))
        return None if need.window_samples is None else Chunks("samples", (need.window_samples,))

    def _fixed(self, only: Candidate) -> Choice:
        need = self._need
        for wanted, taken in ((self._set.backend, only.backend), (self._set.precision, only.precision)):
            if wanted is not None and wanted != taken:
                self.warnings.append(f"{need.task}: {wanted} was set, and is not used: {need.why}")
        return Choice(
            task=need.task,
            model=need.model,
            backend=only.backend,
            precision=only.precision,
            scheme=only.scheme,
            threads=only.threads,
            measured=False,
            reason=need.why,
            rule="fixed",
            ms=None,
            times_faster_than_worst=None,
            chunks=self._chunks(None),
            memory_mb=choice_mb(need, only.backend, only.precision),
            fallback=None,
            candidates=self._timings,
            passed_over=(),
        )

    def _about_int8(self) -> str:
        """Why it may be used, or may not: a reason of the model's own counts before its gate."""
        need = self._need
        if need.why and not need.int8_gate:
            return need.why
        gate = {True: "passed", False: "did not pass", None: "has not been held against"}[need.int8_gate]
        return f"INT8 {gate} the model's accuracy gate"

    def _reason(self, rule: Rule, precision: Precision, timing: Timing | None) -> str:
        machine, need = self._machine, self._need
        parts = [rule.reason.format(sm=machine.sm, tensorrt=machine.tensorrt, gpu=machine.gpu)]
        if "int8" in rule.passed:
            parts.append(self._about_int8())
        if self._set != Override():
            parts.append("the user's setting is kept")
        if timing is not None:
            worst = max(self._timings, key=lambda t: t.ms)
            parts.append(f"measured here ({need.job}): {timing.candidate} takes {timing.ms:.0f} ms")
            if worst is not timing:
                times = worst.ms / timing.ms
                parts.append(f"the slowest ({worst.candidate}) {worst.ms:.0f} ms, {times:.1f} times as long")
        elif rule.backend in ("tensorrt", "ort-cuda"):
            parts.append(f"{precision} by rule")
        else:
            parts.append(f"{precision} by rule, for it was not measured here")
        return "; ".join(parts)


def _cost(choice: Choice) -> float:
    assert choice.ms is not None
    handicap = INT8_HANDICAP if choice.precision == "int8" else 1.0
    return _weighed(choice.ms, choice.threads) * handicap


def _weighed(ms: float, threads: int) -> float:
    return ms * THREAD_HANDICAP ** (threads.bit_length() - 1)


def _fit(options: Mapping[str, list[Choice]], budget: int | None, warnings: list[str]) -> tuple[dict[str, Choice], int]:
    """The first choice of each task, or smaller ones until all fit the budget."""
    chosen = {task: choices[0] for task, choices in options.items()}
    while budget is not None and _total(chosen) > budget:
        smaller = [
            ({**chosen, task: choice}, task, choice)
            for task, choices in options.items()
            for choice in choices[choices.index(chosen[task]) + 1 :]
        ]
        smaller = [row for row in smaller if _total(row[0]) < _total(chosen)]
        if not smaller:
            warnings.append(f"the smallest choices take about {_total(chosen)} MB, and {budget} MB may be taken")
            break
        chosen, task, choice = min(smaller, key=lambda row: _total(row[0]))
        chosen[task] = replace(choice, reason=f"{choice.reason}; a smaller choice, so that all fits {budget} MB")
        options = {**options, task: [chosen[task], *options[task][options[task].index(choice) + 1 :]]}
    return chosen, _total(chosen)


def _total(chosen: Mapping[str, Choice]) -> int:
    backends: set[Backend] = {choice.backend for choice in chosen.values()}
    return PROGRAM_MB + once_mb(backends) + sum(choice.memory_mb for choice in chosen.values())
