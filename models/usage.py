"""What of the store is in use, what was used when, and which of the rest goes when the store reaches its cap.

A process that opens a pack holds a shared lock on `locks/<pack id>.use.lock` until it ends; the file's time is that of
the last opening. The operating system lets go of the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from models import files
from models.errors import ModelsError, StoreCapError

__all__ = ["cap_bytes", "keep_under_cap", "mark_used", "release_all", "stored_bytes"]

_REMADE = ("artefacts", "quantised")
"""Folders whose contents can be made again here; they go before packs, which must be fetched again."""
_COUNTED = (*_REMADE, "packs", "partial")
_held: dict[Path, int] = {}
"""Locks of this process: file -> descriptor."""


def cap_bytes(environ: Mapping[str, str] | None = None) -> int | None:
    """`$WREN_MODELS_MAX_BYTES`, or None for no cap. Raises `ModelsError` where it is no number."""
    value = (os.environ if environ is None else environ).get("WREN_MODELS_MAX_BYTES", "").strip()
    if not value:
        return None
    if not value.isdigit() or int(value) == 0:
        raise ModelsError(f"WREN_MODELS_MAX_BYTES is {value!r}; give a number of bytes, or leave it unset for no cap")
    return int(value)


def mark_used(root: Path, pack_id: str) -> None:
    """The pack, or something made of it, is in use by this process from now on."""
    path = _use_lock(root, pack_id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path not in _held:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(handle, fcntl.LOCK_SH)
            _held[path] = handle
        os.utime(path)
    except OSError:
        # A read-only store serves too; nothing can be evicted from it either.
        return


def release_all() -> None:
    """Nothing is in use by this process any more."""
    for handle in _held.values():
        os.close(handle)
    _held.clear()


def stored_bytes(root: Path) -> int:
    """Bytes of everything in the store that counts towards the cap."""
    return sum(_size(root / name) for name in _COUNTED)


def keep_under_cap(root: Path, needed: int, cap: int | None, what: str, spare: Collection[str] = ()) -> list[str]:
    """Evict until `needed` more bytes fit under the cap; returns what went, least recently used first.

    Never what is in use by any process, nor what belongs to a pack of `spare`. Raises `StoreCapError` if that is not
    enough; what cannot fit even into an empty store evicts nothing.
    """
    if cap is None:
        return []
    stored = stored_bytes(root)
    candidates = [c for c in _candidates(root) if c.pack_id not in spare]
    if stored - sum(c.bytes for c in candidates) + needed > cap:
        raise StoreCapError(
            f"no room for {what}: {needed} bytes needed, {stored} of {cap} used, and no more of it may go; "
            "raise WREN_MODELS_MAX_BYTES or remove packs (wren models remove)"
        )
    gone = []
    for candidate in candidates:
        if stored + needed <= cap:
            break
        if _evict(root, candidate):
            stored -= candidate.bytes
            gone.append(f"{candidate.folder.parent.parent.name}/{candidate.pack_id}")
    if stored + needed > cap:
        raise StoreCapError(f"no room for {what}: a pack came into use meanwhile; try again")
    return gone


@dataclass(frozen=True, slots=True)
class _Candidate:
    folder: Path
    pack_id: str
    bytes: int
    order: tuple[bool, float]
    """Packs last; then by last use."""


def _candidates(root: Path) -> list[_Candidate]:
    return sorted(_unused(root), key=lambda c: c.order)


def _unused(root: Path) -> Iterator[_Candidate]:
    for kind in (*_REMADE, "packs"):
        for folder in (root / kind).glob("*/*"):
            pack_id = folder.parent.name
            if folder.is_dir() and not _in_use(root, pack_id):
                yield _Candidate(folder, pack_id, _size(folder), (kind == "packs", _last_used(root, pack_id, folder)))


def _evict(root: Path, candidate: _Candidate) -> bool:
    """Remove it under its exclusive lock; False where somebody has opened it meanwhile."""
    if _in_use(root, candidate.pack_id):
        return False
    files.remove_tree(candidate.folder)
    return not candidate.folder.exists()


def _in_use(root: Path, pack_id: str) -> bool:
    path = _use_lock(root, pack_id)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _last_used(root: Path, pack_id: str, folder: Path) -> float:
    try:
        return _use_lock(root, pack_id).stat().st_mtime
    except OSError:
        return folder.stat().st_mtime


def _use_lock(root: Path, pack_id: str) -> Path:
    return root / "locks" / f"{pack_id}.use.lock"


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            if file.is_file():
                total += file.stat().st_size
        except OSError:
            continue  # gone meanwhile
    return total
