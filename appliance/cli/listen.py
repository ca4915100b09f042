"""`wren listen`: hear recordings through exactly the path that live sound takes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.cli.common import add_home_options, open_wren, print_json, settings_from, warn

if TYPE_CHECKING:
    from appliance.recording import HeardRecording

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("listen", help="hear recordings as if they were live")
    parser.add_argument("file", nargs="+", type=Path, metavar="FILE", help="WAV, FLAC, OGG, or raw PCM")
    parser.add_argument("--json", action="store_true", help="one JSON object a file")
    parser.add_argument("--realtime", action="store_true", help="play the file at its own speed, on the wall clock")
    parser.add_argument(
        "--raw",
        metavar="RATE[:CHANNELS[:ENCODING]]",
        help="the files have no header, for instance 48000:2:s16le (names in .raw, .pcm, .s16: 16000:1:s16le)",
    )
    wake = parser.add_mutually_exclusive_group()
    wake.add_argument("--no-wake", action="store_true", help="the whole recording is addressed to Wren")
    wake.add_argument("--wake", metavar="NAME", action="append", help="wake word to wait for; can be repeated")
    add_home_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Hear each file; a bad one is reported and the others go on. 1 if any failed."""
    from appliance.audio.files import RawFormat
    from appliance.recording import file_frames, hear

    raw = RawFormat.parse(arguments.raw) if arguments.raw else None
    failed = False
    with open_wren(settings_from(arguments)) as wren:
        for path in arguments.file:
            frames = file_frames(path, raw)
            heard = hear(wren, str(path), frames, wake=not arguments.no_wake, realtime=arguments.realtime)
            if heard.error is not None:
                failed = True
                warn(heard.error)
            if heard.dropped_frames:
                warn(f"{path}: {heard.dropped_frames} frames were lost, this machine is too slow for real time")
            if arguments.json:
                print_json(heard.record())
            else:
                _show(heard)
    return 1 if failed else 0


def _show(heard: HeardRecording) -> None:
    from appliance.telemetry.trace import waterfall

    print(f"{heard.name}" + (f"  (wake word {heard.wake})" if heard.wake else ""))
    if not heard.utterances:
        print("  nothing was said to Wren" if heard.error is None else "  not heard")
    for trace in heard.utterances:
        understanding = trace.understanding
        intent = understanding.intent if understanding is not None and understanding.intent else "-"
        slots = {} if understanding is None else understanding.slots
        print(f"  heard   {trace.text or '-'}")
        print(f"  intent  {intent}" + "".join(f"  {name}={value}" for name, value in slots.items()))
        print(f"  reply   {trace.reply or '-'}")
        for line in waterfall(trace):
            print("    " + line)
    sys.stdout.flush()
