"""Every model on every backend at every precision that this machine can run: time, memory, and how right it is.

`wren bench --engines`. Each combination is measured in a process of its own (`python -m appliance.bench_engines`): what
it takes of memory is its own then, and one that crashes takes no other with it.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from appliance.bench.errors import MaterialError
from appliance.bench.material import COMMANDS, load_clips, speech_folder
from appliance.bench.meters import Load, MachineLine, machine_line
from appliance.bench.statistics import nearest_rank
from appliance.engine_jobs import MODELS, Feeds, feeds_for, load_arrays, save_arrays, sound_s
from models import Progress, Store, TerminalProgress, silent
from models.engines.rungs import TABLE, Kind, open_kind

__all__ = ["EngineBench", "EngineRow", "PartRow", "measure_engines", "run_engine_bench"]

CLIPS: Final = 6
BUDGET_S: Final = 2.5
"""Seconds that a graph's runs may take together, beyond the first round."""
MOST_ROUNDS: Final = 30
TIMEOUT_S: Final = 60.0
"""For one combination: weights opened, everything run, clips heard."""
BEST_DB: Final = 150.0
REFERENCE: Final = Kind("ort-cpu", "fp32")


@dataclass(frozen=True, slots=True)
class PartRow:
    """One graph."""

    part: str
    calls: int
    p50_ms: float
    """By the clock, a call."""
    p95_ms: float
    cpu_ms: float
    """Processor time of a call, the mean: what it takes whatever else runs here."""
    max_error: float | None
    """Largest difference of an output from FP32's on ONNX Runtime's CPU; None where that does not load."""
    snr_db: float | None
    """Signal to noise against the same."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One model on one backend at one precision."""

    task: str
    model: str
    backend: str
    precision: str
    scheme: str | None
    parts: tuple[PartRow, ...]
    rtf: float
    """Processor time of the job over the length of its sound; by the clock on a device."""
    open_s: float
    memory_mb: float
    """Resident memory that weights and a first job added."""
    words_right: int | None
    """Of the clips' words; for the recogniser only, and where there are recordings."""
    words: int | None


@dataclass(frozen=True, slots=True)
class Absent:
    """A combination that cannot run here."""

    task: str
    kind: str
    reason: str


@dataclass(slots=True)
class EngineBench:
    """All of it."""

    machine: MachineLine
    started: str
    load_before: Load
    load_after: Load
    rows: list[EngineRow] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    def markdown(self) -> str:
        """Tables for people."""
        return "\n".join(_markdown(self)) + "\n"


def run_engine_bench(json: bool = False, *, store: Store | None = None, speech: Path | None = None) -> int:
    """Measure, print tables (or one JSON object), and return the exit code: 1 where nothing could be run at all.

    `speech` is the folder of recordings; None: where `wren bench` looks. Without one, words are left out.
    """
    from appliance.cli.common import print_json

    progress = TerminalProgress()
    try:
        bench = measure_engines(store or Store(), speech=speech, progress=progress)
    finally:
        progress.finish()
    if json:
        print_json(bench.to_dict())
    else:
        print(bench.markdown(), end="")
    return 0 if bench.rows else 1


def measure_engines(
    store: Store,
    *,
    speech: Path | None = None,
    progress: Progress = silent,
    tasks: Sequence[str] = tuple(MODELS),
    kinds: Sequence[Kind] = TABLE,
) -> EngineBench:
    """Measure every combination; two to three minutes for all. Raises nothing for one that cannot run: it is listed."""
    bench = EngineBench(machine_line(), time.strftime("%Y-%m-%d %H:%M"), Load.now(), Load.now())
    # The reference first: the others are held against what it made.
    jobs = [(task, kind) for task in tasks for kind in sorted(kinds, key=lambda kind: kind != REFERENCE)]
    with tempfile.TemporaryDirectory(prefix="wren-bench-") as folder:
        for number, (task, kind) in enumerate(jobs):
            progress(f"{task} on {_name(kind)}", number, len(jobs))
            done = _apart(store, _Job(task, kind, Path(folder), speech))
            if isinstance(done, EngineRow):
                bench.rows.append(done)
            else:
                bench.absent.append(done)
        progress("engines", len(jobs), len(jobs))
    order = {kind: number for number, kind in enumerate(TABLE)}
    bench.rows.sort(key=lambda r: (list(MODELS).index(r.task), order[Kind(r.backend, r.precision, r.scheme)]))
    bench.load_after = Load.now()
    return bench


# ---- the caller's side ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    task: str
    kind: Kind
    folder: Path
    """Where the reference's inputs and outputs lie."""
    speech: Path | None


_JOB: Final = TypeAdapter(_Job)
_DONE: Final[TypeAdapter[EngineRow | Absent]] = TypeAdapter(EngineRow | Absent)


def _apart(store: Store, job: _Job) -> EngineRow | Absent:
    """The job in a process of its own."""
    environment = {**os.environ, "WREN_MODELS_DIR": str(store.root)}
    # -P: nothing from the folder that we happen to be in is imported.
    command = [sys.executable, "-P", "-m", "appliance.bench_engines"]
    try:
        done = subprocess.run(
            command, input=_JOB.dump_json(job), capture_output=True, env=environment, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Absent(job.task, _name(job.kind), f"not done within {TIMEOUT_S:g} s")
    lines = done.stdout.splitlines()
    try:
        return _DONE.validate_json(lines[-1])
    except (IndexError, ValidationError):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return Absent(job.task, _name(job.kind), f"its process ended with {done.returncode}: {last[0]}")


# ---- the process ----------------------------------------------------------------------------------------------


def main() -> None:
    """Read a job from standard input, print its row. Not for people."""
    job = _JOB.validate_json(sys.stdin.buffer.read())
    try:
        done: EngineRow | Absent = _measured(Store(), job)
    except Exception as error:  # noqa: BLE001 (a backend raises what it likes: the report says it)
        text = " ".join(str(error).split()) or type(error).__name__
        done = Absent(job.task, _name(job.kind), text)
    print(_DONE.dump_json(done).decode(), flush=True)


def _measured(store: Store, job: _Job) -> EngineRow:
    model, parts = MODELS[job.task]
    began_s, before_mb = time.perf_counter(), _rss_mb()
    engines = open_kind(store, model, parts, job.kind)
    open_s = time.perf_counter() - began_s
    streams = {part: engine.stream() for part, engine in engines.items()}
    feeds, reference = _material(store, job, streams)
    rows, made = [], {}
    for part in parts:
        fitted = [_fitted(engines[part], feed) for feed in feeds[part]]
        made[part] = _outputs(streams[part], fitted)
        if part == parts[-1]:
            memory_mb = _rss_mb() - before_mb
    for part in parts:
        fitted = [_fitted(engines[part], feed) for feed in feeds[part]]
        rows.append(_timed(part, streams[part], fitted, made[part], None if reference is None else reference[part]))
    if reference is None and job.kind == REFERENCE:
        save_arrays(job.folder / f"{job.task}.in.npz", dict(feeds))
        save_arrays(job.folder / f"{job.task}.out.npz", made)
    right, words = _words(store, job, engines) if job.task == "asr" else (None, None)
    per_call = [(row.cpu_ms if job.kind.backend in ("ort-cpu", "numpy") else row.p50_ms) for row in rows]
    spent_s = sum(ms * len(feeds[row.part]) for ms, row in zip(per_call, rows, strict=True)) / 1000
    return EngineRow(
        task=job.task,
        model=model,
        backend=job.kind.backend,
        precision=job.kind.precision,
        scheme=job.kind.scheme,
        parts=tuple(rows),
        rtf=round(spent_s / sound_s(store, job.task, feeds), 4),
        open_s=round(open_s, 2),
        memory_mb=round(memory_mb, 1),
        words_right=right,
        words=words,
    )


def _material(store: Store, job: _Job, streams: Mapping[str, Any]) -> tuple[Feeds, Feeds | None]:
    """What is given, and what the reference made of it; None for the reference itself, or where there is none."""
    given, made = (job.folder / f"{job.task}.{what}.npz" for what in ("in", "out"))
    if given.is_file():
        return load_arrays(given), load_arrays(made)
    return feeds_for(store, job.task, streams), None


def _fitted(engine: Any, feed: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the floats that the engine wants, as a ladder would give them."""
    wanted = getattr(engine, "inputs", {})
    return {
        name: value.astype(wanted[name].dtype, copy=False) if value.dtype.kind == "f" and name in wanted else value
        for name, value in feed.items()
    }


def _outputs(stream: Any, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    stream.reset()
    return [{name: value.copy() for name, value in stream.run(feed).items()} for feed in feeds]


def _timed(
    part: str,
    stream: Any,
    feeds: Sequence[Mapping[str, Any]],
    made: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]] | None,
) -> PartRow:
    walls: list[float] = []
    cpu_s, began_s, rounds = 0.0, time.perf_counter(), 0
    while rounds < MOST_ROUNDS and (rounds < 1 or time.perf_counter() - began_s < BUDGET_S):
        stream.reset()
        for feed in feeds:
            wall_s, spent_s = time.perf_counter(), time.process_time()
            stream.run(feed)
            cpu_s += time.process_time() - spent_s
            walls.append((time.perf_counter() - wall_s) * 1000)
        rounds += 1
    error, snr_db = (None, None) if reference is None else _difference(made, reference, centred=part == "decoder")
    return PartRow(
        part=part,
        calls=len(walls),
        p50_ms=round(nearest_rank(walls, 50), 3),
        p95_ms=round(nearest_rank(walls, 95), 3),
        cpu_ms=round(cpu_s / len(walls) * 1000, 3),
        max_error=error,
        snr_db=snr_db,
    )


def _difference(
    made: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]], *, centred: bool
) -> tuple[float, float]:
    """Largest difference, and signal to noise in dB.

    With `centred` a number added to a whole row counts as nothing: to logits it makes no difference.
    """
    import numpy as np

    worst, signal, noise = 0.0, 0.0, 0.0
    for name in reference[0]:
        theirs = [run[name].astype(np.float64) for run in reference]
        ours = [run[name].astype(np.float64) for run in made]
        if centred:
            theirs, ours = ([row - row.mean(axis=-1, keepdims=True) for row in rows] for rows in (theirs, ours))
        mean = np.concatenate([row.ravel() for row in theirs]).mean()
        for one, other in zip(ours, theirs, strict=True):
            worst = max(worst, float(np.abs(one - other).max()))
            noise += float(np.square(one - other).sum())
            signal += float(np.square(other - mean).sum())
    # As for a graph that is the same file: better than any float can tell.
    return float(f"{worst:.3g}"), round(min(10 * math.log10(max(signal, 1e-30) / max(noise, 1e-30)), BEST_DB), 1)


def _words(store: Store, job: _Job, engines: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Words right and words said in a few recorded commands; None where there are no recordings."""
    from appliance.bench.sound import read_sound
    from appliance.evaluation import word_errors
    from appliance.voice.asr.moonshine import MoonshineModel, MoonshineRecogniser
    from appliance.voice.asr.tokenizer import Tokenizer

    try:
        clips = load_clips(speech_folder(job.speech), COMMANDS)
    except MaterialError:
        return None, None
    tokenizer = Tokenizer.load(store.open(MODELS["asr"][0]).path("tokenizer.bin"))
    recogniser = MoonshineRecogniser(MoonshineModel(engines["encoder"], engines["decoder"], tokenizer))
    wrong = said = 0
    for clip in clips[:: max(1, len(clips) // CLIPS)][:CLIPS]:
        recogniser.reset()
        recogniser.push_samples(read_sound(clip.path))
        missed, count = word_errors(clip.transcript, recogniser.flush().text)
        wrong, said = wrong + missed, said + count
    return max(0, said - wrong), said


def _rss_mb() -> float:
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _markdown(bench: EngineBench) -> Iterator[str]:
    machine = bench.machine
    yield f"{machine.cpu}, {machine.cores} cores; Python {machine.python}, {machine.system}; {bench.started}"
    yield (
        f"load {bench.load_before.load_1min:.1f} before, {bench.load_after.load_1min:.1f} after; one thread an engine; "
        "errors against FP32 on ONNX Runtime's CPU"
    )
    yield "\n| task | backend | graph | p50 ms | p95 ms | CPU ms | largest error | SNR dB | calls |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in bench.rows:
        for part in row.parts:
            error, snr = ("-" if value is None else f"{value:g}" for value in (part.max_error, part.snr_db))
            yield (
                f"| {row.task} | {_name(row)} | {part.part} | {part.p50_ms:.2f} | {part.p95_ms:.2f} | "
                f"{part.cpu_ms:.2f} | {error} | {snr} | {part.calls} |"
            )
    yield "\n| task | backend | real-time factor | memory MB | opened in s | words right |"
    yield "|---|---|---|---|---|---|"
    for row in bench.rows:
        words = "-" if row.words is None else f"{row.words_right} of {row.words}"
        yield f"| {row.task} | {_name(row)} | {row.rtf:.4f} | {row.memory_mb:.0f} | {row.open_s:.2f} | {words} |"
    if bench.absent:
        yield "\n| does not run here | why |"
        yield "|---|---|"
        reasons: dict[str, list[str]] = {}
        for gone in bench.absent:
            reasons.setdefault(gone.reason, []).append(f"{gone.task} on {gone.kind}")
        for reason, names in reasons.items():
            yield f"| {', '.join(names)} | {reason} |"


def _name(row: EngineRow | Kind) -> str:
    return f"{row.backend} {row.precision}" + (f" {row.scheme}" if row.scheme else "")


if __name__ == "__main__":
    main()
