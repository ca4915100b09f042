"""Progress for a person: one moving line on a terminal, few lines in a log."""

from __future__ import annotations

import io

from models.progress import TerminalProgress


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_every_tenth_and_the_end() -> None:
    log = io.StringIO()
    progress = TerminalProgress(log)
    for done in range(1001):
        progress("download", done * 1000, 1_000_000)
    lines = log.getvalue().splitlines()
    assert lines[0] == "download: 0.0 of 1.0 MB (0%)"
    assert lines[-1] == "download: 1.0 of 1.0 MB (100%)"
    assert 10 <= len(lines) <= 12


def test_a_log_tells_each_stage_and_repeats_no_end() -> None:
    log = io.StringIO()
    progress = TerminalProgress(log)
    progress("waiting", 0, None)
    for _ in range(3):
        progress("convert: compare", 2, 2)
    assert log.getvalue() == "waiting\nconvert: compare: 2 of 2\n"


def test_a_terminal_keeps_one_line_a_stage_without_remains_of_longer_ones() -> None:
    terminal = FakeTerminal()
    progress = TerminalProgress(terminal)
    progress("download", 999_999, 1_000_000)
    progress("download", 1_000_000, 1_000_000)
    progress("unpack", 1, 1)
    progress.finish()
    lines = terminal.getvalue().split("\n")
    assert [line.split("\r")[-1].rstrip() for line in lines] == [
        "download: 1.0 of 1.0 MB (100%)",
        "unpack: 1 of 1",
        "",
    ]


def test_a_fast_stage_does_not_flood_a_terminal() -> None:
    terminal = FakeTerminal()
    progress = TerminalProgress(terminal)
    for done in range(10_000):
        progress("unpack", done, 1_000_000)
    assert terminal.getvalue().count("\r") < 100
