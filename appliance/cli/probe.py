"""`wren probe`: what machine this is, or what machine a folder of its files describes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.cli.common import print_json, warn
from appliance.errors import UsageError

if TYPE_CHECKING:
    from hw.probe import Machine

__all__ = ["add", "machine_from", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("probe", help="say what machine this is and what it can do")
    add_root_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--verbose", action="store_true", help="where each fact came from, and every sensor")


def add_root_option(parser: argparse.ArgumentParser) -> None:
    """`--root`, which `machine_from` reads."""
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="a machine's files (proc, sys, etc, var) and commands/index.json, in place of this machine",
    )


def machine_from(arguments: argparse.Namespace) -> Machine:
    """This machine, or that of `--root`. Raises `UsageError` where that is no folder."""
    from hw.probe import Root, probe, probe_root

    if arguments.root is None:
        return probe()
    if not arguments.root.is_dir():
        raise UsageError(f"--root {arguments.root}: no such folder")
    return probe_root(Root(arguments.root))


def run(arguments: argparse.Namespace) -> int:
    """Print the facts. Unknown ones are no failure."""
    machine = machine_from(arguments)
    facts = machine.to_dict()
    if arguments.verbose:
        facts["sensors"] = _sensors(arguments, machine)
    if arguments.json:
        print_json(facts)
        return 0
    sources, warnings = facts.pop("sources"), facts.pop("warnings")
    sensors = facts.pop("sensors", [])
    for name, value in facts.items():
        if value is not None or arguments.verbose:
            line = f"{name:<20} {_text(value)}"
            print(f"{line:<64}  [{sources[name]}]" if arguments.verbose else line)
    for reading in sensors:
        print(f"{reading['name']:<28} {reading['value']:>10g} {reading['unit']:<4} [{reading['source']}]")
    for text in warnings:
        warn(text)
    return 0


def _sensors(arguments: argparse.Namespace, machine: Machine) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from hw.power import read_sensors
    from hw.probe import RealRunner, ReplayRunner, Root

    root = Root() if arguments.root is None else Root(arguments.root)
    runner = RealRunner() if arguments.root is None else ReplayRunner(root)
    return [asdict(reading) for reading in read_sensors(root, runner, machine)]


def _text(value: Any) -> str:
    """A fact for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_text(part) for part in value) or "none"
    return str(value)
