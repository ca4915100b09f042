"""`wren say`: speak a text into a WAV file."""

from __future__ import annotations

import argparse
from pathlib import Path

from appliance.cli.common import open_wren
from appliance.errors import UsageError

__all__ = ["add", "run"]

DEFAULT_OUT = Path("wren-say.wav")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("say", help="speak a text into a WAV file")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument(
        "-o", dest="out", type=Path, default=DEFAULT_OUT, metavar="OUT.wav", help="default: %(default)s"
    )


def run(arguments: argparse.Namespace) -> int:
    """Synthesise and write, chunk by chunk."""
    from appliance.app import WrenSettings
    from appliance.audio.files import write_wav
    from appliance.overrides import engine_overrides
    from appliance.settings import load_settings
    from appliance.voice.asr.protocol import Cancel

    if not arguments.text.strip():
        raise UsageError("say: give a text to speak")
    settings = WrenSettings(engines=engine_overrides(load_settings().settings.engines))
    with open_wren(settings, voice_only=True) as wren:
        synthesiser = wren.synthesiser()
        seconds = write_wav(arguments.out, synthesiser.stream(arguments.text, Cancel()), synthesiser.rate_hz)
    print(f"{arguments.out}: {seconds:.2f} s")
    return 0
