"""The process that times candidates (`python -m appliance.measuring`): jobs on standard input, a line a result.

Not for people: `appliance.planning.measure` starts it.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from hw.plan import Candidate, Timing
from models import ModelsError, Store
from models.graphs import form_of

if TYPE_CHECKING:
    from appliance.engine_jobs import Feeds

__all__ = ["JOB_LIST", "LIGHT_ASR", "PACKS", "PARTS", "RESULT", "ROUNDS", "Job", "command", "main"]

PACKS: Final = {
    "asr": "moonshine-base-en",
    "tts": "piper-en-us-joe",
    "vad": "silero-vad",
    "wake": "wake-okay-nabu",
    "denoise": "dtln",
}
LIGHT_ASR: Final = "moonshine-tiny-en"
"""A recogniser that takes less, where it is installed: by choice, or while a machine cannot keep up."""
PARTS: Final = {"asr": ("encoder", "decoder"), "tts": ("frontend", "flow", "vocoder")}
"""Graphs that the appliance runs for a task."""
ENGINES: Final = {"ort-cpu": ("models.engines.onnx_cpu", "OrtCpuEngine")}
"""Backends that can be measured -> where their engine is. Only this process loads one."""
ROUNDS: Final = 3
"""Each candidate is timed again after all others: what else runs here comes and goes, and must not hit one alone."""
STEPS: Final = 9
"""Of the decoder: eight tokens and the end. As many for each candidate, however many it takes the clip to have."""
REPEATS: Final = 2
"""Times in a round. The least of all counts: whatever else runs here only ever adds."""
ROOM_MB: Final = 3000
"""Free memory below which candidates are opened one at a time, and once: all of one task take 1.1 GB together."""


@dataclass(frozen=True, slots=True)
class Job:
    """A candidate to be timed for a task."""

    task: str
    pack: str
    candidate: Candidate


JOB_LIST: Final = TypeAdapter(tuple[Job, ...])
RESULT: Final = TypeAdapter(tuple[int, Timing | None])
"""What is printed a line: number of the job, and what it took in one round (None: it cannot run)."""

Work = Callable[[], Timing]
"""Times one candidate once more."""


def main() -> None:
    """Read jobs from standard input, print results a line each. Not for people."""
    os.nice(int(sys.argv[1]))
    store, jobs = Store(), JOB_LIST.validate_json(sys.stdin.buffer.readline())
    roomy = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > ROOM_MB * 1_000_000
    for task in PARTS:
        numbers = [number for number, job in enumerate(jobs) if job.task == task]
        for group in [numbers] if roomy else [[number] for number in numbers]:
            ready = {number: work for number in group if (work := _ready(store, jobs[number])) is not None}
            for number in set(group) - ready.keys():
                print(RESULT.dump_json((number, None)).decode(), flush=True)
            for _ in range(ROUNDS):
                for number, work in ready.items():
                    print(RESULT.dump_json((number, work())).decode(), flush=True)


def _ready(store: Store, job: Job) -> Work | None:
    """The job with its engines open, run once; None where it cannot run: the others may."""
    from appliance.engine_jobs import feeds_for

    candidate = job.candidate
    module, name = ENGINES[candidate.backend]
    make = getattr(importlib.import_module(module), name)
    try:
        pack = store.catalogue.get(job.pack)
        form = form_of(store, job.pack, PARTS[job.task], candidate.precision, candidate.scheme)
        streams = {
            part: make(form.path(part), pack.state_tensors(part), threads=candidate.threads).stream()
            for part in PARTS[job.task]
        }
        feeds = feeds_for(store, job.task, streams, job.pack)
        work = {"asr": _command, "tts": _reply}[job.task](feeds, candidate, streams)
        work()
    except ModelsError:
        return None
    return work


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


def command(feeds: Feeds, streams: Mapping[str, Any]) -> Callable[[], None]:
    """A command of three seconds: the encoder and nine steps of the decoder, which the same tokens fill up."""
    steps = list(itertools.islice(itertools.cycle(feeds["decoder"]), STEPS))

    def work() -> None:
        streams["encoder"].run(feeds["encoder"][0])
        streams["decoder"].reset()
        for step in steps:
            streams["decoder"].run(step)

    return work


def _command(feeds: Feeds, candidate: Candidate, streams: dict[str, Any]) -> Work:
    work = command(feeds, streams)
    return lambda: Timing(candidate, _least_ms(work, candidate.threads))


def _reply(feeds: Feeds, candidate: Candidate, streams: dict[str, Any]) -> Work:
    """A short reply up to its first sound, and flow and vocoder for the whole of it, a frame."""
    text, latent = feeds["frontend"][0], feeds["flow"][0]

    def sound(frames: int) -> None:
        piece = {name: value[:, :, :frames].copy() for name, value in latent.items()}
        streams["vocoder"].run({"spectral": streams["flow"].run(piece)["spectral"]})

    def first() -> None:
        streams["frontend"].run(text)
        sound(FIRST_FRAMES)

    frames = int(latent["latent"].shape[2])

    def timed() -> Timing:
        whole_ms = _least_ms(lambda: sound(frames), candidate.threads)
        return Timing(candidate, _least_ms(first, candidate.threads), round(whole_ms / frames, 3))

    return timed


FIRST_FRAMES: Final = 55
"""New frames of a first chunk (12) with the margins behind it (11 of the vocoder, 32 of the flow)."""

if __name__ == "__main__":
    main()
