"""Files that are whole or absent: hashing, writing into a temporary folder, making it last, moving it into place."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from models.errors import ModelsError, StoreFullError

__all__ = [
    "HEADROOM",
    "clear_leftovers",
    "disk_errors_named",
    "is_whole",
    "publish",
    "remove_tree",
    "require_room",
    "scratch",
    "sha256_of",
    "version_of",
    "write_whole",
]

HEADROOM = 16 << 20
"""Bytes left free beyond what is asked for: a disk filled to the last block breaks everything else."""


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(path: Path, size: int, sha256: str | None) -> bool:
    """True if the file is there with that size and (unless None) checksum; the cheap question is asked first."""
    try:
        return path.stat().st_size == size and (sha256 is None or sha256_of(path) == sha256)
    except OSError:
        return False


def require_room(folder: Path, needed: int, what: str) -> None:
    """Raise `StoreFullError` unless `folder`'s file system has `needed` bytes (and some headroom) free."""
    if _free(folder) < needed + HEADROOM:
        raise _full(folder, needed + HEADROOM, what)


@contextlib.contextmanager
def disk_errors_named(folder: Path, needed: int, what: str) -> Iterator[None]:
    """Turn the operating system's errors inside into ours: `StoreFullError` where a disk or a quota is full."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(folder, needed, what) from error
        raise ModelsError(
            f"{what}: {error.filename or folder} cannot be used ({error.strerror or error}); "
            "set WREN_MODELS_DIR to a folder that can be written"
        ) from error


def _free(folder: Path) -> int:
    there = next(p for p in (folder, *folder.parents) if p.is_dir())
    return shutil.disk_usage(there).free


def _full(folder: Path, needed: int, what: str) -> StoreFullError:
    return StoreFullError(
        f"no room for {what} in {folder}: {needed} bytes needed, {_free(folder)} free; "
        "make room or set WREN_MODELS_DIR to a folder on a larger disk"
    )


@contextlib.contextmanager
def scratch(parent: Path, name: str) -> Iterator[Path]:
    """A temporary folder `parent/name.*` that is gone afterwards, whatever happens."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=parent))
    try:
        yield folder
    finally:
        remove_tree(folder)


def clear_leftovers(parent: Path, name: str) -> None:
    """Remove what `scratch(parent, name)` left behind in a run that was killed. Call it under the name's lock."""
    for folder in parent.glob(f"{name}.*"):
        remove_tree(folder)


def publish(folder: Path, target: Path) -> None:
    """Make a finished folder last and move it into place in one step; whatever is at `target` is replaced.

    `folder` and `target` are on one file system. After a power cut, `target` is whole or absent.
    """
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        # A rename cannot replace a folder that is not empty: move the old one aside first.
        os.rename(target, folder.with_name(folder.name + ".old"))  # noqa: PTH104 (Path.rename is the same call)
    os.rename(folder, target)  # noqa: PTH104
    _sync(target.parent)


@functools.cache
def version_of(distribution: str) -> str:
    """Version of an installed distribution, or `absent`: names of what it makes hang on it."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in place in one step; its folder is made. After a power cut, `path` holds the old or the new bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    _sync(path.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder that may be half there already; what cannot be removed is left for the next clean-up."""
    shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
