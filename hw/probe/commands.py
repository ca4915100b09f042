"""Running the few programs a probe asks, for real or replayed from a recording; never raises, never waits for long."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hw.errors import UnreadableError
from hw.probe.root import Root

__all__ = ["CommandResult", "RealRunner", "ReplayRunner", "Runner"]

TIMEOUT_S: Final = 10.0
"""`nvidia-smi` takes seconds on a driver that is not kept awake; longer means that it hangs."""
OUTPUT_LIMIT: Final = 1 << 18
NOT_FOUND: Final = 127
"""The shell's exit code for a program that is not there."""
_GRACE_S: Final = 1.0
_CHUNK: Final = 1 << 16
_PLACES: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib"
"""Where the programs are: a service's own PATH may leave out `sbin`; under WSL nvidia-smi has a place of its own."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a program said."""

    rc: int | None
    """Exit code; `NOT_FOUND` where there is no such program, None where it gave none (killed for its time)."""
    stdout: str = ""
    stderr: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.rc == 0

    @property
    def missing(self) -> bool:
        """Whether there is no such program."""
        return self.rc == NOT_FOUND


class Runner(Protocol):
    """Runs a program by name and arguments."""

    def run(self, *argv: str, timeout_s: float = TIMEOUT_S, lines: int | None = None) -> CommandResult:
        """Its exit code and output; never raises. With `lines`, it is ended once it has printed so many."""
        ...


class RealRunner:
    """Runs programs of this machine, without input, in the C locale, bounded in time and output."""

    def run(self, *argv: str, timeout_s: float = TIMEOUT_S, lines: int | None = None) -> CommandResult:
        """See `Runner.run`."""
        environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{_PLACES}"}
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # so that what it starts can be ended with it
            )
        except FileNotFoundError:
            return CommandResult(NOT_FOUND)
        except (OSError, ValueError) as error:
            return CommandResult(None, stderr=str(error))
        return _Watched(process, timeout_s, lines).result()


class _Watched:
    """One running program, read until it ends, has said enough, or has had its time."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float, lines: int | None) -> None:
        self._process = process
        self._ends_s = time.monotonic() + timeout_s
        self._lines = lines
        self._output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    def result(self) -> CommandResult:
        enough = self._read()
        rc = self._end(enough)
        stdout, stderr = (bytes(part).decode("utf-8", "backslashreplace") for part in self._output.values())
        # Ended because it had said what was asked for: that is no failure.
        return CommandResult(0 if enough and self._lines is not None else rc, stdout, stderr)

    def _read(self) -> bool:
        """Collect output. True if it was stopped because there was enough of it."""
        with selectors.DefaultSelector() as selector:
            for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                left_s = self._ends_s - time.monotonic()
                if left_s <= 0:
                    return False
                for key, _ in selector.select(left_s):
                    try:
                        piece = os.read(key.fd, _CHUNK)
                    except BlockingIOError:  # select may call a pipe ready that is not
                        continue
                    kept = self._output[key.data]
                    kept += piece[: OUTPUT_LIMIT - len(kept)]
                    if not piece:
                        selector.unregister(key.fileobj)
                    if self._enough(key.data, kept):
                        return True
        return False

    def _enough(self, name: str, kept: bytearray) -> bool:
        if len(kept) >= OUTPUT_LIMIT:
            return True
        return name == "stdout" and self._lines is not None and kept.count(b"\n") >= self._lines

    def _end(self, enough: bool) -> int | None:
        process = self._process
        try:
            left_s = 0.0 if enough else max(0.0, self._ends_s - time.monotonic())
            return process.wait(left_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            # One stuck in the kernel (a driver that does not answer) does not even die: it is left behind.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
            return None
        finally:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


class ReplayRunner:
    """Answers from a root's recording: `commands/index.json`, `[{argv, rc, stdout?, stderr?}]` naming files there."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known = _index(root)

    def run(self, *argv: str, timeout_s: float = TIMEOUT_S, lines: int | None = None) -> CommandResult:
        """See `Runner.run`; a command that was not recorded is missing."""
        row = self._known.get(argv)
        if row is None:
            return CommandResult(NOT_FOUND)
        rc = row.get("rc")
        return CommandResult(
            rc if isinstance(rc, int) and not isinstance(rc, bool) else None,
            self._text(row.get("stdout")),
            self._text(row.get("stderr")),
        )

    def _text(self, name: object) -> str:
        if not isinstance(name, str) or "/" in name or name in ("", ".."):
            return ""
        try:
            return self._root.text(f"commands/{name}", OUTPUT_LIMIT)
        except UnreadableError:
            return ""


def _index(root: Root) -> dict[tuple[str, ...], Mapping[str, Any]]:
    try:
        rows = json.loads(root.read("commands/index.json"))
    except (UnreadableError, ValueError, RecursionError):
        return {}
    known: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        argv = row.get("argv") if isinstance(row, dict) else None
        if isinstance(argv, list) and all(isinstance(part, str) for part in argv):
            known.setdefault(tuple(argv), row)
    return known
