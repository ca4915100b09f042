"""Which engine at which precision on this machine: joins what `hw` knows and `models` needs with what is measured here.

Measuring takes half a minute, once for a machine and its models, and is kept in the store. It runs in a process of its
own (`appliance.measuring`): its memory is given back, and a caller's thread can wait for it in the background. Until it
is done, the rules alone decide.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter, ValidationError

from appliance.errors import ApplianceError
from appliance.measuring import JOB_LIST, LIGHT_ASR, PACKS, PARTS, RESULT, ROUNDS, Job
from appliance.throughput import tried
from hw.plan import (
    Backend,
    Candidate,
    Overrides,
    Plan,
    Precision,
    Scheme,
    TaskNeed,
    Timing,
    Timings,
    make_plan,
    thread_counts,
)
from hw.probe import Machine
from models import ModelsError, Progress, Store, TtsParameters, VadParameters, files, silent
from models.catalogue import DenoiseParameters
from models.convert import open_artefact
from models.engines.given import GivenGraphs
from models.graphs import Form, forms

__all__ = ["MeasuringError", "current_plan", "kept_timings", "measure", "plan_from", "task_needs", "with_gate"]

JOBS: Final = {"asr": "3 s of speech and 9 steps", "tts": "first sound of a short reply"}
WEIGHTS_MB: Final[dict[str, dict[Precision, float]]] = {
    PACKS["asr"]: {"fp32": 300.7, "int8": 86.7},
    LIGHT_ASR: {"fp32": 146.2, "int8": 42.3},
    PACKS["tts"]: {"fp32": 63.1},
    PACKS["vad"]: {"fp32": 1.3},
    PACKS["wake"]: {"int8": 0.1},
}
"""Sizes of our own conversions, for where they have not been made."""

BACKENDS: Final[dict[str, tuple[Backend, ...]]] = {
    PACKS["asr"]: ("tensorrt", "ort-cuda", "ort-cpu", "numpy"),
    LIGHT_ASR: ("ort-cuda", "ort-cpu", "numpy"),
}
"""Recogniser -> what runs it. The lighter one is for machines without a GPU: TensorRT has no profiles of its graphs."""

VOCODER_MARGIN: Final = 11
"""What the conversion found, for where it has not been made."""

SEAMLESS: Final = frozenset({"tts"})
"""Tasks whose output is made in pieces that must be exactly those of the whole: no INT8 (see `task_needs`)."""

VERSION: Final = 4
"""Goes up when a job changes: timings kept before are not compared with new ones."""
TIMEOUT_S: Final = 180.0
"""For a slow machine with all candidates; then the rules have to do."""
BACKGROUND_NICE: Final = 10


class MeasuringError(ApplianceError):
    """Nothing could be measured; the message says why. The rules decide alone then."""

    code = "appliance.measuring"
    retry = True


def current_plan(
    store: Store,
    machine: Machine,
    *,
    user: Overrides | None = None,
    given: Mapping[str, GivenGraphs] | None = None,
    asr: str = PACKS["asr"],
    denoise: bool = False,
) -> Plan:
    """The plan from what is known now: timings that were kept, else the rules alone. Measures nothing.

    `given`: task -> files that it runs on instead of a pack's graphs. `asr`: the recogniser's pack. `denoise`: whether
    that is a task too.
    """
    timings = kept_timings(store, machine, asr) or {}
    return plan_from(store, machine, timings, user=user, given=given, asr=asr, denoise=denoise)


def plan_from(
    store: Store,
    machine: Machine,
    timings: Timings,
    *,
    user: Overrides | None = None,
    given: Mapping[str, GivenGraphs] | None = None,
    gate: bool | None = None,
    asr: str = PACKS["asr"],
    denoise: bool = False,
) -> Plan:
    """The plan from such timings. `given`, `asr` and `denoise` as in `current_plan`, `gate` as in `with_gate`."""
    needs, given = with_gate(task_needs(store, asr), gate), given or {}
    if denoise:
        needs = (*needs, _denoise_need(store))
    needs = tuple(
        _given_need(need.task, given[need.task], machine, user) if need.task in given else need for need in needs
    )
    known = {task: rows for task, rows in timings.items() if task not in given}  # those are another model's
    return make_plan(machine, needs, known, user)


def task_needs(store: Store, asr: str = PACKS["asr"]) -> tuple[TaskNeed, ...]:
    """What the appliance's tasks ask of a machine, with such a pack as recogniser; sizes and INT8 from what the store
    holds."""
    heard, spoken = forms(store, asr, PARTS["asr"]), forms(store, PACKS["tts"], PARTS["tts"])
    vad = store.catalogue.get(PACKS["vad"]).parameters_as(VadParameters)
    voice = store.catalogue.get(PACKS["tts"]).parameters_as(TtsParameters)
    margin = _vocoder_margin(store)
    return (
        TaskNeed(
            task="asr",
            model=asr,
            backends=BACKENDS[asr],
            weights_mb=_weights(asr, heard),
            # Conversion refuses INT8 graphs that say other words than the shipped model: what is to be made will pass.
            int8_schemes=_schemes(heard, passed=True) if heard else ("s8-dynamic",),
            int8_failed=_schemes(heard, passed=False),
            int8_gate=_gate(heard) if heard else True,
            job=JOBS["asr"],
        ),
        TaskNeed(
            task="tts",
            model=PACKS["tts"],
            weights_mb=_weights(PACKS["tts"], spoken),
            # A reply is made in pieces that must join without a seam. In floats a piece with its margins is exactly its
            # part of the whole; with eight bits in the flow it is not (a difference of full scale, in the phase).
            int8_gate=False,
            why="no INT8, for pieces made with eight bits do not join exactly",
            job=JOBS["tts"],
            hop_ms=voice.hop_samples / voice.rate_hz * 1000,
            overlap_frames=2 * margin,
        ),
        TaskNeed(
            task="vad",
            model=PACKS["vad"],
            weights_mb=WEIGHTS_MB[PACKS["vad"]],
            fixed=Candidate("ort-cpu", "fp32", None, 1),
            why="0.25 ms of one core for 32 ms of sound: going to a GPU and back takes longer than it",
            window_samples=vad.window_samples,
        ),
        TaskNeed(
            task="wake",
            model=PACKS["wake"],
            weights_mb=WEIGHTS_MB[PACKS["wake"]],
            fixed=Candidate("tflite", "int8", None, 1),
            why="the model comes quantised, with its own runtime, and takes half a percent of one core",
            window_samples=160,
        ),
    )


def _denoise_need(store: Store) -> TaskNeed:
    pack = store.catalogue.get(PACKS["denoise"])
    return TaskNeed(
        task="denoise",
        model=pack.id,
        weights_mb={"fp32": round(pack.size / 1e6, 1)},
        fixed=Candidate("ort-cpu", "fp32", None, 1),
        why="half a millisecond of one core for 8 ms of sound: going to a GPU and back takes longer than it",
        window_samples=pack.parameters_as(DenoiseParameters).hop_samples,
    )


def _given_need(task: str, graphs: GivenGraphs, machine: Machine, user: Overrides | None) -> TaskNeed:
    """One way only: as it comes, on the processor. Nobody here has judged the words of other bits."""
    override = None if user is None else user.tasks.get(task)
    cores = machine.usable_cores or 1
    threads = override.threads if override is not None and override.threads is not None else 2 if cores >= 4 else 1
    return TaskNeed(
        task=task,
        model=graphs.name,
        weights_mb={graphs.precision: graphs.mb},
        fixed=Candidate("ort-cpu", graphs.precision, None, max(1, min(threads, cores))),
        why="the model was chosen in the settings and runs as it comes",
    )


def with_gate(needs: Sequence[TaskNeed], gate: bool | None) -> tuple[TaskNeed, ...]:
    """The needs as if INT8 had passed or failed where there is a choice; unchanged for None."""
    return tuple(need if gate is None or need.fixed is not None else replace(need, int8_gate=gate) for need in needs)


def kept_timings(store: Store, machine: Machine, asr: str = PACKS["asr"]) -> Timings | None:
    """What was measured on this machine with these models, or None. `asr`: the recogniser's pack."""
    try:
        kept = _KEPT.validate_json(_kept_file(store, machine, asr).read_bytes())
    except (OSError, ValidationError):  # never measured, or not by this version
        return None
    return kept.timings


def measure(
    store: Store,
    machine: Machine,
    progress: Progress = silent,
    *,
    background: bool = False,
    asr: str = PACKS["asr"],
) -> Timings:
    """Time every candidate that can run here, keep the result, and return it. Takes a quarter of a minute; blocks.

    `asr` is the recogniser's pack. Two processes do not measure at once: each would time the other. Raises
    `MeasuringError` where nothing can be measured, and `ModelsError` where the store cannot be used.
    """
    jobs = _jobs(store, machine, asr)
    if not jobs:
        raise MeasuringError("no model is ready to be measured here; run: wren models fetch")
    with store.locked("plan", "measuring", progress):
        best: dict[Job, Timing] = {}
        for number, (job, timing) in enumerate(_run_jobs(store, jobs, background), start=1):
            progress("measure", min(number, ROUNDS * len(jobs)), ROUNDS * len(jobs))
            if timing is not None:
                best[job] = _better(best.get(job), timing)
        progress("measure", ROUNDS * len(jobs), ROUNDS * len(jobs))
        timings = {task: tuple(best[job] for job in jobs if job in best and job.task == task) for task in PARTS}
        if not best:
            raise MeasuringError("not one candidate could be measured: run `wren doctor`")
        # At once: what is ended while the rest is tried need not be measured again.
        _keep(store, machine, asr, timings)
        nice = BACKGROUND_NICE if background else 0
        timings = tried(store, plan_from(store, machine, timings, asr=asr), timings, nice=nice)
        _keep(store, machine, asr, timings)
    return timings


# ---- what is kept -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    timings: dict[str, tuple[Timing, ...]]


_KEPT: Final = TypeAdapter(_Kept)


def _keep(store: Store, machine: Machine, asr: str, timings: Timings) -> None:
    with contextlib.suppress(OSError):  # a store that cannot be written: measured again next time
        files.write_whole(_kept_file(store, machine, asr), _KEPT.dump_json(_Kept(dict(timings)), indent=1))


def _kept_file(store: Store, machine: Machine, asr: str) -> Path:
    """By machine, and by the models: their folders are named by all that went into them."""
    models = [form.key for task, pack in _measured(asr).items() for form in forms(store, pack, PARTS[task])]
    digest = hashlib.sha256(json.dumps([VERSION, *models]).encode()).hexdigest()[:16]
    return store.root / "plans" / f"{machine.digest}-{digest}.json"


def _measured(asr: str) -> dict[str, str]:
    """Task -> pack, of those that are measured."""
    return {task: asr if task == "asr" else PACKS[task] for task in PARTS}


def _vocoder_margin(store: Store) -> int:
    """Frames of context on each side that make the voice's pieces exact."""
    try:
        return int(open_artefact(store, PACKS["tts"]).manifest.parameters["vocoder_margin_frames"])
    except ModelsError:  # not fetched or not converted yet
        return VOCODER_MARGIN


def _weights(pack: str, found: Sequence[Form]) -> dict[Precision, float]:
    """Megabytes of the graphs in use, by precision; the largest where there are several."""
    sizes: dict[Precision, float] = dict(WEIGHTS_MB[pack])
    for precision in ("fp32", "fp16", "int8"):
        if fitting := [form.mb for form in found if form.precision == precision]:
            sizes[precision] = max(fitting)
    return sizes


def _schemes(found: Sequence[Form], *, passed: bool) -> tuple[Scheme, ...]:
    """Kinds of INT8 that are here and passed, or did not pass, the gate."""
    return tuple(cast("Scheme", form.scheme) for form in found if form.precision == "int8" and form.passed is passed)


def _gate(found: Sequence[Form]) -> bool | None:
    """Whether any INT8 passed the model's accuracy gate; None where nobody has looked."""
    judged = [form.passed for form in found if form.precision == "int8"]
    return any(judged) if judged else None


# ---- measuring: the caller's side ---------------------------------------------------------------------------------


def _jobs(store: Store, machine: Machine, asr: str) -> tuple[Job, ...]:
    """Every way to run what is there, on the backends that can be measured."""
    counts = thread_counts(machine.usable_cores or 1)
    found = []
    for task, pack in _measured(asr).items():
        for form in forms(store, pack, PARTS[task]):
            # What may not be used may be as fast as it likes.
            usable = form.precision == "fp32" or (form.passed and task not in SEAMLESS)
            if usable and form.target in ("any", "cpu"):
                scheme = cast("Scheme | None", form.scheme)
                ways = [Candidate("ort-cpu", form.precision, scheme, threads) for threads in counts]
                found += [Job(task, pack, way) for way in ways]
    return tuple(found)


def _run_jobs(store: Store, jobs: tuple[Job, ...], background: bool) -> Iterator[tuple[Job, Timing | None]]:
    """A job and what it took, as often as it is timed; ends early where the process dies or takes too long."""
    environment = {**os.environ, "WREN_MODELS_DIR": str(store.root)}
    # -P: nothing from the folder that we happen to be in is imported.
    command = [sys.executable, "-P", "-m", "appliance.measuring", str(BACKGROUND_NICE if background else 0)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT_S, process.kill)  # ends the wait for a line too
        alarm.start()
        try:
            process.stdin.write(JOB_LIST.dump_json(jobs) + b"\n")
            process.stdin.close()
            while line := process.stdout.readline():
                number, timing = RESULT.validate_json(line)
                yield jobs[number], timing
        except (OSError, IndexError, ValidationError):
            # It died, or a library printed something of its own: what was read stays.
            return
        finally:
            alarm.cancel()
            process.kill()


def _better(one: Timing | None, other: Timing) -> Timing:
    """The least of both, figure by figure."""
    if one is None:
        return other
    frames = None if one.frame_ms is None or other.frame_ms is None else min(one.frame_ms, other.frame_ms)
    return Timing(one.candidate, min(one.ms, other.ms), frames)
