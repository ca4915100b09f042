"""What the whole loop costs here: start, memory, idle listening, a command, a reply. Markdown on standard output.

    .venv/bin/python benchmarks/loop_bench.py [--repeats N]

CPU times are of the measured process (all threads); medians with the spread (5th to 95th percentile) of the repeats.
Machines are noisy: compare figures of one run with each other, not with those of another day.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil

from appliance.app import Wren, WrenSettings
from appliance.audio.frame import RATE_HZ, Frame, Framer, Samples
from appliance.audio.resample import MonoResampler
from appliance.recording import hear, samples_frames
from appliance.voice.asr.protocol import Cancel

COMMAND = "turn on the kitchen lights"
REPLY = "Turned on the lights"
IDLE_S = 60.0
CHILD = """
import json, sys, time
started = time.perf_counter()
from appliance.app import Wren, WrenSettings
wren = Wren.open(WrenSettings())
ready = time.perf_counter() - started
import psutil
from appliance.recording import hear, samples_frames
import appliance.cli.demo as demo
process = psutil.Process()
open_rss = process.memory_info().rss
before = sum(c.memory_info().rss for c in process.children())
for _ in range(3):
    hear(wren, "bench", samples_frames(demo._spoken(wren, demo.COMMAND)))
used = process.memory_info()
children = sum(c.memory_info().rss for c in process.children())
print(json.dumps({"ready_s": ready, "open": open_rss, "used": used.rss, "children": children}))
"""


def median(values: list[float], unit: str = "ms", digits: int = 0) -> str:
    """`median (5th-95th percentile) unit`."""
    low, middle, high = np.percentile(values, [5, 50, 95])
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f}) {unit}"


def cpu_ms(work: Callable[[], object], repeats: int) -> list[float]:
    """CPU milliseconds of each repeat, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append((time.process_time() - started) * 1000)
    return times


def quiet_frames(seconds: float) -> Iterator[Frame]:
    """A quiet room."""
    framer = Framer()
    generator = np.random.default_rng(5)
    for _ in range(int(seconds)):
        yield from framer.push(generator.standard_normal(RATE_HZ, dtype=np.float32) * np.float32(1e-3))


def spoken(wren: Wren, text: str, seconds: float) -> Samples:
    """A text at 16 kHz, filled up with quiet or cut to a length."""
    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz)
    sound = np.concatenate((resampler.push(synthesiser.whole(text)), resampler.flush()))
    out = np.zeros(int(seconds * RATE_HZ), dtype=np.float32)
    out[: min(sound.size, out.size)] = sound[: out.size]
    return out


def rows(repeats: int) -> Iterator[tuple[str, str, str]]:
    """(what, figure, target)."""
    runs = [json.loads(subprocess.check_output([sys.executable, "-c", CHILD])) for _ in range(3)]
    yield "start to ready, packs in place (wall)", median([r["ready_s"] for r in runs], "s", 2), "≤ 4 s"
    yield "memory when ready (RSS)", f"{max(r['open'] for r in runs) / 1e6:.0f} MB", ""
    total = max(r["used"] + r["children"] for r in runs)
    yield "memory after three commands, espeak-ng included (RSS)", f"{total / 1e6:.0f} MB", "≤ 450 MB"
    with Wren.open(WrenSettings()) as wren:
        yield from engine_rows(wren, repeats)
        idle = []
        for _ in range(3):
            started = time.process_time()
            hear(wren, "idle", quiet_frames(IDLE_S))
            idle.append((time.process_time() - started) / (IDLE_S + 10.0) * 100)
        yield "idle listening: wake word and voice activity (CPU)", median(idle, "% of a core", 2), "≤ 6 %"
        from appliance.cli import demo

        sound = demo._spoken(wren, demo.COMMAND)
        started_list = []
        for _ in range(max(3, repeats // 3)):
            started_list.append(hear(wren, "demo", samples_frames(sound)).cpu_s)
        yield "the demo's command from wake to reply, all in all (CPU)", median(started_list, "s", 2), ""


def engine_rows(wren: Wren, repeats: int) -> Iterator[tuple[str, str, str]]:
    """Recognition and speech, one thread each."""
    recogniser = wren.recogniser()
    for seconds in (1.5, 3.0, 5.0):
        recogniser.reset()
        recogniser.push_samples(spoken(wren, COMMAND, seconds))
        words = recogniser.flush().text
        times = cpu_ms(recogniser.flush, repeats)
        target = "≤ 100 ms" if seconds == 3.0 else ""
        yield f"recognition of a {seconds:g} s command (“{words}”, CPU)", median(times), target

    def first() -> None:
        next(wren.synthesiser().stream(REPLY, Cancel()))

    wren._cache = type(wren._cache)(max_bytes=0)  # a cached reply would be measured otherwise
    yield f"first audio of “{REPLY}”, phonemes included (CPU)", median(cpu_ms(first, repeats)), "≤ 80 ms"
    yield f"all of “{REPLY}” (CPU)", median(cpu_ms(lambda: wren.synthesiser().whole(REPLY), repeats)), ""
    texts = [COMMAND, "set a timer for five minutes", "what's the temperature", "make me a sandwich"]
    numbers = iter(range(10**6))
    match = cpu_ms(lambda: wren.assistant.match(texts[next(numbers) % len(texts)]), repeats * 4)
    yield "matching a sentence (CPU)", median(match, digits=1), ""


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the whole loop on this machine")
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    load = os.getloadavg()[0]
    print(f"{model}, {psutil.cpu_count()} cores, Python {platform.python_version()}; load before the run {load:.1f}\n")
    print("| what | here | target |\n|---|---|---|")
    for what, figure, target in rows(arguments.repeats):
        print(f"| {what} | {figure} | {target} |", flush=True)


if __name__ == "__main__":
    main()
