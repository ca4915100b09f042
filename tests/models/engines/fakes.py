"""Engines that fail when they are told to. Fakes: they run a real engine, and break what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from models.engines.base import Array, Engine, State, StateTensor, Stream
from models.engines.ladder import Rung, TimeLimits
from models.errors import EngineError

SUM = StateTensor("total", "next_total", (2,))
"""The state of `FakeSumEngine`."""
QUICK = TimeLimits(open_s=5.0, first_s=0.4, run_s=0.4)
"""Limits for tests: what hangs hangs for good."""

Break = Literal["raise", "hang", "nan"]


class FakeSumEngine:
    """Adds up what it is given: `x` [2] in, `y` = the total out. Its state is the total, in `dtype`."""

    def __init__(self, dtype: str = "float32") -> None:
        self.states = (StateTensor("total", "next_total", (2,), dtype),)
        self.closed = False

    def stream(self) -> FakeSumStream:
        if self.closed:
            raise EngineError("sum: the engine is closed")
        return FakeSumStream(self.states[0])

    def close(self) -> None:
        self.closed = True


class FakeSumStream:
    def __init__(self, state: StateTensor) -> None:
        self._tensor = state
        self._total = self._before = state.initial()

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        if inputs.keys() != {"x"}:
            raise EngineError(f"sum: wants inputs ['x'], got {sorted(inputs)}")
        self._before, self._total = self._total, (self._total + inputs["x"]).astype(self._tensor.dtype)
        return {"y": self._total.astype(np.float32)}

    def rewind(self) -> None:
        self._total = self._before

    def snapshot(self) -> State:
        return {"total": self._total.copy()}

    def restore(self, state: State) -> None:
        if state["total"].dtype != self._tensor.dtype:
            raise EngineError(f"sum: state total is {state['total'].dtype}, wanted {self._tensor.dtype}")
        self._total = self._before = state["total"].copy()

    def reset(self) -> None:
        self._total = self._before = self._tensor.initial()


@dataclass
class FakeFaults:
    """When and how a `FakeFaultyEngine` breaks."""

    at: int = 10**9
    """Number of the run, counted over all streams from 0, that breaks; all later ones do too."""
    how: Break = "raise"
    lose_state: bool = False
    """From then on snapshots fail as well: a device that is lost."""
    error: Exception = field(default_factory=lambda: EngineError("the fake was told to fail"))
    runs: int = 0
    broken: bool = False
    release: threading.Event = field(default_factory=threading.Event)
    """Lets what hangs go on."""


class FakeFaultyEngine:
    """A real engine that breaks at a given run."""

    def __init__(self, inner: Engine, faults: FakeFaults) -> None:
        self._inner = inner
        self.faults = faults
        self.opened = 0
        self.closed = False
        if hasattr(inner, "inputs"):
            self.inputs = inner.inputs
        if hasattr(inner, "states"):
            self.states = inner.states

    def stream(self) -> FakeFaultyStream:
        self.opened += 1
        return FakeFaultyStream(self._inner.stream(), self.faults)

    def close(self) -> None:
        self.closed = True
        self._inner.close()


class FakeFaultyStream:
    def __init__(self, inner: Stream, faults: FakeFaults) -> None:
        self._inner, self._faults = inner, faults

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        faults = self._faults
        faults.broken = faults.runs >= faults.at
        faults.runs += 1
        if not faults.broken:
            return self._inner.run(inputs)
        if faults.how == "raise":
            raise faults.error
        if faults.how == "hang":
            faults.release.wait()
            return self._inner.run(inputs)
        return {n: np.full_like(v, np.nan) if v.dtype.kind == "f" else v for n, v in self._inner.run(inputs).items()}

    def rewind(self) -> None:
        if self._faults.lose_state:
            raise EngineError("the fake device is lost")
        self._inner.rewind()  # type: ignore[attr-defined]

    def snapshot(self) -> State:
        if self._faults.broken and self._faults.lose_state:
            raise EngineError("the fake device is lost")
        return self._inner.snapshot()

    def restore(self, state: State) -> None:
        self._inner.restore(state)

    def reset(self) -> None:
        self._inner.reset()


def rung(name: str, open: Callable[[], Engine], *, key: str | None = None, **more: Any) -> Rung:
    """A rung of fakes, watched, with quick limits."""
    backend, _, precision = name.partition(" ")
    options: dict[str, Any] = {"limits": QUICK, **more}
    return Rung(name=name, backend=backend, precision=precision or "fp32", key=key or name, open=open, **options)
