"""Has an engine built by another process, and watches it: progress, memory, time, cancel."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

from models.engines.tensorrt.build_process import BuildReport, BuildRequest
from models.errors import (
    EngineBuildError,
    EngineCancelledError,
    EngineError,
    EngineRefusedError,
    ProfileError,
    TensorRtMissingError,
)
from models.progress import Progress, silent

__all__ = ["BuildLimits", "Runner", "never", "run_build"]

_ROOT: Final = Path(__file__).resolve().parents[3]
_POLL_S: Final = 0.1
_GRACE_S: Final = 5.0
"""From a cancel to the process's end; then it is killed."""
_TAIL: Final = 12
"""Lines of the process's stderr kept for an error."""
_NICENESS: Final = 10
"""A build must not be heard: the rung below is serving meanwhile."""
_TYPES: Final[Mapping[str, type[EngineError]]] = {
    kind.code: kind
    for kind in (EngineRefusedError, ProfileError, EngineBuildError, EngineCancelledError, TensorRtMissingError)
}


@dataclass(frozen=True, slots=True)
class BuildLimits:
    """When a build is ended."""

    timeout_s: float = 3600.0
    """An optimisation level of 3 takes minutes for our models on the slowest board meant."""
    memory_mib: int = 4096
    """Of the process."""
    leave_mib: int = 400
    """Free memory that must stay for everyone else. On a Jetson the GPU's memory is the same."""


class Runner(Protocol):
    """`run_build`, or something that stands in for it."""

    def __call__(
        self, request: BuildRequest, limits: BuildLimits, progress: Progress, cancelled: Callable[[], bool]
    ) -> BuildReport: ...


def never() -> bool:
    """A build that nobody cancels."""
    return False


def run_build(
    request: BuildRequest,
    limits: BuildLimits = BuildLimits(),
    progress: Progress = silent,
    cancelled: Callable[[], bool] = never,
) -> BuildReport:
    """Build in a process of its own; afterwards the engine lies at `request.output`.

    Raises `EngineRefusedError`, `ProfileError`, `TensorRtMissingError` (asked again, the same), `EngineBuildError`
    (it crashed, or ran into a limit), `EngineCancelledError`.
    """
    command = [sys.executable, "-m", "models.engines.tensorrt.build_process"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in (str(_ROOT), *sys.path) if p)}
    with subprocess.Popen(
        ["nice", "-n", str(_NICENESS), *command] if _has_nice() else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        watched = _Watched(process, request.onnx.name, limits)
        try:
            return watched.serve(request, progress, cancelled)
        finally:
            watched.end()


class _Watched:
    """One running build."""

    def __init__(self, process: subprocess.Popen[str], what: str, limits: BuildLimits) -> None:
        self._process, self._what, self._limits = process, what, limits
        # Emptied ten times a second. With a bound, a full pipe would hold the build up behind its own progress.
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._tail: deque[str] = deque(maxlen=_TAIL)
        self._readers = [
            threading.Thread(target=self._read_answers, name="build answers", daemon=True),
            threading.Thread(target=self._read_errors, name="build errors", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def serve(self, request: BuildRequest, progress: Progress, cancelled: Callable[[], bool]) -> BuildReport:
        self._tell(request.model_dump_json())
        asked_to_stop: float | None = None
        deadline = time.monotonic() + self._limits.timeout_s
        while True:
            for message in self._messages():
                if message["kind"] == "progress":
                    progress(f"build {self._what}: {message['phase']}", message["done"], message["total"] or None)
                elif message["kind"] == "done":
                    return BuildReport.model_validate(message)
                else:
                    kind = _TYPES.get(message["code"], EngineBuildError)
                    raise kind(message["message"])
            if self._process.poll() is not None and self._answers.empty() and not self._readers[0].is_alive():
                raise EngineBuildError(f"the build of {self._what} {self._how_it_ended()}{self._said()}")
            now = time.monotonic()
            if cancelled() and asked_to_stop is None:
                asked_to_stop = now
                self._tell("cancel")
            if asked_to_stop is not None and now - asked_to_stop > _GRACE_S:
                raise EngineCancelledError(f"the build of {self._what} was cancelled")
            if now > deadline:
                raise EngineBuildError(
                    f"the build of {self._what} took longer than {self._limits.timeout_s:.0f} s and was ended"
                )
            self._guard_memory()

    def end(self) -> None:
        """Whatever happened, no process is left."""
        if self._process.poll() is None:
            try:
                self._process.wait(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for reader in self._readers:
            reader.join()

    def _messages(self) -> Iterator[dict[str, Any]]:
        """What has come; waits a little for the first."""
        timeout: float = _POLL_S
        while True:
            try:
                line = self._answers.get(timeout=timeout) if timeout else self._answers.get_nowait()
            except queue.Empty:
                return
            timeout = 0.0
            if line is None:
                return
            try:
                yield json.loads(line)
            except ValueError:
                self._tail.append(line.strip())

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # It has ended; how is told by its exit status.
            return

    def _guard_memory(self) -> None:
        used = _mib(Path(f"/proc/{self._process.pid}/status"), "VmRSS:", "VmSwap:")
        if used is not None and used > self._limits.memory_mib:
            raise EngineBuildError(
                f"the build of {self._what} took {used} MiB, more than the {self._limits.memory_mib} allowed, and was "
                "ended"
            )
        free = _mib(Path("/proc/meminfo"), "MemAvailable:")
        if free is not None and free < self._limits.leave_mib:
            raise EngineBuildError(
                f"the build of {self._what} was ended: {free} MiB are left to everyone else, {self._limits.leave_mib} "
                "must be"
            )

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was killed by signal {-code}" + (" (out of memory, most likely)" if code == -9 else "")
        return f"ended with status {code} and without an answer"

    def _said(self) -> str:
        text = " ".join(" ".join(self._tail).split())
        return f": {text[-500:]}" if text else ""

    def _read_answers(self) -> None:
        for line in _lines(self._process.stdout):
            self._answers.put(line)
        self._answers.put(None)

    def _read_errors(self) -> None:
        for line in _lines(self._process.stderr):
            self._tail.append(line)


def _lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream is not None
    yield from stream


def _mib(path: Path, *fields: str) -> int | None:
    """Sum of fields that Linux gives in KiB; None where it does not tell."""
    try:
        rows = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [int(row.split()[1]) for row in rows if row.startswith(fields)]
    return sum(found) // 1024 if found else None


def _has_nice() -> bool:
    return Path("/usr/bin/nice").exists() or Path("/bin/nice").exists()
