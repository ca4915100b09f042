"""Which engine at which precision on this machine: joins what `hw` knows and `models` needs with what is measured here.

Measuring takes a quarter of a minute, once for a machine and its models, and is kept in the store. It runs in a process
of its own (`python -m appliance.planning`): its memory is given back, and a caller's thread can wait for it in the
background. Until it is done, the rules alone decide.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from appliance.errors import ApplianceError
from hw.plan import Candidate, Overrides, Plan, Precision, Scheme, TaskNeed, Timing, Timings, make_plan, thread_counts
from hw.probe import Machine
from models import AsrParameters, ModelsError, Progress, Store, TtsParameters, VadParameters, silent
from models.convert import Artefact, open_artefact

__all__ = ["MeasuringError", "current_plan", "kept_timings", "measure", "task_needs", "with_gate"]

PACKS: Final = {"asr": "moonshine-base-en", "tts": "piper-en-us-joe", "vad": "silero-vad", "wake": "wake-okay-nabu"}
ENGINES: Final = {"ort-cpu": ("models.engines.onnx_cpu", "OrtCpuEngine")}
"""Backends that can be measured -> where their engine is. Only the measuring process loads one."""
PARTS: Final = {"asr": ("encoder", "decoder"), "tts": ("frontend", "flow", "vocoder")}
"""Graphs that the appliance runs for a task."""
JOBS: Final = {"asr": "3 s of speech and 9 steps", "tts": "first sound of a short reply"}
WEIGHTS_MB: Final[dict[str, dict[Precision, float]]] = {
    "asr": {"fp32": 300.7, "int8": 86.7},
    "tts": {"fp32": 63.1},
    "vad": {"fp32": 1.3},
    "wake": {"int8": 0.1},
}
"""Sizes of our own conversions, for where they have not been made."""

VERSION: Final = 1
"""Goes up when a job changes: timings kept before are not compared with new ones."""
ROUNDS: Final = 3
"""Each candidate is timed again after all others: what else runs here comes and goes, and must not hit one alone."""
REPEATS: Final = 2
"""Times in a round. The least of all counts: whatever else runs here only ever adds."""
ROOM_MB: Final = 3000
"""Free memory below which candidates are opened one at a time, and once: all of one task take 1.1 GB together."""
TIMEOUT_S: Final = 180.0
"""For a slow machine with all candidates; then the rules have to do."""
BACKGROUND_NICE: Final = 10


class MeasuringError(ApplianceError):
    """Nothing could be measured; the message says why. The rules decide alone then."""

    code = "appliance.measuring"
    retry = True


def current_plan(store: Store, machine: Machine, *, user: Overrides | None = None, gate: bool | None = None) -> Plan:
    """The plan from what is known now: timings that were kept, else the rules alone. Measures nothing.

    With `gate`, as if INT8 had passed (or failed) the accuracy gates of recognition and voice.
    """
    needs = with_gate(task_needs(store), gate)
    return make_plan(machine, needs, kept_timings(store, machine) or {}, user)


def task_needs(store: Store) -> tuple[TaskNeed, ...]:
    """What the appliance's tasks ask of a machine; sizes and INT8 from what the store holds."""
    asr, tts = (_artefact(store, task) for task in ("asr", "tts"))
    vad = store.catalogue.get(PACKS["vad"]).parameters_as(VadParameters)
    voice = store.catalogue.get(PACKS["tts"]).parameters_as(TtsParameters)
    margin = int(tts.manifest.parameters["vocoder_margin_frames"]) if tts is not None else 11
    return (
        TaskNeed(
            task="asr",
            model=PACKS["asr"],
            weights_mb=_weights("asr", asr),
            int8_schemes=("s8-dynamic",),
            # Conversion refuses INT8 graphs that say other words than the shipped model, or come too far from it.
            int8_gate=True,
            job=JOBS["asr"],
        ),
        TaskNeed(
            task="tts",
            model=PACKS["tts"],
            weights_mb=_weights("tts", tts),
            job=JOBS["tts"],
            hop_ms=voice.hop_samples / voice.rate_hz * 1000,
            overlap_frames=2 * margin,
        ),
        TaskNeed(
            task="vad",
            model=PACKS["vad"],
            weights_mb=WEIGHTS_MB["vad"],
            fixed=Candidate("ort-cpu", "fp32", None, 1),
            why="0.25 ms of one core for 32 ms of sound: going to a GPU and back takes longer than it",
            window_samples=vad.window_samples,
        ),
        TaskNeed(
            task="wake",
            model=PACKS["wake"],
            weights_mb=WEIGHTS_MB["wake"],
            fixed=Candidate("tflite", "int8", None, 1),
            why="the model comes quantised, with its own runtime, and takes half a percent of one core",
            window_samples=160,
        ),
    )


def with_gate(needs: Sequence[TaskNeed], gate: bool | None) -> tuple[TaskNeed, ...]:
    """The needs as if INT8 had passed or failed where there is a choice; unchanged for None."""
    return tuple(need if gate is None or need.fixed is not None else replace(need, int8_gate=gate) for need in needs)


def kept_timings(store: Store, machine: Machine) -> Timings | None:
    """What was measured on this machine with these models, or None."""
    try:
        kept = _KEPT.validate_json(_kept_file(store, machine).read_bytes())
    except (OSError, ValidationError):  # never measured, or not by this version
        return None
    return kept.timings


def measure(store: Store, machine: Machine, progress: Progress = silent, *, background: bool = False) -> Timings:
    """Time every candidate that can run here, keep the result, and return it. Takes a quarter of a minute; blocks.

    Two processes do not measure at once: each would time the other. Raises `MeasuringError` where nothing can be
    measured, and `ModelsError` where the store cannot be used.
    """
    jobs = _jobs(store, machine)
    if not jobs:
        raise MeasuringError("no model is ready to be measured here; run: wren models fetch")
    with store.locked("plan", "measuring", progress):
        best: dict[_Job, Timing] = {}
        for number, (job, timing) in enumerate(_run_jobs(store, jobs, background), start=1):
            progress("measure", min(number, ROUNDS * len(jobs)), ROUNDS * len(jobs))
            if timing is not None:
                best[job] = _better(best.get(job), timing)
        progress("measure", ROUNDS * len(jobs), ROUNDS * len(jobs))
        timings = {task: tuple(best[job] for job in jobs if job in best and job.task == task) for task in PARTS}
        if not best:
            raise MeasuringError("not one candidate could be measured: run `wren doctor`")
        with contextlib.suppress(OSError):  # a store that cannot be written: measured again next time
            _keep(_kept_file(store, machine), timings)
    return timings


# ---- what is kept -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    timings: dict[str, tuple[Timing, ...]]


_KEPT: Final = TypeAdapter(_Kept)


def _kept_file(store: Store, machine: Machine) -> Path:
    """By machine, and by the models: an artefact's folder is named by all that went into it."""
    models = [artefact.folder.name for task in PARTS if (artefact := _artefact(store, task)) is not None]
    digest = hashlib.sha256(json.dumps([VERSION, *models]).encode()).hexdigest()[:16]
    return store.root / "plans" / f"{machine.digest}-{digest}.json"


def _keep(path: Path, timings: dict[str, tuple[Timing, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        file.write(_KEPT.dump_json(_Kept(timings), indent=1))
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)  # noqa: PTH105 (Path.replace is the same call)


def _artefact(store: Store, task: str) -> Artefact | None:
    try:
        return open_artefact(store, PACKS[task])
    except ModelsError:  # not fetched or not converted yet
        return None


def _weights(task: str, artefact: Artefact | None) -> dict[Precision, float]:
    """Megabytes of the graphs in use, by precision."""
    sizes: dict[Precision, float] = dict(WEIGHTS_MB[task])
    files = [] if artefact is None else [f for f in artefact.manifest.files if f.part in PARTS[task]]
    for precision in ("fp32", "fp16", "int8"):
        fitting = [file for file in files if file.precision == precision]
        if len(fitting) == len(PARTS[task]):
            sizes[precision] = round(sum(file.size for file in fitting) / 1e6, 1)
    return sizes


# ---- measuring: the caller's side ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    task: str
    candidate: Candidate


_JOBS: Final = TypeAdapter(tuple[_Job, ...])
_RESULT: Final = TypeAdapter(tuple[int, Timing | None])
"""What the process prints a line: number of the job, and what it took in one round (None: it cannot run)."""


def _jobs(store: Store, machine: Machine) -> tuple[_Job, ...]:
    """Every way to run the artefacts that are there, on the backends that can be measured."""
    counts = thread_counts(machine.usable_cores or 1)
    found = []
    for task, parts in PARTS.items():
        artefact = _artefact(store, task)
        there = set() if artefact is None else {(file.part, file.precision) for file in artefact.manifest.files}
        for precision in ("fp32", "int8"):
            if all((part, precision) in there for part in parts):
                scheme: Scheme | None = "s8-dynamic" if precision == "int8" else None
                found += [_Job(task, Candidate("ort-cpu", precision, scheme, threads)) for threads in counts]
    return tuple(found)


def _run_jobs(store: Store, jobs: tuple[_Job, ...], background: bool) -> Iterator[tuple[_Job, Timing | None]]:
    """A job and what it took, as often as it is timed; ends early where the process dies or takes too long."""
    environment = {**os.environ, "WREN_MODELS_DIR": str(store.root)}
    # -P: nothing from the folder that we happen to be in is imported.
    command = [sys.executable, "-P", "-m", "appliance.planning", str(BACKGROUND_NICE if background else 0)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(TIMEOUT_S, process.kill)  # ends the wait for a line too
        alarm.start()
        try:
            process.stdin.write(_JOBS.dump_json(jobs) + b"\n")
            process.stdin.close()
            while line := process.stdout.readline():
                number, timing = _RESULT.validate_json(line)
                yield jobs[number], timing
        except (
            OSError,
            IndexError,
            ValidationError,
        ):  # it died, or a library printed something of its own: what was read stays
            return
        finally:
            alarm.cancel()
            process.kill()


# ---- measuring: the process ---------------------------------------------------------------------------------------

Work = Callable[[], Timing]
"""Times one candidate once more."""


def main() -> None:
    """Read jobs from standard input, print results a line each. Not for people."""
    os.nice(int(sys.argv[1]))
    store, jobs = Store(), _JOBS.validate_json(sys.stdin.buffer.readline())
    roomy = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > ROOM_MB * 1_000_000
    for task in PARTS:
        numbers = [number for number, job in enumerate(jobs) if job.task == task]
        for group in [numbers] if roomy else [[number] for number in numbers]:
            ready = {number: work for number in group if (work := _ready(store, jobs[number])) is not None}
            for number in set(group) - ready.keys():
                print(_RESULT.dump_json((number, None)).decode(), flush=True)
            for _ in range(ROUNDS):
                for number, work in ready.items():
                    print(_RESULT.dump_json((number, work())).decode(), flush=True)


def _ready(store: Store, job: _Job) -> Work | None:
    """The job with its engines open, run once; None where it cannot run: the others may."""
    candidate = job.candidate
    module, name = ENGINES[candidate.backend]
    make = getattr(importlib.import_module(module), name)
    try:
        artefact, pack = open_artefact(store, PACKS[job.task]), store.catalogue.get(PACKS[job.task])
        paths = {part: artefact.path(part, candidate.precision) for part in PARTS[job.task]}
        streams = {
            part: make(path, pack.state_tensors(part), threads=candidate.threads).stream()
            for part, path in paths.items()
        }
        work = _command(store, candidate, streams) if job.task == "asr" else _reply(store, candidate, streams)
        work()
    except ModelsError:
        return None
    return work


def _better(one: Timing | None, other: Timing) -> Timing:
    """The least of both, figure by figure."""
    if one is None:
        return other
    frames = None if one.frame_ms is None or other.frame_ms is None else min(one.frame_ms, other.frame_ms)
    return Timing(one.candidate, min(one.ms, other.ms), frames)


def _least_ms(work: Callable[[], object], threads: int) -> float:
    """Milliseconds, the least of a few times.

    One thread's time is its processor time: on an idle machine the same as the clock's, on a busy one still right.
    Several threads' is the clock's, which a busy machine makes longer: it is then one thread that is taken.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    times = []
    for _ in range(REPEATS):
        began_s = clock()
        work()
        times.append(clock() - began_s)
    return round(min(times) * 1000, 2)


def _command(store: Store, candidate: Candidate, streams: dict[str, Any]) -> Work:
    """A command of three seconds: the pack's own clip, the encoder and nine steps of the decoder."""
    import numpy as np

    pack = store.open(PACKS["asr"])
    parameters = pack.pack.parameters_as(AsrParameters)
    with wave.open(str(pack.path("beckett.wav")), "rb") as clip:
        pcm = np.frombuffer(clip.readframes(3 * parameters.rate_hz), dtype="<i2").astype(np.float32) / 32768
    audio, rows = pcm[None], np.zeros(1, dtype=np.int64)

    def work() -> None:
        cross = streams["encoder"].run({"audio": audio})
        streams["decoder"].reset()
        token = parameters.begin_token
        for _ in range(9):
            ids = np.array([[token]], dtype=np.int64)
            token = int(streams["decoder"].run({"ids": ids, "rows": rows, **cross})["logits"][0, -1].argmax())

    return lambda: Timing(candidate, _least_ms(work, candidate.threads))


def _reply(store: Store, candidate: Candidate, streams: dict[str, Any]) -> Work:
    """“Turned on the lights.” up to its first sound, and flow and vocoder for the whole of it, a frame."""
    import numpy as np

    pack = store.open(PACKS["tts"])
    parameters = pack.pack.parameters_as(TtsParameters)
    ids = json.loads(pack.path(parameters.config).read_text(encoding="utf-8"))["phoneme_id_map"]
    tokens = [1, 0, *(number for phoneme in "tˈɜːnd ˈɔn ðə lˈaɪts." for number in (*ids[phoneme], 0)), 2]
    feed = {
        "phonemes": np.array([tokens], dtype=np.int64),
        "lengths": np.array([len(tokens)], dtype=np.int64),
        "scales": np.array([0, 1, 0], dtype=np.float32),
    }
    latent = streams["frontend"].run(feed)["latent"]

    def sound(frames: int) -> None:
        piece = np.ascontiguousarray(latent[:, :, :frames])
        spectral = streams["flow"].run({"latent": piece, "mask": np.ones_like(piece[:, :1])})["spectral"]
        streams["vocoder"].run({"spectral": spectral})

    def first() -> None:
        streams["frontend"].run(feed)
        sound(FIRST_FRAMES)

    frames = int(latent.shape[2])

    def timed() -> Timing:
        whole_ms = _least_ms(lambda: sound(frames), candidate.threads)
        return Timing(candidate, _least_ms(first, candidate.threads), round(whole_ms / frames, 3))

    return timed


FIRST_FRAMES: Final = 55
"""New frames of a first chunk (12) with the margins behind it (11 of the vocoder, 32 of the flow)."""

if __name__ == "__main__":
    main()
