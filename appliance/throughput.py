"""How many recognitions at once get the most done on this machine: the plan's number, confirmed or corrected by trying.

A few seconds after the candidates were timed, in a process of its own (`python -m appliance.throughput`): one engine as
the plan chose it, and so many threads with a stream each. Not for people: `appliance.planning.measure` starts it.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pydantic import TypeAdapter, ValidationError

from appliance.measuring import ENGINES, PARTS, Job, command
from hw.plan import Candidate, Plan, Timing, Timings
from models import ModelsError, Store
from models.graphs import form_of

__all__ = ["levels", "main", "tried"]

_LOG = logging.getLogger(__name__)

TASK: Final = "asr"
ROUNDS: Final = 2
"""Each number is tried again after all others; its best counts: whatever else runs here only ever takes away."""
ROUND_S: Final = 0.5
"""Each thread works so long, and ends what it has begun."""
BUSY: Final = 1.4
"""Where one alone takes so many times what it took when it was timed, something else is at work: it would look as if
several at once got more done."""
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Request:
    job: Job
    levels: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Round:
    """What came of one number in one round."""

    at_once: int
    per_s: float
    waits: float
    """Of the engine's threads, for each second of compute; means something for one at a time only."""


_REQUEST: Final = TypeAdapter(_Request)
_ROUND: Final = TypeAdapter(_Round)


def levels(planned: int) -> tuple[int, ...]:
    """Numbers at once worth trying where so many are planned: one, half of them, them, and one more."""
    return tuple(sorted({1, max(1, planned // 2), planned, planned + 1}))


def tried(store: Store, plan: Plan, timings: Timings, *, nice: int = 0) -> dict[str, tuple[Timing, ...]]:
    """The timings, with what so many at once got done on the timing of the plan's choice. Blocks for some seconds.

    Unchanged where the choice was not measured here, or nothing came of it: the rule decides then.
    """
    kept = dict(timings)
    choice = plan.tasks[TASK]
    candidate = Candidate(choice.backend, choice.precision, choice.scheme, choice.threads)
    row = next((row for row in kept.get(TASK, ()) if row.candidate == candidate), None)
    if row is None or candidate.backend not in ENGINES:
        return kept
    request = _Request(Job(TASK, choice.model, candidate), levels(plan.workers.recognitions), choice.cores)
    measured = _measured(row, request.levels, _ask(store, request, nice))
    kept[TASK] = tuple(measured if other is row else other for other in kept[TASK])
    return kept


def _measured(row: Timing, wanted: tuple[int, ...], rounds: list[_Round]) -> Timing:
    """The timing with what came of the rounds; as it was where a number is missing, or the machine was busy."""
    best = {level: max((one.per_s for one in rounds if one.at_once == level), default=0.0) for level in wanted}
    if not all(best.values()) or best[1] * row.ms < 1000 / BUSY:
        return row
    waits = min(one.waits for one in rounds if one.at_once == 1)
    at_once = tuple((level, round(rate, 2)) for level, rate in best.items())
    return replace(row, waits=round(max(0.0, waits), 2), at_once=at_once)


def _ask(store: Store, request: _Request, nice: int) -> list[_Round]:
    """What the process printed before it ended, died or took too long."""
    command = [sys.executable, "-P", "-m", "appliance.throughput", str(nice)]
    environment = {**os.environ, "WREN_MODELS_DIR": str(store.root)}
    try:
        done = subprocess.run(
            command, input=_REQUEST.dump_json(request), capture_output=True,
            env=environment, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        rounds = [_ROUND.validate_json(line) for line in done.stdout.splitlines()]
    except (OSError, subprocess.TimeoutExpired, ValidationError) as error:
        _LOG.warning("how many recognitions at once get the most done could not be tried (%s): the rule decides", error)
        return []
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        _LOG.warning("trying recognitions at once ended early (%s): the rule decides where rounds are missing", why)
    return rounds


# ---- in the process ------------------------------------------------------------------------------------------------


def main() -> None:
    """Read what is wanted from standard input, print a line a round. Not for people."""
    os.nice(int(sys.argv[1]))
    request = _REQUEST.validate_json(sys.stdin.buffer.read())
    try:
        make = _maker(Store(), request)
    except ModelsError as error:
        sys.exit(str(error))
    works = [make() for _ in range(max(request.levels))]
    for work in works:
        work()  # the first run of each stream allocates
    for _, level in itertools.product(range(ROUNDS), request.levels):
        print(_ROUND.dump_json(_tried_once(works[:level], request.job.candidate.threads)).decode(), flush=True)


def _maker(store: Store, request: _Request) -> Callable[[], Callable[[], None]]:
    """Makes what does one command of three seconds after the other, each on streams of its own over the same weights.

    Raises `ModelsError` where the candidate cannot run.
    """
    from appliance.engine_jobs import feeds_for

    job = request.job
    module, name = ENGINES[job.candidate.backend]
    engine_of = getattr(importlib.import_module(module), name)
    pack = store.catalogue.get(job.pack)
    form = form_of(store, job.pack, PARTS[TASK], job.candidate.precision, job.candidate.scheme)
    engines = {
        part: engine_of(form.path(part), pack.state_tensors(part), threads=job.candidate.threads, cores=request.cores)
        for part in PARTS[TASK]
    }
    feeds = feeds_for(store, TASK, {part: engine.stream() for part, engine in engines.items()}, job.pack)
    return lambda: command(feeds, {part: engine.stream() for part, engine in engines.items()})


def _tried_once(works: list[Callable[[], None]], threads: int) -> _Round:
    """All of them at once, each on a thread of its own."""
    rates: list[float] = []
    ready = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        ready.wait()
        began_s, done = time.perf_counter(), 0
        while (spent_s := time.perf_counter() - began_s) < ROUND_S or not done:
            work()
            done += 1
        rates.append(done / spent_s)

    began_s, cpu_s = time.perf_counter(), time.process_time()
    running = [threading.Thread(target=run, args=(work,), name="try") for work in works]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return _Round(len(works), sum(rates), wall_s * threads / cpu_s - 1.0 if cpu_s > 0 else 0.0)


if __name__ == "__main__":
    main()
