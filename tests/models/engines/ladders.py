"""A ladder of three rungs over sums, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from models.engines.ladder import LadderEngine, RungChanged
from models.engines.quarantine import Quarantine
from models.engines.watchdog import Watchdog
from tests.models.engines.fakes import SUM, FakeFaults, FakeFaultyEngine, FakeSumEngine, rung


def x(value: float) -> dict[str, np.ndarray[Any, Any]]:
    """What is added: the value and its negative."""
    return {"x": np.array([value, -value], dtype=np.float32)}


class SumLadder:
    """A ladder of three rungs over sums, the upper two breakable, and what it told its listener."""

    def __init__(self, upper: FakeFaults, middle: FakeFaults | None = None, quarantine: Quarantine | None = None):
        self.events: list[RungChanged] = []
        self.quarantine = quarantine or Quarantine(None)
        self.watchdog = Watchdog("test")
        self._made: dict[str, Callable[[], Any]] = {
            "upper": lambda: FakeFaultyEngine(FakeSumEngine("float16"), upper),
            "middle": lambda: FakeFaultyEngine(FakeSumEngine(), middle or FakeFaults()),
            "lower": FakeSumEngine,
        }
        self.upper, self.middle, self.lower = (make() for make in self._made.values())
        self.opened: list[str] = []
        self.engine = LadderEngine(
            "sum",
            [
                rung("upper fp16", self._opener("upper")),
                rung("middle fp32", self._opener("middle")),
                rung("lower fp32", self._opener("lower"), limits=None),
            ],
            [SUM],
            quarantine=self.quarantine,
            watchdog=self.watchdog,
            listener=self.events.append,
        )

    def _opener(self, name: str) -> Callable[[], Any]:
        def open_() -> Any:
            if name in self.opened:
                setattr(self, name, self._made[name]())
            self.opened.append(name)
            return getattr(self, name)

        return open_
