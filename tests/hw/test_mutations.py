"""The shared boards, damaged in every way that comes to mind: never an exception, never a hang, never an invention."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hw.plan import TaskNeed, make_plan
from hw.probe import Root, probe_root
from tests.hw import roots
from tests.hw.test_boards import NOT_FACTS

pytestmark = pytest.mark.shared

SLOWEST_S = 2.0
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NEEDS = (TaskNeed(task="asr", model="asr", int8_gate=True), TaskNeed(task="tts", model="tts"))
WAYS = ("deleted", "emptied", "folder", "fifo", "loop", "outside", "climbing", "host")


def _survives(root: Path) -> dict[str, Any]:
    started_s = time.monotonic()
    machine = probe_root(Root(root))
    assert time.monotonic() - started_s < SLOWEST_S
    assert not any("has a fault" in text for text in machine.warnings), machine.warnings
    plan = make_plan(machine, NEEDS, {})
    roots.sealed(plan.to_dict())
    facts = machine.to_dict()
    roots.sealed(facts)
    return facts


def _files(board: str) -> list[str]:
    folder = roots.SHARED / "boards" / board
    if not folder.is_dir():
        return []
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if name not in ("expected.json", "SOURCES.md"))


@st.composite
def places(draw: st.DrawFn) -> tuple[str, str]:
    """A board and one of its files."""
    board = draw(st.sampled_from(roots.names("boards")))
    return board, draw(st.sampled_from(_files(board) or ["absent"]))


class _Copies:
    """Copies of boards that are gone after each example."""

    def __init__(self, shared: Path) -> None:
        self._boards = shared / "boards" / "boards"

    def __enter__(self) -> _Copies:
        self.folder = Path(tempfile.mkdtemp())
        self.root = self.folder / "root"
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    def of(self, board: str) -> Path:
        """A copy, at `root`."""
        return roots.copy(self._boards / board, self.root)

    def expected(self, board: str) -> dict[str, Any]:
        """The facts of the whole board."""
        facts = json.loads((self._boards / board / "expected.json").read_text())
        return {key: value for key, value in facts.items() if key not in NOT_FACTS}


def _replace(path: Path, way: str, beside: Path) -> None:
    """Put something else where a file was; links lead to one with other facts `beside` the root, or the host's."""
    good = path.read_bytes()
    path.unlink()
    if way == "emptied":
        path.touch()
    elif way == "folder":
        (path / "deeper").mkdir(parents=True)
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "loop":
        path.symlink_to(path.name)
    elif way in ("outside", "climbing"):
        outside = Path(tempfile.mkdtemp(dir=beside)) / "file"
        # Facts that no board has: if one shows up, the file was read.
        outside.write_bytes(good.replace(b"1", b"9").replace(b"0", b"8"))
        path.symlink_to(outside if way == "outside" else os.path.relpath(outside, path.parent))
    elif way == "host":
        path.symlink_to("/proc/cpuinfo" if path.name == "cpuinfo" else f"/{path.name}")


def _invents_nothing(facts: dict[str, Any], expected: dict[str, Any], but: tuple[str, ...] = ()) -> None:
    """Each fact is the right one, a shorter form of it, or unknown.

    A GPU whose chip is not known goes by the name that nvidia-smi gives it, which is another one.
    """
    for key, value in expected.items():
        found = facts[key]
        if isinstance(found, dict) and isinstance(value, dict):
            _invents_nothing(found, value)
        else:
            shorter = isinstance(found, str) and isinstance(value, str) and value.startswith(found)
            assert found is None or found == value or shorter or key in ("gpu", *but), (key, found, value)


@EXAMPLES
@given(changes=st.lists(st.tuples(places(), st.sampled_from(WAYS)), min_size=1, max_size=2))
def test_files_replaced_by_anything_else(shared: Path, changes: list[tuple[tuple[str, str], str]]) -> None:
    board = changes[0][0][0]
    with _Copies(shared) as copies:
        root = copies.of(board)
        for (_, name), way in changes:
            path = root / name
            if path.is_file() and not path.is_symlink():
                _replace(path, way, copies.folder)
        _invents_nothing(_survives(root), copies.expected(board))


@EXAMPLES
@given(place=places(), data=st.data())
def test_a_file_cut_off_anywhere(shared: Path, place: tuple[str, str], data: st.DataObject) -> None:
    board, name = place
    with _Copies(shared) as copies:
        path = copies.of(board) / name
        size = path.stat().st_size
        at = data.draw(st.integers(0, max(0, size - 1)))
        os.truncate(path, at)
        # A list of processors that is cut between two of them looks like a shorter list.
        but = ("cpu_cores",) if name == "proc/cpuinfo" else ()
        _invents_nothing(_survives(copies.root), copies.expected(board), but)


@EXAMPLES
@given(place=places(), flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=8))
def test_bytes_flipped(shared: Path, place: tuple[str, str], flips: list[tuple[int, int]]) -> None:
    board, name = place
    with _Copies(shared) as copies:
        path = copies.of(board) / name
        content = bytearray(path.read_bytes() or b"\0")
        for at, value in flips:
            content[at % len(content)] = value
        path.write_bytes(content)
        _survives(copies.root)


@EXAMPLES
@given(place=places(), junk=st.binary(max_size=400))
def test_a_file_of_nothing_but_junk(shared: Path, place: tuple[str, str], junk: bytes) -> None:
    board, name = place
    with _Copies(shared) as copies:
        (copies.of(board) / name).write_bytes(junk)
        _survives(copies.root)


@EXAMPLES
@given(place=places(), times=st.integers(2, 400))
def test_a_file_repeated(shared: Path, place: tuple[str, str], times: int) -> None:
    board, name = place
    with _Copies(shared) as copies:
        path = copies.of(board) / name
        path.write_bytes(path.read_bytes() * times)
        _survives(copies.root)


@pytest.mark.parametrize("board", roots.names("boards"))
def test_every_single_file_deleted(shared: Path, board: str) -> None:
    for name in _files(board):
        with _Copies(shared) as copies:
            (copies.of(board) / name).unlink()
            _invents_nothing(_survives(copies.root), copies.expected(board))
