"""What each frame of a quiet room costs a session's thread, part by part, and the whole session. Markdown.

    .venv/bin/python benchmarks/frames_bench.py [--seconds 20] [--rounds 5] [--paced N]

CPU time of the thread, per frame of 10 ms: 100 µs are one per cent of a core. The parts are those of a live session
over the packs in the store. `--paced 1` hands a frame in every 10 ms and sleeps between them, as a microphone does:
caches are cold then, which costs several times as much; `--paced 3`: three frames every 30 ms. The least of the rounds
counts: what else runs here only ever adds. Voice activity dozes after a second of quiet: give a round some seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from appliance.app import Wren, WrenSettings
from appliance.audio.frame import FRAME_S, RATE_HZ, Frame, Framer, level_dbfs
from appliance.audio.frontend.cleaning import Cleaner
from appliance.audio.frontend.webrtc import open_processors
from appliance.voice.hearing import Hearing
from appliance.voice.meter import Metered, SessionMeter
from appliance.voice.runner import LiveRunner

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.fakes import FakePlayer

ROOM_DBFS = -62.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="sound a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--paced", type=int, default=0, metavar="N", help="at the microphone's pace, N frames at a time"
    )
    arguments = parser.parse_args()
    frames = quiet_room(arguments.seconds)
    pace = f"{arguments.paced} at a time" if arguments.paced else "tight loop"
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {pace}\n")
    print("| part | µs of CPU a frame | of a core |\n|---|---|---|")
    with Wren.open(WrenSettings()) as wren:
        for what, push in parts(wren):
            spent_us = min(frame_us(push, frames, paced=arguments.paced) for _ in range(arguments.rounds))
            print(f"| {what} | {spent_us:.1f} | {spent_us / FRAME_S / 1e4:.2f} % |", flush=True)


def parts(wren: Wren) -> Iterator[tuple[str, Callable[[Frame], object]]]:
    """Name and what is called with each frame."""
    meter = SessionMeter(lambda *_: None)
    yield "level", lambda frame: level_dbfs(frame.samples)
    yield "wake word", wren.wake_listener(wren.settings.wake, meter).push
    yield "voice activity", Metered("vad", wren.voice_activity(), meter).push
    yield "voice activity, gate and energy", Hearing(Metered("vad", wren.voice_activity(), meter)).push
    yield "front end, Wren silent", Cleaner(open_processors()).push
    runner = LiveRunner(
        lambda runner: wren.session("bench", runner, FakePlayer(runner), lambda event: None), meter=meter
    )
    runner.close()  # its threads end; what is left is the session, which this thread pushes
    cleaner = Cleaner(open_processors())
    session = runner.session
    session._parts = replace(session._parts, ears=cleaner)
    yield "a whole session", session.push


def quiet_room(seconds: float) -> list[Frame]:
    """Noise at a quiet room's level."""
    noise = np.random.default_rng(5).standard_normal(round(seconds * RATE_HZ), dtype=np.float32)
    return Framer().push(noise * np.float32(10 ** (ROOM_DBFS / 20)))


def frame_us(push: Callable[[Frame], object], frames: list[Frame], *, paced: int) -> float:
    """Microseconds of this thread's processor time a frame."""
    spent_s, due_s = 0.0, time.monotonic()
    for number, frame in enumerate(frames):
        if paced and number % paced == 0:
            due_s += paced * FRAME_S
            time.sleep(max(0.0, due_s - time.monotonic()))
        began_s = time.thread_time()
        push(frame)
        spent_s += time.thread_time() - began_s
    return spent_s / len(frames) * 1e6


if __name__ == "__main__":
    main()
