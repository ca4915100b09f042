"""What several commands share: options, and opening Wren with progress shown."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.app import Wren, WrenSettings
    from appliance.settings import Settings
    from models import Store

__all__ = ["add_home_options", "model_store", "open_wren", "print_json", "settings_from", "warn"]


def add_home_options(parser: argparse.ArgumentParser, own: str | None = None) -> None:
    """`--home` and `--area`; `own` is the home that is meant without them, where it is not that of the settings."""
    home, area = ("yours, as the settings say; else an example", "the settings', else ") if own is None else (own, "")
    parser.add_argument(
        "--home", type=Path, metavar="HOME.json", help=f"the home's areas and entities (default: {home})"
    )
    parser.add_argument(
        "--area", metavar="NAME", help=f"area of the microphone (default: {area}the home file's satellite_area)"
    )


def settings_from(arguments: argparse.Namespace, loaded: Settings | None = None) -> WrenSettings:
    """Settings as the options say; `loaded` are those of the settings file, which is read where none are given."""
    from appliance.app import WrenSettings
    from appliance.overrides import engine_overrides
    from appliance.settings import load_settings
    from appliance.voice.wake import WakeSettings, wake_words

    words = getattr(arguments, "wake", None)
    wake = WakeSettings(words=wake_words(words)) if words else WakeSettings()
    settings = load_settings().settings if loaded is None else loaded
    # Rooms of the settings are those of the settings' home.
    home, area = (settings.home_file, settings.area) if arguments.home is None else (arguments.home, None)
    return WrenSettings(
        home_file=home,
        area=arguments.area or area,
        wake=wake,
        engines=engine_overrides(settings.engines),
        recogniser=settings.models.recogniser,
        denoise=settings.audio.denoise != "off",
    )


def model_store() -> Store:
    """The model store as the settings file says. Raises `SettingsError`."""
    from appliance.overrides import open_store
    from appliance.settings import load_settings

    return open_store(load_settings().settings.models)


def open_wren(settings: WrenSettings, *, voice_only: bool = False) -> Wren:
    """Open everything, the home's phrases too; what has to be fetched or converted first is shown on stderr."""
    from appliance.app import Wren
    from models import TerminalProgress

    progress = TerminalProgress()
    try:
        wren = Wren.open(settings, progress, store=model_store(), voice_only=voice_only)
    finally:
        progress.finish()
    wren.wait_for_bias()
    return wren


def print_json(data: object) -> None:
    """One object on one line, at once: a reader may be waiting for it."""
    print(json.dumps(data, ensure_ascii=False), flush=True)


def warn(message: str) -> None:
    """A line on stderr that is no error."""
    print(f"wren: {message}", file=sys.stderr)
