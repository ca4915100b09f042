"""CUDA graphs of a stream: which runs have come before, and what was captured of them. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from models.engines.tensorrt.context import Context, RunShape
from models.engines.tensorrt.device import Device

__all__ = ["Captured", "GraphKey", "Graphs"]

_STALE_RUNS = 400
"""A graph that was not launched for this many runs gives its place up: two of the longest utterances."""
_SEEN_LIMIT = 512
"""Shapes remembered as having run once: a decoder's steps of a long utterance, twice."""


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What is written into a graph: shapes, and by buffer set and state side every address."""

    shape: RunShape
    slot: int
    side: int


@dataclass(frozen=True, slots=True)
class Captured:
    """A run that can be launched again."""

    graph: int
    context: Context
    """The graph's own: TensorRT says that a graph is good for as long as the context it was captured from is left
    alone."""
    outputs: Mapping[str, tuple[int, ...]]


class Graphs:
    """Whoever comes first has the places; one is taken only from what has not run for long.

    Not simply the least recently used: a decoder comes by its steps in turn, and of one more than there are places
    each would be captured at every utterance, and none ever launched.
    """

    def __init__(self, device: Device, limit: int) -> None:
        self._device, self._limit = device, limit
        self._captured: OrderedDict[GraphKey, Captured] = OrderedDict()
        self._used_at: dict[GraphKey, int] = {}
        self._runs = 0
        self._seen: OrderedDict[GraphKey, bool] = OrderedDict()
        """Runs that came before -> whether one may be captured."""

    def __len__(self) -> int:
        return len(self._captured)

    def find(self, key: GraphKey) -> Captured | None:
        """The graph of the run that comes now, if there is one."""
        self._runs += 1
        if (found := self._captured.get(key)) is not None:
            self._captured.move_to_end(key)
            self._used_at[key] = self._runs
        return found

    def is_due(self, key: GraphKey) -> bool:
        """Whether the run that comes now should be captured: the second of its kind, if there is a place for it."""
        if self._limit == 0:
            return False
        if key in self._seen:
            return self._seen[key] and self._has_place()
        self._seen[key] = True
        while len(self._seen) > _SEEN_LIMIT:
            self._seen.popitem(last=False)
        return False

    def never(self, key: GraphKey) -> None:
        """Capturing failed: it is not tried again at every run."""
        self._seen[key] = False

    def add(self, key: GraphKey, captured: Captured) -> None:
        """Keep a graph; the device must have finished with the ones that go."""
        while len(self._captured) >= self._limit:
            self._drop(next(iter(self._captured)))
        self._captured[key] = captured
        self._used_at[key] = self._runs

    def clear(self) -> None:
        """Forget all: addresses have changed, or it is over. The device must have finished with them."""
        for key in list(self._captured):
            self._drop(key)
        self._seen.clear()

    def _has_place(self) -> bool:
        if len(self._captured) < self._limit:
            return True
        oldest = next(iter(self._captured))
        return self._runs - self._used_at[oldest] > _STALE_RUNS

    def _drop(self, key: GraphKey) -> None:
        del self._used_at[key]
        self._device.destroy_graph(self._captured.pop(key).graph)
