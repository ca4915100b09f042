"""Wren with a quarter of a processor, and stages that stall: it steps down, speaks without a gap, and steps up again.

The processor is taken away by stopping the whole process for three quarters of every 40 ms (SIGSTOP and SIGCONT), which
needs no rights and works everywhere, unlike control groups.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PERIOD_S, SHARE = 0.04, 0.25
READY_S, CALM_S, SQUEEZED_S, RECOVERY_S = 60.0, 6.0, 40.0, 150.0
SPEECH_STEPS = {"whole-replies", "light-voice", "kept-replies"}


class Squeezed:
    """The process and what it told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.squeezed"],
            cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.told: list[dict[str, Any]] = []
        self._squeezing = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._squeeze)]
        for thread in self._threads:
            thread.start()

    def ask(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def squeeze(self, on: bool) -> float:
        (self._squeezing.set if on else self._squeezing.clear)()
        return time.monotonic()

    def wait(self, condition: Callable[[], object], seconds: float) -> bool:
        deadline_s = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline_s and self.process.poll() is None:
            time.sleep(0.05)
        return bool(condition())

    def kind(self, *kinds: str) -> list[dict[str, Any]]:
        return [row for row in list(self.told) if row["kind"] in kinds]

    def close(self) -> None:
        self._over.set()
        self._threads[1].join()
        self.process.kill()
        self.process.wait()
        self._threads[0].join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))

    def _squeeze(self) -> None:
        while not self._over.is_set():
            if not self._squeezing.wait(0.1):
                continue
            os.kill(self.process.pid, signal.SIGSTOP)
            time.sleep(PERIOD_S * (1.0 - SHARE))
            os.kill(self.process.pid, signal.SIGCONT)
            time.sleep(PERIOD_S * SHARE)


@pytest.fixture
def squeezed() -> Iterator[Squeezed]:
    made = Squeezed()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.models
def test_on_a_quarter_of_a_processor_with_stalls_it_steps_down_speaks_whole_and_recovers(squeezed: Squeezed) -> None:
    assert squeezed.wait(lambda: squeezed.kind("ready"), READY_S)
    time.sleep(CALM_S)
    if squeezed.kind("strain") and not os.environ.get("CI"):
        pytest.skip("this machine is too busy with other things: Wren steps down before anything is taken from it")
    squeezed.ask("stall")
    begun_s = squeezed.squeeze(True)
    time.sleep(SQUEEZED_S)
    ended_s = squeezed.squeeze(False)
    squeezed.ask("smooth")

    def recovered() -> bool:
        changes = squeezed.kind("strain")
        return bool(changes) and not changes[-1]["steps"] and changes[-1]["time_s"] > ended_s

    back = squeezed.wait(recovered, RECOVERY_S)
    squeezed.ask("end")
    assert squeezed.wait(lambda: squeezed.kind("over"), 10.0)
    print(*squeezed.told, sep="\n")

    (over,) = squeezed.kind("over")
    assert all(count > 0 for count in over["stalls"].values()), over
    during = [row for row in squeezed.kind("strain") if begun_s <= row["time_s"] <= ended_s]
    lighter = any("light-recogniser" in row["steps"] for row in squeezed.kind("strain"))
    assert over["light"] is lighter, "the lighter recogniser was opened if its step was taken, and only then"
    adapted_s = next(row["time_s"] for row in during if SPEECH_STEPS & set(row["steps"]))
    # A reply that had begun to sound before is not made whole any more.
    gaps = [row for row in squeezed.kind("gap") if row["begun_s"] > adapted_s and row["time_s"] <= ended_s]
    assert gaps == []
    heard = [row for row in squeezed.kind("first-audio") if adapted_s < row["time_s"] <= ended_s]
    assert heard, "it goes on answering"
    assert back, "every step is undone"
