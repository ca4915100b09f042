"""Wren in a room that plays its own voice back to it: does it wake itself, can it be interrupted? Markdown.

    .venv/bin/python benchmarks/echo_bench.py [--minutes 10] [--tries 20]

Needs PulseAudio (tools/test-packages.txt) and runs in real time: the virtual speaker is led back into the virtual
microphone at -6 dB, replies are said one after the other, then people say "alexa" and synthetic voices "stop" into
them. Needs no quiet machine for the counts, and one for the milliseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from appliance.app import Wren, WrenSettings  # noqa: E402
from appliance.audio.frame import Samples  # noqa: E402
from appliance.bench.material import speech_folder  # noqa: E402
from appliance.settings import Settings  # noqa: E402
from appliance.voice.wake import WakeSettings  # noqa: E402
from tests.peers.echo_room import EchoRoom, Try, human_wakes, spoken_stops  # noqa: E402
from tests.peers.pulse import pulse_server  # noqa: E402

WORDS = ("okay_nabu", "alexa")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of replies, listened to for self-wakes")
    parser.add_argument("--tries", type=int, default=20, help="interruptions of each kind")
    parser.add_argument("--without", action="store_true", help="without echo cancelling, for comparison")
    parser.add_argument("--speech", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    shared = speech_folder(arguments.speech).parent
    settings = Settings.model_validate({"audio": {"echo_cancelling": not arguments.without}})
    with tempfile.TemporaryDirectory() as name, Wren.open(WrenSettings(wake=WakeSettings(WORDS))) as wren:
        folder = Path(name)
        wakes, stops = human_wakes(shared, arguments.tries), spoken_stops(wren, folder, arguments.tries)
        (folder / "pulse").mkdir()
        with pulse_server(folder / "pulse") as pulse, EchoRoom(wren, pulse, settings) as room:
            print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
            cpu_s, began_s = time.process_time(), time.monotonic()
            count, wrong = room.reply_for(60.0 * arguments.minutes)
            share = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
            print(f"{count} replies in {arguments.minutes:g} minutes: {len(wrong)} interruptions by itself", flush=True)
            for event in wrong:
                print(f"    {event}")
            print(f"{share:.1%} of a core while replies are said, the making of them included")
            print("\n| said into a reply | tries | ended it | silent after p50 | max |\n|---|---|---|---|---|")
            _print("alexa (people)", _tries(room, wakes))
            _print("stop (synthetic voices)", _tries(room, stops))
            print(f"\n{room.local.ears}")


def _tries(room: EchoRoom, said: Sequence[Samples]) -> list[Try]:
    return [room.interrupt(number, sound) for number, sound in enumerate(said)]


def _print(name: str, tries: Sequence[Try]) -> None:
    ended = sum(one.ended for one in tries)
    times = sorted(one.silence_ms for one in tries if one.silence_ms is not None)
    figures = f"{times[len(times) // 2]:.0f} ms | {times[-1]:.0f} ms" if times else "- | -"
    print(f"| {name} | {len(tries)} | {ended} ({ended / max(1, len(tries)):.0%}) | {figures} |", flush=True)


if __name__ == "__main__":
    main()
