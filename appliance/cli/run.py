"""`wren run`: start the appliance."""

from __future__ import annotations

import argparse
import logging
import sys

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    subparsers.add_parser("run", help="start the appliance: microphone, speaker and page")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    import asyncio

    from appliance.running import run as run_appliance
    from appliance.settings import ensure_web_token, load_settings
    from models import TerminalProgress

    loaded = ensure_web_token(load_settings())
    settings = loaded.settings
    if not arguments.debug:
        logging.getLogger().setLevel(settings.log_level.upper())
    progress = TerminalProgress()
    asyncio.run(run_appliance(settings, progress, lambda line: print(line, file=sys.stderr, flush=True)))
    return 0
