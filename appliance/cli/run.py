"""`wren run`: start the appliance."""

from __future__ import annotations

import argparse
import logging
import os
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
    again = asyncio.run(run_appliance(loaded, progress, lambda line: print(line, file=sys.stderr, flush=True)))
    if again:
        # In the same process, so that whoever watches it (systemd, a terminal) sees no end.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return 0
