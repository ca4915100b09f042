"""Running programs: bounded in time and output, whatever they do; and replaying what they said."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from hw.probe.commands import OUTPUT_LIMIT, RealRunner, ReplayRunner
from hw.probe.root import Root
from tests.hw import roots


def test_a_program_answers() -> None:
    result = RealRunner().run(
        sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    )
    assert (result.rc, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.ok


def test_a_missing_program_is_missing() -> None:
    result = RealRunner().run("no-such-program-of-anybody")
    assert result.missing
    assert result.stdout == ""


def test_one_that_hangs_is_ended_with_what_it_started() -> None:
    started_s = time.monotonic()
    result = RealRunner().run("sh", "-c", "echo begun; sleep 60 & sleep 60", timeout_s=0.5)
    assert time.monotonic() - started_s < 5
    assert result.rc is None
    assert result.stdout == "begun\n"


def test_one_that_never_stops_talking_is_cut_off() -> None:
    result = RealRunner().run("yes", timeout_s=20)
    assert len(result.stdout) == OUTPUT_LIMIT


def test_one_that_reports_for_ever_is_ended_after_a_line() -> None:
    started_s = time.monotonic()
    result = RealRunner().run("sh", "-c", "while true; do echo line; sleep 0.05; done", timeout_s=20, lines=1)
    assert time.monotonic() - started_s < 10
    assert result.ok
    assert result.stdout.startswith("line\n")


def test_it_gets_no_input_and_odd_bytes_are_kept_readable() -> None:
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read() + bytes([255, 10]))"
    result = RealRunner().run(sys.executable, "-c", code, timeout_s=20)
    assert (result.rc, result.stdout) == (0, "\\xff\n")


def test_arguments_that_no_system_takes_are_no_crash() -> None:
    assert RealRunner().run("echo", "a\0b").rc is None


def _replay(tmp_path: Path, rows: object) -> ReplayRunner:
    text = rows if isinstance(rows, str) else json.dumps(rows)
    roots.write(tmp_path, {"commands/index.json": text, "commands/out.txt": "said\n", "secret": "outside\n"})
    return ReplayRunner(Root(tmp_path))


def test_a_recording_answers(tmp_path: Path) -> None:
    runner = _replay(tmp_path, [{"argv": ["tool", "-q"], "rc": 0, "stdout": "out.txt"}, {"argv": ["gone"], "rc": 127}])
    assert runner.run("tool", "-q").stdout == "said\n"
    assert runner.run("gone").missing
    assert runner.run("tool").missing


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "", "absent.txt", 7, None])
def test_a_recording_names_only_its_own_files(tmp_path: Path, name: object) -> None:
    result = _replay(tmp_path, [{"argv": ["tool"], "rc": 0, "stdout": name}]).run("tool")
    assert (result.rc, result.stdout) == (0, "")


@pytest.mark.parametrize("rows", ["", "{", "null", "[1, null, {}]", '{"argv": ["tool"]}', "[" * 100_000])
def test_a_recording_that_is_none_answers_nothing(tmp_path: Path, rows: str) -> None:
    assert _replay(tmp_path, rows).run("tool").missing


@pytest.mark.parametrize("rc", ["0", None, True, [], {}])
def test_an_odd_exit_code_is_none(tmp_path: Path, rc: object) -> None:
    assert _replay(tmp_path, [{"argv": ["tool"], "rc": rc}]).run("tool").rc is None
