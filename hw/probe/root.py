"""Reading a machine's files under one folder, and never outside it, whatever lies there.

Every path is walked component by component from the folder's own handle, and links are followed by hand: an absolute
target starts again at the folder (as in a chroot), a `..` that climbs above it is refused. Only regular files are
opened, never blocking, and never more of them is read than asked for: FIFOs, devices and endless files do no harm.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hw.errors import UnreadableError

__all__ = ["FILE_LIMIT", "Root", "complete_lines", "printable"]

FILE_LIMIT: Final = 1 << 20
"""Bytes read of a file where nothing else is asked for; what the kernel shows is far smaller."""
LIST_LIMIT: Final = 4096
"""Entries of a folder that are looked at."""
LINKS: Final = 40
"""Links followed on one path before it counts as a loop; the kernel's own number."""
TEXT_LIMIT: Final = 200
"""Longest text taken over as a fact; names of boards and processors are shorter."""

_CHUNK: Final = 1 << 16
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASS: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""To pass through a folder; needs no right to list it."""
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Root:
    """A machine's file system as far as a probe reads it. Methods raise `UnreadableError` and nothing else."""

    path: Path = Path("/")

    def read(self, name: str, limit: int = FILE_LIMIT) -> bytes:
        """At most `limit` bytes of a regular file."""
        with self._walk(name) as (folder, last, info):
            if not stat.S_ISREG(info.st_mode):
                raise UnreadableError(f"{name} is no regular file")
            return _read(folder, last, name, limit)

    def text(self, name: str, limit: int = FILE_LIMIT) -> str:
        """A file as text; bytes that are not UTF-8 come as `\\xff`."""
        return self.read(name, limit).decode("utf-8", "backslashreplace")

    def value(self, name: str) -> str:
        """The one line of a sysfs file. Empty is unreadable: the kernel's way to say nothing."""
        line = self.text(name, _CHUNK).strip()
        if not line:
            raise UnreadableError(f"{name} is empty")
        return line

    def strings(self, name: str) -> tuple[list[str], str]:
        """The strings of a device-tree property, which end in NUL, and what stands behind the last NUL: cut off."""
        *parts, cut = (
            printable(part.decode("utf-8", "backslashreplace")) for part in self.read(name, _CHUNK).split(b"\0")
        )
        whole = [part for part in parts if part]
        if not whole and not cut:
            raise UnreadableError(f"{name} is empty")
        return whole, cut

    def names(self, name: str) -> list[str]:
        """Entries of a folder, sorted; at most `LIST_LIMIT` are looked at."""
        with self._walk(name) as (folder, last, info):
            if not stat.S_ISDIR(info.st_mode):
                raise UnreadableError(f"{name} is no folder")
            try:
                handle = os.open(last, _FOLDER, dir_fd=folder)
            except OSError as error:
                raise _unreadable(name, error) from None
            try:
                with os.scandir(handle) as entries:
                    # A folder that never ends is read as far as the limit.
                    found = [entry.name for entry, _ in zip(entries, range(LIST_LIMIT), strict=False)]
            except OSError as error:
                raise _unreadable(name, error) from None
            finally:
                os.close(handle)
        return sorted(_utf8(entry) for entry in found)

    def exists(self, name: str) -> bool:
        """Whether there is something of that name, of any kind, inside the root."""
        try:
            with self._walk(name):
                return True
        except UnreadableError:
            return False

    def link(self, name: str) -> str:
        """Where a symbolic link points, as text."""
        head, _, tail = name.rpartition("/")
        with self._walk(head or ".") as (folder, last, info):
            if not stat.S_ISDIR(info.st_mode):
                raise UnreadableError(f"{head} is no folder")
            try:
                handle = os.open(last, _FOLDER, dir_fd=folder)
                try:
                    return _utf8(os.readlink(tail, dir_fd=handle))
                finally:
                    os.close(handle)
            except OSError as error:
                raise _unreadable(name, error) from None

    @contextlib.contextmanager
    def _walk(self, name: str) -> Iterator[tuple[int, str, os.stat_result]]:
        """(handle of the folder, name in it, its status) of a path; the last component is no link."""
        handles: list[int] = []
        try:
            try:
                handles.append(os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                found = self._find(name, handles)
            except (OSError, ValueError) as error:
                raise _unreadable(name, error) from None
            yield found
        finally:
            for handle in handles:
                os.close(handle)

    def _find(self, name: str, handles: list[int]) -> tuple[int, str, os.stat_result]:
        """Go down the path, leaving the handles of the folders passed; `handles[0]` is the root's."""
        parts, links = deque(name.split("/")), 0
        here: tuple[int, str, os.stat_result] = (handles[0], ".", os.stat(".", dir_fd=handles[0]))
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if not stat.S_ISDIR(here[2].st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "a part of the path is no folder")
            if here[1] != ".":
                handles.append(os.open(here[1], _PASS, dir_fd=here[0]))
            if part == "..":
                if len(handles) == 1:
                    raise PermissionError(errno.EXDEV, "a link leads out of the root")
                os.close(handles.pop())
                here = (handles[-1], ".", os.stat(".", dir_fd=handles[-1]))
                continue
            info = os.stat(part, dir_fd=handles[-1], follow_symlinks=False)
            here = (handles[-1], part, info)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, "too many links")
                target = os.readlink(part, dir_fd=handles[-1])
                if target.startswith("/"):
                    while len(handles) > 1:
                        os.close(handles.pop())
                here = (handles[-1], ".", os.stat(".", dir_fd=handles[-1]))
                parts.extendleft(reversed(target.split("/")))
        return here


def complete_lines(text: str) -> list[str]:
    """The lines that end in a newline: what comes after the last one was cut off, and half a number is a wrong one."""
    return text.split("\n")[:-1]


def printable(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text for people and JSON: control and other unprintable characters escaped, length bounded."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _read(folder: int, last: str, name: str, limit: int) -> bytes:
    try:
        handle = os.open(last, _FILE, dir_fd=folder)
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        # Asked again of the open file: it may have been exchanged since the walk.
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UnreadableError(f"{name} is no regular file")
        pieces, left = [], limit
        while left > 0 and (piece := os.read(handle, min(left, _CHUNK))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError as error:
        raise _unreadable(name, error) from None
    finally:
        os.close(handle)


def _utf8(name: str) -> str:
    """A file name whose odd bytes (Python keeps them as lone surrogates) can be written as UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _unreadable(name: str, error: Exception) -> UnreadableError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UnreadableError(f"{name} cannot be read ({reason})")
