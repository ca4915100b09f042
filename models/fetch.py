"""Fetching a wheel as data, with pip in a process of its own: the user's pip configuration decides where from."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from models.catalogue import RegistryPackage
from models.errors import FetchError, StoreFullError
from models.progress import Progress

__all__ = ["Fetcher", "PipFetcher"]

STALL_S = 300.0
"""pip tries a dead server five times at its own time-out; a silence longer than this is a hang."""
TOTAL_S = 3600.0
"""Longest download: 60 MB over a very slow line."""
_POLL_S = 0.2
_KILL_GRACE_S = 5.0
_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")
_TAIL_LINES = 40


class Fetcher(Protocol):
    """Brings a source's wheel into a folder."""

    def fetch(self, source: RegistryPackage, folder: Path, progress: Progress) -> Path:
        """Path of the wheel inside `folder`. Raises `FetchError` or `StoreFullError`."""
        ...


class PipFetcher:
    """`pip download` of one pinned, hash-checked wheel, without its dependencies."""

    def __init__(self, stall_s: float = STALL_S, total_s: float = TOTAL_S) -> None:
        self._stall_s = stall_s
        self._total_s = total_s

    def fetch(self, source: RegistryPackage, folder: Path, progress: Progress) -> Path:
        """See `Fetcher`. Nothing outside `folder` is written, apart from pip's own cache."""
        stage = f"download {source.distribution} {source.version}"
        progress(stage, 0, source.size)
        wanted = folder / "requirement.txt"
        wanted.write_text(f"{source.distribution}=={source.version} --hash=sha256:{source.sha256}\n")
        tail: list[str] = []
        with _running(self.command(source, wanted, folder), folder) as process:
            for line in self._lines(process, source):
                if match := _PROGRESS.match(line):
                    # pip's total is the server's word for it; ours is known.
                    progress(stage, min(int(match[1]), source.size), source.size)
                elif line:
                    tail = [*tail[-_TAIL_LINES:], line]
            code = process.wait()
        wheel = folder / source.wheel
        if code != 0:
            raise _explain(source, folder, tail)
        if not wheel.is_file():
            there = ", ".join(p.name for p in folder.glob("*.whl")) or "nothing"
            raise FetchError(f"{source.distribution} {source.version}: asked for {source.wheel}, got {there}")
        progress(stage, source.size, source.size)
        return wheel

    @staticmethod
    def command(source: RegistryPackage, requirement: Path, folder: Path) -> list[str]:
        """The command line; names no registry, so that the user's configuration holds."""
        command = [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"),
            *("--no-input", "--disable-pip-version-check", "--progress-bar", "raw"),
            *("--dest", str(folder), "--requirement", str(requirement)),
        ]
        if source.platform is not None:
            # Given a platform, pip no longer asks whether the wheel would run here: it is data.
            command += ["--platform", source.platform, "--implementation", "py", "--abi", "none"]
        return command

    def _lines(self, process: subprocess.Popen[str], source: RegistryPackage) -> Iterator[str]:
        """pip's output lines as they come. Raises `FetchError` when none comes for too long."""
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(process, lines), name="pip-output", daemon=True).start()
        started = heard = time.monotonic()
        while True:
            try:
                line = lines.get(timeout=_POLL_S)
            except queue.Empty:
                now = time.monotonic()
                for waited, limit in ((now - heard, self._stall_s), (now - started, self._total_s)):
                    if waited > limit:
                        raise FetchError(
                            f"download of {source.distribution} {source.version} stopped: nothing moved for "
                            f"{waited:.0f} s; check the network and try again"
                        ) from None
                continue
            if line is None:
                return
            heard = time.monotonic()
            if heard - started > self._total_s:
                raise FetchError(
                    f"download of {source.distribution} {source.version} took longer than {self._total_s:.0f} s"
                )
            yield line


@contextlib.contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A child that does not outlive the block. Its temporary files go into `folder`, which is cleaned up."""
    environ = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1", "PIP_NO_COLOR": "1"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environ,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_KILL_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    if process.stdout is None:
        raise AssertionError("pip was started without a pipe")
    try:
        for line in process.stdout:
            lines.put(line.strip())
    except ValueError:
        pass  # the pipe was closed under us: the caller has given up
    finally:
        lines.put(None)


def _explain(source: RegistryPackage, folder: Path, tail: list[str]) -> FetchError | StoreFullError:
    """The one line of pip's output that says why, and what to do about it."""
    text = "\n".join(tail)
    what = f"{source.distribution} {source.version}"
    if "[Errno 28]" in text or "[Errno 122]" in text:
        return StoreFullError(f"no room to download {what} into {folder}: {source.size} bytes needed")
    if "DO NOT MATCH THE HASHES" in text:
        return FetchError(f"{what}: the registry's file does not have the expected sha256 {source.sha256}; not used")
    if "No module named pip" in text:
        return FetchError(f"{what} cannot be downloaded: {sys.executable} has no pip; install pip >= 25.1")
    if "connection broken by" in text:  # pip's word for every failure to connect, before it gives up on the version
        return FetchError(f"{what} cannot be downloaded: the package registry cannot be reached; check the network")
    errors = [line for line in tail if line.startswith("ERROR")] or tail[-1:] or ["no output"]
    return FetchError(
        f"{what} cannot be downloaded: {errors[-1].removeprefix('ERROR: ')}; check the network and try again"
    )
