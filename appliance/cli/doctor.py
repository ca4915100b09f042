"""`wren doctor`: is this machine fit, and what is wrong if not."""

from __future__ import annotations

import argparse
from typing import Final

from appliance.cli.common import add_home_options, print_json, settings_from

__all__ = ["add", "run"]

_MARKS: Final = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("doctor", help="check this machine and say what is wrong")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_home_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run all checks; 1 if one failed."""
    from appliance.app import Wren
    from appliance.overrides import open_store
    from appliance.telemetry.checks import check_settings, environment, run_checks

    loaded, first = check_settings()
    settings, store = settings_from(arguments, loaded), open_store(loaded.models)
    checks = []
    for check in (*first, *run_checks(store, loaded, lambda: Wren.open(settings, store=store, fetch=False))):
        checks.append(check)
        if not arguments.json:
            print(f"{_MARKS[check.status]}  {check.name:<24} {check.detail}", flush=True)
            if check.fix is not None:
                print(f"{'':<6}{'':<24} -> {check.fix}", flush=True)
    ok = all(check.status != "fail" for check in checks)
    if arguments.json:
        print_json({"ok": ok, **environment(), "checks": [check.record() for check in checks]})
    elif ok:
        print("Wren is fit to run here.")
    return 0 if ok else 1
