"""What a stream holds on the device, in one place that outlives the stream until it is given back."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.engines.tensorrt.buffers import Slot, StateSides
from models.engines.tensorrt.context import Context
from models.engines.tensorrt.device import HostBlock
from models.engines.tensorrt.graphs import Graphs
from models.engines.tensorrt.pool import Block
from models.errors import DeviceError

if TYPE_CHECKING:
    from models.engines.tensorrt.engine import TensorRtEngine

__all__ = ["StreamResources", "Ticket"]


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A run that was started: what is needed to end it."""

    slot: Slot
    outputs: Mapping[str, tuple[int, ...]]
    """Shapes on the device."""
    staged_in: tuple[Block[HostBlock], ...]
    staged_out: Mapping[str, Block[HostBlock]]
    cut: int | None
    """Length of the padded dimension before it was padded."""
    side: int
    """Of the state that it read, and the shapes of that."""
    shapes: dict[str, tuple[int, ...]]


class StreamResources:
    """Knows no stream, so that it can be given back when one has been let go."""

    def __init__(self, engine: TensorRtEngine) -> None:
        self._engine = engine
        self.in_flight: deque[Ticket] = deque()  # two at most, see `TensorRtStream.start`
        self.slots: list[Slot] = []
        self.graphs = Graphs(engine.device, engine.options.graphs)
        self.states = StateSides(engine.pool, engine.states, {n: t.dtype for n, t in engine.tensors.items()})
        self.context: Context = engine.context()
        self.last: tuple[int, dict[str, tuple[int, ...]]] | None = None
        """Side and shapes of the state before the last run, while they are still there."""
        self.closed = False
        device = engine.device
        with contextlib.ExitStack() as undo:
            self.copy_in = device.create_stream()
            undo.callback(device.destroy_stream, self.copy_in)
            self.copy_out = device.create_stream()
            undo.pop_all()

    def wait(self) -> None:
        """Until the device has finished with everything here. Raises `DeviceError`."""
        for stream in (self.copy_in, self._engine.compute, self.copy_out):
            self._engine.device.synchronize(stream)

    def settle(self) -> None:
        """`wait` on the way out of an error, which is told already."""
        with contextlib.suppress(DeviceError):
            self.wait()

    def end(self, ticket: Ticket) -> None:
        """The pinned memory of a run that is over goes back."""
        self._engine.pool.release(*ticket.staged_in, *ticket.staged_out.values())

    def withdraw(self, lost: Ticket) -> None:
        """A run was lost on the device: those behind it go too, and the state is what the lost one read."""
        self.settle()
        while self.in_flight:
            self.end(self.in_flight.popleft())
        self.states.side, self.states.shapes = lost.side, lost.shapes
        self.last = None
        for slot in self.slots:
            slot.forget()

    def close(self) -> None:
        """Give everything back, once; all of it, also where some of it fails. Raises `DeviceError`."""
        if self.closed:
            return
        self.closed = True
        device = self._engine.device
        with contextlib.ExitStack() as last:
            last.callback(device.destroy_stream, self.copy_in)
            last.callback(device.destroy_stream, self.copy_out)
            last.callback(self.states.close)
            for slot in self.slots:
                last.callback(slot.close)
            last.callback(self.graphs.clear)
            for ticket in self.in_flight:
                last.callback(self.end, ticket)
            self.wait()
        self.in_flight.clear()
        self.slots.clear()
        del self.context
