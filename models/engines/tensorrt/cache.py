"""Built engines on disk: whole or absent, checked before use, bounded, shared by processes.

engines/<digest>.engine        the plan
engines/<digest>.json          its manifest, written last: without it there is no engine
engines/<digest>.failed.json   why this key cannot be built; not tried again until something in the key changes
engines/timing.<digest>.cache  what the builder has timed on this machine with this version
engines/tmp/, engines/locks/   work on the way
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from models import files
from models.engines.tensorrt.key import EngineKey
from models.errors import EngineError, StoreCapError

__all__ = ["CachedEngine", "EngineCache", "EngineManifest", "EngineRow", "Failure"]

DEFAULT_MAX_BYTES: Final = 2 << 30
LOCK_TIMEOUT_S: Final = 3600.0
"""Another process may be building the same engine."""
_LOCK_POLL_S: Final = 0.2
_FAILED: Final = ".failed.json"
_OURS: Final = re.compile(r"[0-9a-f]{16}(\.engine|\.json|\.failed\.json)|timing\.[0-9a-f]{16}\.cache")
"""Others keep their records in the same folder."""
_R = TypeVar("_R", bound=BaseModel)


Status = Literal["ready", "damaged", "failed", "leftover"]


class EngineManifest(BaseModel):
    """What was built, of what, and how it was found to be."""

    model_config = ConfigDict(frozen=True)

    name: str
    """For people: `moonshine-base-en decoder fp16`."""
    key: EngineKey
    size: int
    sha256: str
    built_at: float
    """Seconds since 1970."""
    build_s: float
    layers: int
    log: str
    checks: dict[str, float | int | str]
    """The self-check's figures."""


class Failure(BaseModel):
    """A build or self-check that failed for good."""

    model_config = ConfigDict(frozen=True)

    name: str
    key: EngineKey
    code: str
    """Of the error."""
    reason: str
    failed_at: float


@dataclass(frozen=True, slots=True)
class CachedEngine:
    """An engine file whose checksum was right when it was read."""

    manifest: EngineManifest
    plan: bytes


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One line of `wren engines list`."""

    digest: str
    name: str
    status: Status
    bytes: int
    used_at: float
    detail: str


class EngineCache:
    """Engines under one folder. Thread-safe and process-safe."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    # ---- reading ----------------------------------------------------------------------------------

    def open(self, key: EngineKey) -> CachedEngine | None:
        """The engine of this key, verified, or None. A damaged one is removed, and so is built again."""
        manifest = self._manifest(key.digest)
        if manifest is None or manifest.key != key:
            return None
        path = self._plan_path(key.digest)
        try:
            plan = path.read_bytes()
        except OSError:
            return None
        if len(plan) != manifest.size or hashlib.sha256(plan).hexdigest() != manifest.sha256:
            self.remove(key.digest)
            return None
        with contextlib.suppress(OSError):
            # A read-only store serves as well; it only does not know what was used last.
            os.utime(path)
        return CachedEngine(manifest, plan)

    def open_like(self, key: EngineKey) -> CachedEngine | None:
        """The engine of this key, else the newest of one that it takes (`EngineKey.takes`), else None."""
        if (found := self.open(key)) is not None:
            return found
        records = [_read(path, EngineManifest) for path in self.folder.glob("*.json") if _OURS.fullmatch(path.name)]
        fitting = [m for m in records if m is not None and m.key != key and key.takes(m.key)]
        for manifest in sorted(fitting, key=lambda m: -m.built_at):
            if (found := self.open(manifest.key)) is not None:
                return found
        return None

    def failure(self, key: EngineKey) -> Failure | None:
        """Why this key was given up, if it was."""
        return _read(self._failure_path(key.digest), Failure)

    def rows(self) -> Sequence[EngineRow]:
        """Everything here, what was used last first. Looks at sizes, not at checksums."""
        if not self.folder.is_dir():
            return ()
        rows = [self._row(path) for path in self.folder.iterdir() if _OURS.fullmatch(path.name)]
        return tuple(sorted((r for r in rows if r is not None), key=lambda row: -row.used_at))

    def verify(self) -> Sequence[EngineRow]:
        """`rows`, with every checksum looked at. Removes nothing."""
        return tuple(self._verified(row) for row in self.rows())

    # ---- writing ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def building(self, key: EngineKey) -> Iterator[Path]:
        """Hold the key's lock, with a folder to work in. What killed builds left behind is cleared first.

        Raises `EngineError` after an hour of waiting for another process, `StoreFullError`, `ModelsError`.
        """
        with files.disk_errors_named(self.folder, 0, "built engines"):
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "locks" / f"{key.digest}.lock", poll_interval=_LOCK_POLL_S)
            try:
                lock.acquire(timeout=LOCK_TIMEOUT_S)
            except Timeout:
                raise EngineError(f"another process has held {lock.lock_file} for an hour; end it") from None
            try:
                files.clear_leftovers(self.folder / "tmp", key.digest)
                with files.scratch(self.folder / "tmp", key.digest) as work:
                    yield work
            finally:
                lock.release()

    def put(self, plan: Path, manifest: EngineManifest) -> None:
        """Move a finished plan into its place. Under `building`. The manifest comes last, both are synced: after a
        power cut there is a whole engine or none.

        Raises `StoreFullError` where the cap has no room for it, however much is evicted.
        """
        digest = manifest.key.digest
        with files.disk_errors_named(self.folder, manifest.size, manifest.name):
            self._make_room(manifest.size, digest, manifest.name)
            self._drop(digest)
            os.replace(plan, self._plan_path(digest))  # noqa: PTH105 (Path.replace is the same call)
            self._write(self._manifest_path(digest), manifest)
            self._failure_path(digest).unlink(missing_ok=True)

    def fail(self, failure: Failure) -> None:
        """Remember that a key cannot be built."""
        with files.disk_errors_named(self.folder, 0, failure.name):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(self._failure_path(failure.key.digest), failure)

    def forget_failure(self, key: EngineKey) -> None:
        """Let it be tried again."""
        self._failure_path(key.digest).unlink(missing_ok=True)

    def remove(self, digest: str) -> None:
        """Remove an engine, its failure, or both; no error where there is none."""
        self._drop(digest)
        self._failure_path(digest).unlink(missing_ok=True)

    def prune(self, keep: set[str] | None = None) -> Sequence[EngineRow]:
        """Remove what is of no use: damaged engines, leftovers of killed builds, and, with `keep`, every engine and
        failure whose digest is not in it. Returns what went."""
        gone = []
        for row in self.verify():
            unwanted = keep is not None and row.digest not in keep and not row.digest.startswith("timing.")
            if row.status in ("damaged", "leftover") or unwanted:
                self.remove(row.digest)
                gone.append(row)
        return (*gone, *self._prune_work())

    def timing_cache(self, key: EngineKey) -> Path:
        """Where timings of this version on this device are kept."""
        parts = (key.flavour, key.tensorrt, key.cuda, key.sm, key.gpu, key.module, key.l4t)
        return self.folder / f"timing.{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.cache"

    # ---- helpers ----------------------------------------------------------------------------------

    def _plan_path(self, digest: str) -> Path:
        return self.folder / f"{digest}.engine"

    def _manifest_path(self, digest: str) -> Path:
        return self.folder / f"{digest}.json"

    def _failure_path(self, digest: str) -> Path:
        return self.folder / f"{digest}{_FAILED}"

    def _manifest(self, digest: str) -> EngineManifest | None:
        return _read(self._manifest_path(digest), EngineManifest)

    def _drop(self, digest: str) -> None:
        # First what makes the other valid.
        self._manifest_path(digest).unlink(missing_ok=True)
        self._plan_path(digest).unlink(missing_ok=True)

    def _write(self, path: Path, record: BaseModel) -> None:
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(record.model_dump_json(indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _make_room(self, needed: int, digest: str, name: str) -> None:
        if needed > self.max_bytes:
            raise StoreCapError(
                f"{name} takes {needed} bytes; built engines in {self.folder} may take {self.max_bytes} together"
            )
        there = [r for r in self.rows() if r.status in ("ready", "damaged") and r.digest != digest]
        used = sum(row.bytes for row in there)
        for row in sorted(there, key=lambda row: row.used_at):
            if used + needed <= self.max_bytes:
                return
            self._drop(row.digest)
            used -= row.bytes

    def _row(self, path: Path) -> EngineRow | None:
        try:
            status = path.stat()
        except OSError:  # gone meanwhile
            return None
        if path.name.endswith(_FAILED):
            failure = _read(path, Failure)
            row: tuple[str, Status, str] = (
                ("?", "damaged", f"{path.name} cannot be read")
                if failure is None
                else (failure.name, "failed", f"{failure.code}: {failure.reason}")
            )
            name, standing, detail = row
            return EngineRow(path.name.removesuffix(_FAILED), name, standing, 0, status.st_mtime, detail)
        if path.suffix == ".cache":
            return EngineRow(path.stem, "builder's timings", "ready", status.st_size, status.st_mtime, "")
        if path.suffix == ".json":
            return self._manifest_row(path)
        if path.with_suffix(".json").exists():
            return None
        return EngineRow(path.stem, "?", "leftover", status.st_size, status.st_mtime, "no manifest: a build was cut")

    def _manifest_row(self, path: Path) -> EngineRow:
        manifest, plan = _read(path, EngineManifest), path.with_suffix(".engine")
        if manifest is None or not files.is_whole(plan, manifest.size, None):
            name = "?" if manifest is None else manifest.name
            return EngineRow(path.stem, name, "damaged", 0, path.stat().st_mtime, f"{plan.name} is not as recorded")
        key = manifest.key
        detail = f"{key.flavour} {key.tensorrt}, SM {key.sm or ' '.join(key.settings.compute_capabilities)}"
        return EngineRow(path.stem, manifest.name, "ready", manifest.size, plan.stat().st_mtime, detail)

    def _verified(self, row: EngineRow) -> EngineRow:
        manifest = self._manifest(row.digest)
        if row.status != "ready" or manifest is None:
            return row
        if files.is_whole(self._plan_path(row.digest), manifest.size, manifest.sha256):
            return row
        return EngineRow(row.digest, row.name, "damaged", row.bytes, row.used_at, "its checksum is wrong")

    def _prune_work(self) -> list[EngineRow]:
        """Folders of builds that nobody holds a lock of."""
        gone, parent = [], self.folder / "tmp"
        for folder in parent.iterdir() if parent.is_dir() else ():
            digest = folder.name.split(".")[0]
            lock = FileLock(self.folder / "locks" / f"{digest}.lock")
            try:
                with lock.acquire(blocking=False):
                    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
                    files.remove_tree(folder)
            except Timeout:
                continue
            gone.append(EngineRow(digest, "?", "leftover", size, time.time(), "a build that was cut"))
        for stray in self.folder.glob("*.json.*.new") if self.folder.is_dir() else ():
            if _OURS.match(stray.name):
                stray.unlink(missing_ok=True)
        return gone


def _read(path: Path, kind: type[_R]) -> _R | None:
    """A record, or None where there is none that can be read."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
