"""Engines that failed, remembered from start to start: none is tried again until what it is made of changes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from models import files

__all__ = ["FaultKind", "Quarantine", "QuarantineEntry"]

_log = logging.getLogger(__name__)

FaultKind = Literal["error", "hang", "non-finite", "crash"]
"""It raised; it did not come back in time; it gave infinities or no numbers; the process died in it."""
LOCK_TIMEOUT_S: Final = 5.0
"""Another process writes a few hundred bytes: a lock held for longer is one that was left behind."""
INNOCENT_CRASHES: Final = 1
"""A process may die once while an engine opens and it may be the plug that was pulled; twice is the engine."""


class QuarantineEntry(BaseModel):
    """One engine, one fault."""

    model_config = ConfigDict(frozen=True)

    key: str
    """Digest of all that the engine is made of (graph, backend's version, settings, machine)."""
    task: str
    rung: str
    kind: FaultKind
    reason: str
    time_s: float
    """When it last happened, seconds since 1970."""
    count: int
    """How often."""

    @property
    def in_force(self) -> bool:
        """Whether the engine is kept out."""
        return self.kind != "crash" or self.count > INNOCENT_CRASHES


class _Trial(BaseModel):
    """An engine that is being opened: what is left of a process that died in it."""

    model_config = ConfigDict(frozen=True)

    key: str
    task: str
    rung: str
    pid: int
    boot: str


class _File(BaseModel):
    entries: tuple[QuarantineEntry, ...] = ()
    trials: tuple[_Trial, ...] = ()


class Quarantine:
    """The list, in one small JSON file (None: in memory only). Any thread, any process.

    Where the file cannot be read it counts as empty, where it cannot be written the list is kept in memory; both are
    logged: a full disk must not keep the appliance from answering.
    """

    def __init__(self, path: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._memory = _File()
        with self._changing():
            self._settle_trials()

    def find(self, key: str) -> QuarantineEntry | None:
        """The entry that keeps this engine out, or None."""
        return next((e for e in self.entries() if e.key == key and e.in_force), None)

    def entries(self) -> tuple[QuarantineEntry, ...]:
        """All, in force or not."""
        with self._lock:
            self._memory = self._read()
            return self._memory.entries

    def add(self, key: str, *, task: str, rung: str, kind: FaultKind, reason: str) -> QuarantineEntry:
        """Put an engine in. What is known of the same rung under other keys is dropped: it does not exist any more."""
        with self._changing():
            return self._add(key, task, rung, kind, reason)

    def clear(self, key: str | None = None) -> int:
        """Let one engine (or all) be tried again; how many that were."""
        with self._changing():
            kept = tuple(e for e in self._memory.entries if key is not None and e.key != key)
            cleared = len(self._memory.entries) - len(kept)
            self._memory = self._memory.model_copy(update={"entries": kept})
            return cleared

    def pardon(self, key: str) -> None:
        """The engine has run: deaths of processes that did not keep it out yet are forgotten."""
        with self._changing():
            kept = tuple(e for e in self._memory.entries if e.key != key or e.in_force)
            self._memory = self._memory.model_copy(update={"entries": kept})

    @contextlib.contextmanager
    def trial(self, key: str, *, task: str, rung: str) -> Iterator[None]:
        """Around what may take the process with it (a driver's crash): if it does, the next start counts it."""
        trial = _Trial(key=key, task=task, rung=rung, pid=os.getpid(), boot=_boot())
        with self._changing():
            self._memory = self._memory.model_copy(update={"trials": (*self._memory.trials, trial)})
        try:
            yield
        finally:
            with self._changing():
                left = list(self._memory.trials)
                with contextlib.suppress(ValueError):
                    left.remove(trial)
                self._memory = self._memory.model_copy(update={"trials": tuple(left)})

    # ---- the file ---------------------------------------------------------------------------------

    def _add(self, key: str, task: str, rung: str, kind: FaultKind, reason: str) -> QuarantineEntry:
        before = next((e for e in self._memory.entries if e.key == key), None)
        count = 1 if before is None else before.count + 1
        entry = QuarantineEntry(
            key=key, task=task, rung=rung, kind=kind, reason=reason, time_s=self._clock(), count=count
        )
        others = tuple(e for e in self._memory.entries if (e.task, e.rung) != (task, rung) and e.key != key)
        self._memory = self._memory.model_copy(update={"entries": (*others, entry)})
        return entry

    def _settle_trials(self) -> None:
        """What processes that are gone have left becomes entries."""
        # Two streams may have run it for the first time at once: one death all the same.
        for trial in dict.fromkeys(self._memory.trials):
            if not _alive(trial):
                reason = "the process ended while it was opened or first run"
                self._add(trial.key, trial.task, trial.rung, "crash", reason)
        alive = tuple(t for t in self._memory.trials if _alive(t))
        self._memory = self._memory.model_copy(update={"trials": alive})

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Read, let change, write, with other threads and processes kept out."""
        with self._lock, self._locked():
            self._memory = before = self._read()
            try:
                yield
            finally:
                if self._memory != before:
                    self._write()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._path is None:
            yield
            return
        lock = FileLock(self._path.with_suffix(".lock"), timeout=LOCK_TIMEOUT_S)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, Timeout) as error:
            _log.warning("the list of failed engines is used without its lock: %s", error)
        try:
            yield
        finally:
            lock.release()

    def _read(self) -> _File:
        if self._path is None:
            return self._memory
        try:
            return _File.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return self._memory
        except (OSError, ValidationError) as error:
            _log.warning("%s cannot be read and counts as empty: %s", self._path, error)
            return self._memory

    def _write(self) -> None:
        if self._path is None:
            return
        try:
            files.write_whole(self._path, self._memory.model_dump_json(indent=1).encode() + b"\n")
        except OSError as error:
            _log.warning("%s cannot be written; failed engines are forgotten at the next start: %s", self._path, error)


def _boot() -> str:
    """Names this start of the machine: process numbers mean nothing after the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _alive(trial: _Trial) -> bool:
    if trial.boot != _boot():
        return False
    try:
        os.kill(trial.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
