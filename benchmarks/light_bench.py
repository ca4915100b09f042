"""Moonshine tiny beside base, both INT8 and in one process: time, words, right and wrong actions, memory; as Markdown.

    .venv/bin/python benchmarks/light_bench.py [--only time,commands,noise,negatives,near,memory]

Clips, home and columns are those of bias_bench.py. Times are of the processor, each recogniser in turn, one thread,
medians; the least of the rounds stands beside them, for a busy machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import jiwer
import numpy as np
from bias_bench import Bench, counts, near
from speech_bench import words

from appliance.measuring import LIGHT_ASR, PACKS
from appliance.voice.asr.acceptance import accepted_text
from appliance.voice.asr.moonshine import MoonshineRecogniser
from appliance.voice.asr.protocol import Cancel
from hw.plan import Override, Overrides
from models import Store
from models.quantize.sound import read_wav

NAMES = {"base": PACKS["asr"], "tiny": LIGHT_ASR}
ROUNDS = 15
SOUND_S = 3.0
ENGINES = Overrides(tasks={"asr": Override(precision="int8", threads=1)})


def timed(benches: Mapping[str, Bench]) -> list[str]:
    """Three seconds of read speech, without and with phrases."""
    sound = read_wav(Store().open(PACKS["asr"]).path("beckett.wav"))[: int(SOUND_S * 16_000)]
    out = ["| 3 s of speech, CPU ms: median (least) | base | tiny | base / tiny |", "|---|---|---|---|"]
    for what, with_phrases in (("free", False), ("with the home's phrases", True)):
        took: dict[str, list[float]] = {name: [] for name in benches}
        for _ in range(ROUNDS):
            for name, bench in benches.items():
                took[name].append(_cpu_ms(lambda b=bench, p=with_phrases: b.hypothesis(sound, b.bias if p else None)))
        base, tiny = took["base"], took["tiny"]
        shown = [f"{np.median(ms):.0f} ({min(ms):.0f})" for ms in (base, tiny)]
        out.append(f"| {what} | {shown[0]} | {shown[1]} | {np.median(base) / np.median(tiny):.2f} |")
    return out


def _cpu_ms(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return 1000 * (time.process_time() - began_s)


def heard(benches: Mapping[str, Bench], parts: Iterable[str]) -> list[str]:
    """Words and actions, with the home's phrases."""
    out = [
        "| clips | recogniser | WER free | WER with phrases | right | wrong | CPU ms, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in parts:
        for name, bench in benches.items():
            rows = bench.hear(part)
            for kind in ("human", "tts"):
                group = [row for row in rows if row.row["kind"] == kind]
                if not group:
                    continue
                understood = [accepted_text(row.biased, bench.match) for row in group]
                asked = sum(bool(row.row["expected_intent"]) for row in group)
                right, wrong = counts(
                    (row.row, accepted.understanding) for row, accepted in zip(group, understood, strict=True)
                )
                rates = ["-", "-"]
                if asked:
                    said = [words(row.row["transcript"]) for row in group]
                    texts = ([row.free.text for row in group], [accepted.text for accepted in understood])
                    rates = [f"{jiwer.wer(said, [words(text) or '-' for text in found]):.1%}" for found in texts]
                took = np.median([row.biased_ms for row in group])
                out.append(
                    f"| {part}, {kind} ({len(group)}) | {name} | {rates[0]} | {rates[1]} | {right}/{asked} | {wrong} "
                    f"| {took:.0f} |"
                )
    return out


def memory() -> list[str]:
    """What a process holds more once the recogniser has heard three seconds; each in a process of its own."""
    out = ["| memory, MB (resident) | base | tiny |", "|---|---|---|"]
    found = []
    for pack in NAMES.values():
        answer = subprocess.run(
            [sys.executable, __file__, "--memory-of", pack], check=True, capture_output=True, text=True
        )
        found.append(answer.stdout.strip())
    return [*out, f"| the recogniser, after three seconds of speech | {' | '.join(found)} |"]


def _memory_of(pack: str) -> float:
    """Not `Wren.open`: voice and home would be in it."""
    from appliance.engines import EngineOpener
    from appliance.machine import this_machine
    from appliance.planning import current_plan
    from appliance.recognisers import open_moonshine

    store = Store()
    sound = read_wav(store.open(PACKS["asr"]).path("beckett.wav"))[: int(SOUND_S * 16_000)]
    opener = EngineOpener(store, current_plan(store, this_machine(store), user=ENGINES, asr=pack))
    import onnxruntime  # noqa: F401 - the runtime itself is not counted

    before = _resident_mb()
    recogniser = MoonshineRecogniser(open_moonshine(opener, store.open(pack)))
    recogniser.push_samples(sound)
    recogniser.hypothesise(recogniser.samples, None, Cancel())
    return _resident_mb() - before


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) * 1024 / 1e6


def main(argv: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="time,commands,noise,negatives,near,memory")
    parser.add_argument("--memory-of", metavar="PACK", help=argparse.SUPPRESS)
    arguments = parser.parse_args(None if argv is None else list(argv))
    if arguments.memory_of:
        print(f"{_memory_of(arguments.memory_of):.0f}")
        return
    parts = arguments.only.split(",")
    benches = {name: Bench(pack, ENGINES) for name, pack in NAMES.items()}
    if "time" in parts:
        print("\n".join([*timed(benches), ""]), flush=True)
    clips = [part for part in parts if part in ("commands", "noise", "negatives")]
    if clips:
        print("\n".join([*heard(benches, clips), ""]), flush=True)
    if "near" in parts:
        for name, bench in benches.items():
            print("\n".join([f"{name}:", "", *near(bench, ("commands", "noise")), ""]), flush=True)
    if "memory" in parts:
        print("\n".join(memory()), flush=True)


if __name__ == "__main__":
    main()
