"""Progress of long work: the callback's shape, and a plain printer for a terminal or a log."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

__all__ = ["Progress", "TerminalProgress", "silent"]

_REDRAW_S = 0.1
"""A terminal line is redrawn at most this often."""
_LOG_STEP = 0.1
"""Without a terminal, a line each time this share of a stage is done."""
_MEGABYTE_STAGES_FROM = 100_000
"""Totals from here on are taken for bytes and shown in MB; stages that count things stay far below."""


class Progress(Protocol):
    """Called as long work goes on; must be quick and must not raise."""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """`stage` is a phrase for a person; `done` of `total` (bytes or steps; None where unknown)."""
        ...


def silent(stage: str, done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


class TerminalProgress:
    """Prints to stderr: one line kept up to date on a terminal, else a line every tenth of a stage."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._tty = self._stream.isatty()
        self._stage = ""
        self._logged = 0.0
        self._drawn_at = 0.0
        self._width = 0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """See `Progress`."""
        new_stage, share = stage != self._stage, done / total if total else 0.0
        if new_stage:
            self.finish()
            self._stage, self._logged = stage, 0.0
        complete = total is not None and done >= total
        if self._tty:
            now = time.monotonic()
            if new_stage or complete or now - self._drawn_at >= _REDRAW_S:
                self._drawn_at = now
                self._draw(_line(stage, done, total))
        elif new_stage or share >= self._logged + _LOG_STEP or (complete and self._logged < 1.0):
            self._logged = 1.0 if complete else share
            self._stream.write(_line(stage, done, total) + "\n")
            self._stream.flush()

    def finish(self) -> None:
        """End the line that is being kept up to date, if there is one."""
        if self._tty and self._width:
            self._stream.write("\n")
            self._stream.flush()
        self._width = 0
        self._stage = ""

    def _draw(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)


def _line(stage: str, done: int, total: int | None) -> str:
    if total is None:
        return stage
    if total >= _MEGABYTE_STAGES_FROM:
        return f"{stage}: {done / 1e6:.1f} of {total / 1e6:.1f} MB ({done / total:.0%})"
    return f"{stage}: {done} of {total}"
