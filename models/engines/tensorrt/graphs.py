"""CUDA graphs of a stream: which runs have come before, and what was captured of them. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from models.engines.tensorrt.context import Context, RunShape
from models.engines.tensorrt.device import Device

__all__ = ["Captured", "GraphKey", "Graphs"]

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
    """Least recently used ones go first."""

    def __init__(self, device: Device, limit: int) -> None:
        self._device, self._limit = device, limit
        self._captured: OrderedDict[GraphKey, Captured] = OrderedDict()
        self._seen: OrderedDict[GraphKey, bool] = OrderedDict()
        """Runs that came before -> whether one may be captured."""

    def __len__(self) -> int:
        return len(self._captured)

    def find(self, key: GraphKey) -> Captured | None:
        """The graph of this run, if there is one."""
        if (found := self._captured.get(key)) is not None:
            self._captured.move_to_end(key)
        return found

    def is_due(self, key: GraphKey) -> bool:
        """Whether the run that comes now should be captured: the second of its kind; one that never returns is not."""
        if self._limit == 0:
            return False
        if key in self._seen:
            return self._seen[key]
        self._seen[key] = True
        while len(self._seen) > _SEEN_LIMIT:
            self._seen.popitem(last=False)
        return False

    def never(self, key: GraphKey) -> None:
        """Capturing failed: it is not tried again at every run."""
        self._seen[key] = False

    def add(self, key: GraphKey, captured: Captured) -> None:
        """Keep a graph; the device must have finished with the ones that go."""
        self._captured[key] = captured
        while len(self._captured) > self._limit:
            _, old = self._captured.popitem(last=False)
            self._device.destroy_graph(old.graph)

    def clear(self) -> None:
        """Forget all: addresses have changed, or it is over. The device must have finished with them."""
        while self._captured:
            _, old = self._captured.popitem()
            self._device.destroy_graph(old.graph)
        self._seen.clear()
