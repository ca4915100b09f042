"""Text to phonemes with espeak-ng, which stays a separate program (it is GPL): one process, a line in, lines out.

espeak-ng reads standard input line by line and writes at least one line of IPA for each. How many is its affair,
so a sentinel (digits drawn anew for each process, which no text will hold) follows each clause, and its known
phonemes tell where the answer ends.
"""

from __future__ import annotations

import re
import secrets
import select
import shutil
import subprocess
import threading
import time
import unicodedata
from collections.abc import Iterator
from typing import Final

from appliance.errors import ProgramMissingError, SpeechError

__all__ = ["EspeakPhonemiser", "clauses"]

PROGRAM: Final = "espeak-ng"
ANSWER_TIMEOUT_S: Final = 3.0
MAX_CLAUSE_CHARS: Final = 400
_SENTINEL_DIGITS: Final = 9
_CLAUSE: Final = re.compile(r"(.+?)(?:([.!?])(?=\s|$|[\"')\]])|([,;:])(?=\s|$)|$)", re.DOTALL)
_LANGUAGE_SWITCH: Final = re.compile(r"\([a-z]{2,3}(?:-[a-z0-9]+)*\)")
# [[…]] would be read as phonemes by espeak-ng, < > as markup by some builds; brackets are not spoken anyway.
_NOT_SPOKEN: Final = re.compile(r"[\[\]<>{}|\\_~^*#]+")


def clauses(text: str) -> Iterator[tuple[str, str]]:
    """Cut text into (clause, its closing mark), the mark one of `. , ; : ! ?` or empty; bounded in length."""
    clean = _NOT_SPOKEN.sub(" ", unicodedata.normalize("NFC", text))
    clean = " ".join("".join(c if c.isprintable() else " " for c in clean).split())
    for match in _CLAUSE.finditer(clean):
        clause, mark = match[1].strip(" ,;:.!?"), match[2] or match[3] or ""
        while len(clause) > MAX_CLAUSE_CHARS:
            at = clause.rfind(" ", 0, MAX_CLAUSE_CHARS)
            at = MAX_CLAUSE_CHARS if at <= 0 else at
            yield clause[:at], ","
            clause = clause[at:].strip()
        if clause and any(c.isalnum() for c in clause):
            yield clause, mark


class EspeakPhonemiser:
    """A voice of espeak-ng as a service. Thread-safe; the process is started at first use and after a fault."""

    def __init__(self, voice: str, program: str = PROGRAM) -> None:
        self._voice = voice
        self._program = program
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sentinel = ""
        self._sentinel_ipa = ""
        self._pending = b""
        self.restarts = 0
        """Times the process had to be started again after a fault."""

    def phonemes(self, clause: str) -> str:
        """IPA of one clause (no punctuation inside that ends a sentence). NFD, as Piper's tables want it.

        Raises `ProgramMissingError` where espeak-ng is not installed, `SpeechError` where it fails twice.
        """
        with self._lock:
            for last_try in (False, True):
                try:
                    lines = self._ask(clause)
                    break
                except (OSError, TimeoutError) as error:
                    self._stop()
                    self.restarts += 1
                    if last_try:
                        raise SpeechError(
                            f"{self._program} does not answer ({error}); try `{self._program} hello`"
                        ) from None
        ipa = _LANGUAGE_SWITCH.sub("", " ".join(line for line in lines if line))
        return unicodedata.normalize("NFD", ipa)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._stop()

    def _ask(self, clause: str) -> list[str]:
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(f"{clause}\n{self._sentinel}\n".encode())
        process.stdin.flush()
        return self._until_sentinel(process)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        path = shutil.which(self._program)
        if path is None:
            raise ProgramMissingError(f"{self._program} is not installed; run: sudo apt-get install {PROGRAM}")
        # -b 1: UTF-8 in, whatever the locale says.
        self._process = subprocess.Popen(
            [path, "-q", "-b", "1", "--ipa", "-v", self._voice],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._pending = b""
        self._sentinel = " ".join(str(secrets.randbelow(10)) for _ in range(_SENTINEL_DIGITS))
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._sentinel}\n".encode())
        self._process.stdin.flush()
        self._sentinel_ipa = self._line(self._process, time.monotonic() + ANSWER_TIMEOUT_S)
        return self._process

    def _until_sentinel(self, process: subprocess.Popen[bytes]) -> list[str]:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        lines: list[str] = []
        while True:
            line = self._line(process, deadline)
            if line == self._sentinel_ipa:
                return lines
            lines.append(line)

    def _line(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        assert process.stdout is not None
        while b"\n" not in self._pending:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
            data = process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not data:
                raise BrokenPipeError(f"ended with code {process.wait()}")
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode("utf-8", "replace").strip()

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # a broken pipe on close: the process is gone, which is what we want
        self._process = None
