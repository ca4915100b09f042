"""The `wren` command. Exit codes: 0 fine, 1 ran but failed, 2 wrong use. Errors: one line on stderr."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from typing import Final, NoReturn

from appliance.errors import ApplianceError, UsageError
from models.errors import ModelsError

__all__ = ["build_parser", "main"]

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

COMMANDS: Final = (
    *("run", "demo", "doctor", "devices", "listen", "understand", "say"),
    *("probe", "plan", "models", "engines", "bench", "config", "mqtt"),
)
"""One module of this package each, with `add(subparsers)` and `run(arguments) -> int`; imported when it is used."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(prog="wren", description="A private voice appliance: hears, understands, acts and answers here.")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and debug messages")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name in COMMANDS:
        importlib.import_module(f"appliance.cli.{name}").add(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if arguments.debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        return int(importlib.import_module(f"appliance.cli.{arguments.command}").run(arguments))
    except UsageError as error:
        return _fail(error, EXIT_USAGE, arguments.debug)
    except (ApplianceError, ModelsError) as error:
        return _fail(error, EXIT_FAILED, arguments.debug)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; give Python no chance to complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except Exception as error:
        # A fault of ours: still one line for a person, the whole story with --debug.
        if arguments.debug:
            raise
        return _fail(error, EXIT_FAILED, debug=False)


def _fail(error: Exception, code: int, debug: bool) -> int:
    if debug:
        logging.getLogger(__name__).debug("failed", exc_info=error)
    known = isinstance(error, ApplianceError | ModelsError)
    text = " ".join(str(error).split()) or type(error).__name__
    hint = (
        ""
        if known
        else f" (unexpected {type(error).__name__}; run again with `wren --debug {' '.join(sys.argv[1:2])} …`)"
    )
    print(f"wren: {text}{hint}", file=sys.stderr)
    return code
