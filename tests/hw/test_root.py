"""Reading under a root: nothing outside it, nothing that hangs, nothing without an end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hw.errors import UnreadableError
from hw.probe.root import LIST_LIMIT, Root, complete_lines, printable
from tests.hw import roots


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A root with one file, beside a secret."""
    roots.write(tmp_path, {"root/etc/name": "inside\n", "secret": "outside\n"})
    return Root(tmp_path / "root")


def _link(root: Root, name: str, target: str) -> None:
    path = root.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def test_a_file_is_read(root: Root) -> None:
    assert root.value("etc/name") == "inside"
    assert root.value("/etc//./name") == "inside"
    assert root.names("etc") == ["name"]
    assert root.exists("etc/name")
    assert not root.exists("etc/other")


@pytest.mark.parametrize("target", ["../../secret", "../../../../../etc/passwd", "../etc/../../secret", ".."])
def test_a_link_that_climbs_out_is_refused(root: Root, target: str) -> None:
    _link(root, "etc/link", target)
    with pytest.raises(UnreadableError):
        root.read("etc/link")


def test_an_absolute_link_starts_again_at_the_root(root: Root) -> None:
    _link(root, "etc/good", "/etc/name")
    _link(root, "etc/passwd", "/etc/passwd")
    _link(root, "etc/secret", str(root.path.parent / "secret"))
    assert root.value("etc/good") == "inside"
    for name in ("etc/passwd", "etc/secret"):
        with pytest.raises(UnreadableError):
            root.read(name)


def test_a_name_cannot_climb_out_either(root: Root) -> None:
    for name in ("../secret", "etc/../../secret", "..", "etc/../.."):
        with pytest.raises(UnreadableError):
            root.read(name)
        assert not root.exists(name) or name == ".."


def test_links_inside_are_followed_through_folders(root: Root) -> None:
    _link(root, "sys/class/zone0", "../devices/zone0")
    roots.write(root.path, {"sys/devices/zone0/temp": "41000\n"})
    assert root.value("sys/class/zone0/temp") == "41000"
    assert root.link("sys/class/zone0") == "../devices/zone0"


def test_loops_are_unreadable(root: Root) -> None:
    _link(root, "a", "b")
    _link(root, "b", "a")
    _link(root, "self", "self")
    _link(root, "deep", "deep/deep")
    for name in ("a", "self", "deep", "a/x"):
        with pytest.raises(UnreadableError, match="too many links"):
            root.read(name)


def test_a_fifo_a_folder_and_a_device_are_no_files(root: Root) -> None:
    os.mkfifo(root.path / "fifo")
    for name in ("fifo", "etc"):
        with pytest.raises(UnreadableError, match="no regular file"):
            root.read(name)
    with pytest.raises(UnreadableError, match="no regular file"):
        Root().read("dev/zero")
    with pytest.raises(UnreadableError, match="no folder"):
        root.read("etc/name/deeper")


def test_no_more_is_read_than_asked_for(root: Root) -> None:
    with (root.path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(root.read("huge", 5000)) == 5000


def test_a_folder_without_end_is_read_to_a_limit(root: Root) -> None:
    (root.path / "many").mkdir()
    for number in range(LIST_LIMIT + 10):
        (root.path / "many" / str(number)).touch()
    assert len(root.names("many")) == LIST_LIMIT


def test_odd_names_and_bytes_can_be_written(root: Root) -> None:
    (root.path / "odd").mkdir()
    (root.path / "odd" / os.fsdecode(b"\xff\x1b")).write_bytes(b"\xff\xfe\x80")
    assert root.names("odd") == ["\\xff\x1b"]
    for name in root.names("odd"):
        printable(name).encode("utf-8")
    roots.write(root.path, {"bytes": b"a\xffb\n"})
    assert root.value("bytes") == "a\\xffb"


def test_a_root_that_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    missing = Root(tmp_path / "missing")
    for call in (missing.read, missing.names, missing.link, missing.value):
        with pytest.raises(UnreadableError):
            call("etc/name")
    with pytest.raises(UnreadableError):
        missing.read("with\0nul")


def test_strings_end_in_nul(root: Root) -> None:
    roots.write(
        root.path, {"tree/whole": b"one\0two\0", "tree/cut": b"one\0tw", "tree/empty": b"", "tree/nuls": b"\0\0"}
    )
    assert root.strings("tree/whole") == (["one", "two"], "")
    assert root.strings("tree/cut") == (["one"], "tw")
    for name in ("tree/empty", "tree/nuls"):
        with pytest.raises(UnreadableError, match="empty"):
            root.strings(name)


def test_half_a_line_is_no_line() -> None:
    assert complete_lines("MemTotal: 78") == []
    assert complete_lines("a\nb") == ["a"]
    assert complete_lines("a\nb\n") == ["a", "b"]


def test_nothing_that_moves_a_cursor_stays() -> None:
    assert printable("x\x1b[31mred\x9b\u202e\n") == "x\\x1b[31mred\\x9b\\u202e\\n"
    assert len(printable("x" * 10_000)) <= 200
