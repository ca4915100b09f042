"""A stream's device memory: inputs and outputs in slots, and the state in two sides that swap."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from models.engines.base import HELD_BYTES, Array, StateTensor
from models.engines.tensorrt.pool import Block, Pool

__all__ = ["Slot", "StateSides"]


@dataclass(slots=True)
class Slot:
    """Device memory of a run's inputs and outputs, and the events that order its copies. It grows when a run needs
    more, to what is usual at least, and then stays: addresses are in graphs."""

    pool: Pool
    copied_in: int
    computed: int
    copied_out: int
    blocks: dict[str, Block[int]] = field(default_factory=dict)
    _resident: dict[str, weakref.ReferenceType[Array]] = field(default_factory=dict)

    @classmethod
    def open(cls, pool: Pool) -> Slot:
        """Raises `DeviceError`."""
        events: list[int] = []
        try:
            for _ in range(3):
                events.append(pool.device.create_event())
        except BaseException:  # also an interrupt: nobody else knows of them
            for event in events:
                pool.device.destroy_event(event)
            raise
        return cls(pool, events[0], events[1], events[2])

    def has(self, name: str, value: Array) -> bool:
        """Whether an input's memory holds this very array's bytes: given again, it is not copied again."""
        held = self._resident.get(name)
        return held is not None and held() is value

    def hold(self, name: str, value: Array) -> None:
        """An array is being copied into an input's memory. It counts as there if nobody may change it: it is large
        (see `Stream.run`), or read-only as our outputs are."""
        if value.nbytes >= HELD_BYTES or (value.flags.owndata and not value.flags.writeable):
            self._resident[name] = weakref.ref(value)
        else:
            self._resident.pop(name, None)

    def forget(self) -> None:
        """Whatever is given next is copied."""
        self._resident.clear()

    def needs(self, sizes: Mapping[str, int]) -> bool:
        """Whether a run of these sizes has to move something."""
        return any(name not in self.blocks or self.blocks[name].nbytes < n for name, n in sizes.items())

    def reserve(self, sizes: Mapping[str, int], usual: Mapping[str, int]) -> None:
        """Have at least these bytes for each tensor; the device must have finished with the slot. `DeviceMemoryError`
        leaves what was there."""
        for name, nbytes in sizes.items():
            old = self.blocks.get(name)
            if old is None or old.nbytes < nbytes:
                self.blocks[name] = self.pool.device_block(nbytes, exact=nbytes == usual[name])
                self._resident.pop(name, None)
                if old is not None:
                    self.pool.release(old)

    def close(self) -> None:
        """Give everything back; the device must have finished with it."""
        self.pool.release(*self.blocks.values())
        self.blocks.clear()
        self.forget()
        for event in (self.copied_in, self.computed, self.copied_out):
            self.pool.device.destroy_event(event)


class StateSides:
    """The recurrent tensors: a run reads one side and writes the other, and then they swap. Never copied, but when a
    wider profile needs more room."""

    def __init__(self, pool: Pool, states: tuple[StateTensor, ...], dtypes: Mapping[str, np.dtype[Any]]) -> None:
        self._pool, self._states, self._dtypes = pool, states, dtypes
        self.side = 0
        """The side that the next run reads."""
        self.shapes: dict[str, tuple[int, ...]] = {s.input: s.shape for s in states}
        """Of what is on that side."""
        self._blocks: tuple[dict[str, Block[int]], dict[str, Block[int]]] = ({}, {})
        self._capacity: dict[str, int] = {}

    def needs(self, capacity: Mapping[str, int]) -> bool:
        """Whether there is less room than this, by input name."""
        return any(self._capacity.get(s.input, -1) < capacity[s.input] for s in self._states)

    def reserve(self, capacity: Mapping[str, int], stream: int) -> None:
        """Have room for these bytes on both sides; what is on the current side is carried over on `stream`.

        Raises `DeviceMemoryError` and leaves everything as it was.
        """
        fresh: tuple[dict[str, Block[int]], dict[str, Block[int]]] = ({}, {})
        wanted = {s.input: max(capacity[s.input], self._capacity.get(s.input, 0)) for s in self._states}
        try:
            for side in fresh:
                for name, nbytes in wanted.items():
                    side[name] = self._pool.device_block(nbytes, exact=True)
        except BaseException:  # also an interrupt: nobody else knows of them
            self._pool.release(*fresh[0].values(), *fresh[1].values())
            raise
        for name, block in self._blocks[self.side].items():
            self._pool.device.copy(fresh[self.side][name].where, block.where, self.nbytes(name), stream)
        self._pool.device.synchronize(stream)
        self.close()
        self._blocks, self._capacity = fresh, wanted

    def nbytes(self, name: str) -> int:
        """Bytes of a tensor on the current side."""
        return prod(self.shapes[name]) * self._dtypes[name].itemsize

    def address(self, name: str) -> int | None:
        """Where a tensor is on the current side; None while there is no room for any."""
        block = self._blocks[self.side].get(name)
        return None if block is None else block.where

    def addresses(self) -> dict[str, int]:
        """Of inputs and outputs, for the next run."""
        read, written = self._blocks[self.side], self._blocks[1 - self.side]
        return {s.input: read[s.input].where for s in self._states} | {
            s.output: written[s.input].where for s in self._states
        }

    def swap(self, outputs: Mapping[str, tuple[int, ...]]) -> None:
        """What a run has written is what the next one reads."""
        self.side = 1 - self.side
        self.shapes = {s.input: outputs[s.output] for s in self._states}

    def close(self) -> None:
        """Give everything back; the device must have finished with it."""
        for side in self._blocks:
            self._pool.release(*side.values())
            side.clear()
        self._capacity = {}
