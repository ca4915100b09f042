"""FAKE device: `models.engines.tensorrt.device.Device` with host memory for a device's. No GPU, no NVIDIA.

Strict about memory: every address is looked up, so what reads or writes outside of a live block is a fault here, not
luck. Streams are lazy on purpose: work is done only when something waits for it, and no more than that needs. Code that
forgets to wait for a copy or a run reads what was there before.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.engines.tensorrt.device import DeviceInfo, HostBlock
from models.errors import DeviceError, DeviceMemoryError

STREAMS: dict[int, FakeStream] = {}
"""Handle -> stream, of all fake devices: a context is told a handle only."""
_HANDLES = itertools.count(0x1000)


@dataclass(eq=False)
class FakeStream:
    """Work in order, not done yet."""

    device: FakeDevice
    work: deque[Callable[[], None]] = field(default_factory=deque)
    capturing: list[Callable[[], None]] | None = None

    def add(self, work: Callable[[], None]) -> None:
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            self.work.append(work)

    def step(self) -> None:
        work = self.work.popleft()
        try:
            work()
        except Exception as error:
            # As on a GPU: one bad kernel, and nothing on this device works any more.
            self.device.broken = error
            raise


@dataclass(eq=False)
class FakeEvent:
    """The place in a stream that was recorded last."""

    stream: FakeStream | None = None
    recorded: int = 0
    reached: int = 0


class FakeDevice:
    """FAKE: `models.engines.tensorrt.device.Device` with host memory for a device's."""

    def __init__(self, total_bytes: int = 1 << 32, sm: str = "8.7") -> None:
        self.total_bytes, self.sm = total_bytes, sm
        self.blocks: dict[int, Any] = {}
        self.pinned: dict[int, HostBlock] = {}
        self.events: dict[int, FakeEvent] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.streams: set[int] = set()
        self.broken: Exception | None = None
        self._doing = threading.RLock()
        """Whoever waits does the work; a stream's work is done by one at a time."""
        self.allocations = 0
        """Made so far, device and pinned: what does not grow in the steady state."""
        self.copied_in = 0
        """Bytes that went in."""
        self.launches = 0
        """Graphs launched."""

    @property
    def allocated(self) -> int:
        return sum(len(memory) for memory in self.blocks.values())

    @property
    def handles(self) -> int:
        """Everything that lives: memory, streams, events, graphs. 0 when nothing leaks."""
        return len(self.blocks) + len(self.pinned) + len(self.events) + len(self.graphs) + len(self.streams)

    def info(self) -> DeviceInfo:
        return DeviceInfo("Fake", self.sm, "12.6", "12.6", self.total_bytes)

    def free_bytes(self) -> int:
        return self.total_bytes - self.allocated

    def allocate(self, nbytes: int) -> int:
        if nbytes > self.free_bytes():
            raise DeviceMemoryError("cudaMalloc: cudaErrorMemoryAllocation (2): out of memory")
        memory = (ctypes.c_uint8 * nbytes)()
        ctypes.memset(memory, 0xFF, nbytes)  # NaN in every float type: what was never written is heard
        self.blocks[ctypes.addressof(memory)] = memory
        self.allocations += 1
        return ctypes.addressof(memory)

    def free(self, address: int) -> None:
        del self.blocks[address]

    def allocate_host(self, nbytes: int) -> HostBlock:
        view = np.full(nbytes, 0xFF, dtype=np.uint8)
        block = HostBlock(view.ctypes.data, view)
        self.pinned[block.address] = block
        self.allocations += 1
        return block

    def free_host(self, block: HostBlock) -> None:
        del self.pinned[block.address]

    def create_stream(self) -> int:
        handle = next(_HANDLES)
        STREAMS[handle] = FakeStream(self)
        self.streams.add(handle)
        return handle

    def destroy_stream(self, stream: int) -> None:
        self.streams.remove(stream)
        del STREAMS[stream]

    def synchronize(self, stream: int) -> None:
        self._alive()
        found = STREAMS[stream]
        if found.capturing is not None:
            raise DeviceError("cudaStreamSynchronize: cudaErrorStreamCaptureUnsupported (900)")
        with self._doing:
            while found.work:
                self._step(found)

    def create_event(self) -> int:
        handle = next(_HANDLES)
        self.events[handle] = FakeEvent()
        return handle

    def destroy_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        found = self.events[event]
        found.stream, found.recorded = STREAMS[stream], found.recorded + 1
        mark = found.recorded

        def reach() -> None:
            found.reached = max(found.reached, mark)

        found.stream.add(reach)

    def wait(self, stream: int, event: int) -> None:
        found, mark = self.events[event], self.events[event].recorded
        STREAMS[stream].add(lambda: self._until(found, mark))

    def synchronize_event(self, event: int) -> None:
        self._alive()
        self._until(self.events[event], self.events[event].recorded)

    def copy_in(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.copied_in += nbytes
        self._copy(target, source, nbytes, stream, to_device=True)

    def copy_out(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._copy(target, source, nbytes, stream, to_device=False)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        def work() -> None:
            self.check(target, nbytes)
            self.check(source, nbytes)
            ctypes.memmove(target, source, nbytes)

        STREAMS[stream].add(work)

    def begin_capture(self, stream: int) -> None:
        assert STREAMS[stream].capturing is None
        STREAMS[stream].capturing = []

    def end_capture(self, stream: int) -> int:
        found = STREAMS[stream]
        assert found.capturing is not None
        handle = next(_HANDLES)
        self.graphs[handle], found.capturing = found.capturing, None
        return handle

    def abandon_capture(self, stream: int) -> None:
        STREAMS[stream].capturing = None

    def launch(self, graph: int, stream: int) -> None:
        self.launches += 1
        for work in self.graphs[graph]:
            STREAMS[stream].add(work)

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]

    # ---- for the fake's own use -------------------------------------------------------------------

    def check(self, address: int, nbytes: int) -> None:
        """That these bytes lie in one live block."""
        for start, memory in self.blocks.items():
            if start <= address and address + nbytes <= start + len(memory):
                return
        raise DeviceError(f"cudaErrorIllegalAddress (700): {nbytes} bytes at {address:#x} are in no block")

    def _copy(self, target: int, source: int, nbytes: int, stream: int, *, to_device: bool) -> None:
        host, there = (source, target) if to_device else (target, source)

        def work() -> None:
            self.check(there, nbytes)
            block = self.pinned.get(host)
            if block is None or block.bytes.size < nbytes:
                raise DeviceError("cudaErrorInvalidValue (1): the host's side is not pinned, or too small")
            ctypes.memmove(target, source, nbytes)

        STREAMS[stream].add(work)

    def _until(self, event: FakeEvent, mark: int) -> None:
        with self._doing:
            while event.reached < mark:
                assert event.stream is not None
                if not event.stream.work:
                    raise DeviceError("an event was waited for that nothing will reach")
                self._step(event.stream)

    def _step(self, stream: FakeStream) -> None:
        try:
            stream.step()
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError(f"cudaErrorLaunchFailure (719): {error}") from error

    def _alive(self) -> None:
        if self.broken is not None:
            raise DeviceError(f"cudaErrorLaunchFailure (719): {self.broken}")
