"""Calls with a time limit."""

from __future__ import annotations

import threading

import pytest

from models.engines.watchdog import Watchdog
from models.errors import EngineHungError


def test_watchdog_hands_on_errors_keeps_its_threads_and_gives_up_on_time() -> None:
    watchdog, gate = Watchdog(), threading.Event()

    def fail() -> None:
        raise ValueError("as it is")

    for _ in range(50):
        assert watchdog.call(lambda: 7, 5) == 7
    with pytest.raises(ValueError, match="as it is"):
        watchdog.call(fail, 5)
    assert watchdog.workers == 1
    with pytest.raises(EngineHungError, match=r"within 0\.05 s"):
        watchdog.call(gate.wait, 0.05)
    assert (watchdog.workers, watchdog.abandoned) == (0, 1)
    gate.set()
    assert watchdog.call(lambda: 8, 5) == 8
    for _ in range(200):
        if watchdog.abandoned == 0:
            break
        threading.Event().wait(0.01)
    assert watchdog.abandoned == 0
