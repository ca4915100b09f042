"""`wren demo`: speaks a command into the whole loop, shows what happens and when, and writes the reply."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.cli.common import add_home_options, open_wren, settings_from

if TYPE_CHECKING:
    from appliance.app import Wren
    from appliance.audio.frame import Samples
    from appliance.events import Event

__all__ = ["add", "run"]

COMMAND: Final = "okay nabu, turn on the kitchen lights"
OUT: Final = Path("wren-demo-reply.wav")
LEAD_S: Final = 0.5
"""Quiet before the command: a room is not silent and then suddenly speaks."""
ROOM_DBFS: Final = -60.0


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("demo", help="speak a command into the whole loop and show the timeline")
    parser.add_argument("--say", default=COMMAND, metavar="TEXT", help="what is spoken (default: %(default)s)")
    parser.add_argument("-o", dest="out", type=Path, default=OUT, metavar="OUT.wav", help="where the reply goes")
    parser.add_argument("--realtime", action="store_true", help="at the speed of speech, on the wall clock")
    add_home_options(parser, "an example")


def run(arguments: argparse.Namespace) -> int:
    """Synthesise, hear, show; 1 if it was not answered."""
    from appliance.audio.files import write_wav
    from appliance.recording import hear, samples_frames
    from appliance.telemetry.trace import waterfall

    # What is said by default is for the example home.
    settings = replace(settings_from(arguments), home_file=arguments.home, area=arguments.area)
    with open_wren(settings) as wren:
        print(f"Speaking into the loop: “{arguments.say}” (synthesised)")
        frames = samples_frames(_spoken(wren, arguments.say))
        heard = hear(wren, "demo", frames, realtime=arguments.realtime, sink=_show)
    if heard.error is not None:
        print(f"  fault   {heard.error}")
    chosen = heard.chosen
    if chosen is None or not heard.reply:
        print("It was not answered; `wren doctor` may know why.")
        return 1
    print()
    for line in waterfall(chosen):
        print("  " + line)
    seconds = write_wav(arguments.out, heard.reply, heard.reply_rate_hz)
    print(f"\nReply written to {arguments.out} ({seconds:.1f} s).")
    return 0


def _spoken(wren: Wren, text: str) -> Samples:
    """The text as sound in a quiet room, shape [n] float32 at 16 kHz."""
    import numpy as np

    from appliance.audio.floor import noise_blocks
    from appliance.audio.frame import RATE_HZ
    from appliance.audio.resample import MonoResampler

    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz)
    voice = np.concatenate((resampler.push(synthesiser.whole(text)), resampler.flush()))
    sound = np.concatenate((np.zeros(int(LEAD_S * RATE_HZ), dtype=np.float32), voice))
    room = np.concatenate(list(noise_blocks(ROOM_DBFS, sound.size / RATE_HZ + 0.02, seed=1)))[: sound.size]
    noisy: Samples = sound + room
    return noisy


def _show(event: Event) -> None:
    from appliance import events

    line = None
    match event:
        case events.WakeHeard():
            line = f"wake     {event.name} ({event.score:.2f})"
        case events.PartialText():
            line = f"partial  {event.text}"
        case events.EndpointReached():
            line = f"endpoint {event.reason}"
        case events.TextRecognised():
            line = f"text     {event.text}"
        case events.UtteranceUnderstood():
            understanding = event.understanding
            slots = ", ".join(f"{name}={value}" for name, value in understanding.slots.items())
            line = f"intent   {understanding.intent or 'not understood'}" + (f" ({slots})" if slots else "")
        case events.ReplyReady():
            line = f"reply    {event.text}"
        case events.FirstAudio():
            line = "first audio of the reply"
    if line is not None:
        print(f"  {event.time_s * 1000:6.0f} ms  {line}", flush=True)
