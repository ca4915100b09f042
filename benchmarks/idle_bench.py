"""What the whole appliance costs while nobody speaks: `wren run` itself, with and without sound devices. Markdown.

    .venv/bin/python benchmarks/idle_bench.py [--seconds 60] [--block 256 480]

Needs PulseAudio (tools/test-packages.txt). The virtual microphone hears a quiet room, then people who talk all the time
(nothing dozes then); counted is the CPU time of the process (the client side of the sound server is within it) and of
the programs that it started.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from appliance.audio.files import read_blocks  # noqa: E402
from appliance.audio.frame import RATE_HZ, Samples  # noqa: E402
from appliance.bench.material import speech_folder  # noqa: E402
from tests.peers.pulse import pulse_server  # noqa: E402
from tests.test_running import running  # noqa: E402

ROOM_DBFS = -62.0
SETTLED_S = 25.0
"""After the start: the home's phrases and what is said in trouble are made meanwhile, and the speaker comes to rest."""
SETTINGS = "[web]\nport = 0\n[engines]\nmeasure = false\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--speech", type=Path, metavar="DIR")
    parser.add_argument("--block", type=int, nargs="*", default=[256, 480], help="frames of the devices' blocks")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n\n| what | of a core |\n|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pulse").mkdir()
        config = folder / "wren.toml"
        config.write_text(SETTINGS)
        _row("no sound devices", config, "unix:/nonexistent", arguments.seconds)
        with pulse_server(folder / "pulse") as pulse:
            noise = np.random.default_rng(1).standard_normal(RATE_HZ * 900, dtype=np.float32)
            quiet: Samples = noise * np.float32(10 ** (ROOM_DBFS / 20))
            talk = np.concatenate(list(_talk(speech_folder(arguments.speech), RATE_HZ * 900)))
            for room, sound in (("quiet room", quiet), ("people talk all the time", talk)):
                said = pulse.say(sound)
                try:
                    for block in arguments.block:
                        config.write_text(f"{SETTINGS}[audio]\nbuffer_frames = {block}\n")
                        what = f"{room}, blocks of {block}"
                        _row(what, config, pulse.settings["PULSE_SERVER"], arguments.seconds)
                finally:
                    said.kill()
                    said.wait()


def _talk(speech: Path, samples: int) -> Iterator[Samples]:
    """Recordings that hold no wake word, one after the other."""
    left = samples
    for file in cycle(sorted((speech / "negatives").rglob("*.flac"))):
        for block in read_blocks(file):
            yield block
            left -= block.size
        if left <= 0:
            return


def _row(what: str, config: Path, pulse: str, seconds: float) -> None:
    with running(config, pulse) as (started, _):
        time.sleep(SETTLED_S)
        process = psutil.Process(started.pid)
        shares = []
        for _ in range(3):
            before_s, began_s = _spent_s(process), time.monotonic()
            time.sleep(seconds / 3)
            shares.append((_spent_s(process) - before_s) / (time.monotonic() - began_s))
        low, middle, high = sorted(shares)
        print(f"| {what} | {middle:.2%} ({low:.2%}–{high:.2%}) |", flush=True)


def _spent_s(process: psutil.Process) -> float:
    family = [process, *process.children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:2]) for one in family))


if __name__ == "__main__":
    main()
