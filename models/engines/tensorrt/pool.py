"""Device memory and pinned memory in blocks that are used again: bounded, counted, given back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from models.engines.tensorrt.device import Device, HostBlock
from models.errors import DeviceMemoryError

__all__ = ["Block", "Pool", "PoolSizes"]

_ALIGNMENT = 512
"""CUDA gives addresses aligned to 256 or 512; TensorRT wants 256 for activations."""
_DEFAULT_LIMIT = 1 << 30
_DEFAULT_KEEP = 16 << 20

T = TypeVar("T", int, HostBlock)


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Bounds of a pool, in bytes."""

    limit: int = _DEFAULT_LIMIT
    """Device memory in use, and pinned memory in use, never exceed this each."""
    keep: int = _DEFAULT_KEEP
    """What is released is kept for the next session up to this, and beyond it given back to the device."""


@dataclass(frozen=True, slots=True, eq=False)
class Block(Generic[T]):
    """Memory that one user has until it is released."""

    where: T
    nbytes: int


class _Side(Generic[T]):
    """One kind of memory. Not thread-safe by itself."""

    def __init__(self, kind: str, sizes: PoolSizes, make: Callable[[int], T], destroy: Callable[[T], None]) -> None:
        self._kind, self._sizes = kind, sizes
        self._make: Callable[[int], T] = make
        self._destroy: Callable[[T], None] = destroy
        self._spare: dict[int, list[Block[T]]] = {}
        self.used = 0
        self.kept = 0

    def acquire(self, nbytes: int, exact: bool) -> Block[T]:
        size = _aligned(nbytes) if exact else _rounded(nbytes)
        if self.used + size > self._sizes.limit:
            raise DeviceMemoryError(
                f"{self._kind}: {size} bytes wanted, {self.used} of the {self._sizes.limit} allowed are in use; end a "
                "session or raise the bound"
            )
        spare = self._spare.get(size)
        if spare:
            block = spare.pop()
            self.kept -= size
        else:
            try:
                block = Block(self._make(size), size)
            except DeviceMemoryError:
                # What is kept for later may be what is missing now.
                self.trim(0)
                block = Block(self._make(size), size)
        self.used += size
        return block

    def release(self, block: Block[T]) -> None:
        self.used -= block.nbytes
        self._spare.setdefault(block.nbytes, []).append(block)
        self.kept += block.nbytes
        self.trim(self._sizes.keep)

    def trim(self, keep: int) -> None:
        for size in sorted(self._spare, reverse=True):
            while self.kept > keep and self._spare[size]:
                self.kept -= size
                self._destroy(self._spare[size].pop().where)


class Pool:
    """The memory of an engine's streams. Thread-safe; `release` may come from a finaliser, whatever it interrupted."""

    def __init__(self, device: Device, sizes: PoolSizes = PoolSizes()) -> None:
        self.device = device
        self._device: _Side[int] = _Side("device memory", sizes, device.allocate, device.free)
        self._host: _Side[HostBlock] = _Side("pinned memory", sizes, device.allocate_host, device.free_host)
        self._lock = threading.Lock()
        self._returned: deque[Block[int] | Block[HostBlock]] = deque()
        """Blocks on their way back: a finaliser cannot wait for a lock that its own thread may hold. Never more than
        were handed out, which the sizes bound."""

    @property
    def used_bytes(self) -> int:
        """Device memory in use."""
        self._take_back()
        return self._device.used

    @property
    def kept_bytes(self) -> int:
        """Device memory kept for the next session."""
        self._take_back()
        return self._device.kept

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory in use."""
        self._take_back()
        return self._host.used

    def device_block(self, nbytes: int, *, exact: bool = False) -> Block[int]:
        """Device memory, at least `nbytes` (also for 0). Raises `DeviceMemoryError`.

        `exact`: no more than that; for sizes that come from a profile and so come again. Others are rounded up to
        what another may use as well.
        """
        with self._lock:
            self._drain()
            return self._device.acquire(nbytes, exact)

    def host_block(self, nbytes: int) -> Block[HostBlock]:
        """Pinned memory, at least `nbytes`. Raises `DeviceMemoryError`."""
        with self._lock:
            self._drain()
            return self._host.acquire(nbytes, exact=False)

    def release(self, *blocks: Block[int] | Block[HostBlock]) -> None:
        """Take blocks back; the device must have finished with them."""
        self._returned.extend(blocks)
        self._take_back()

    def trim(self) -> None:
        """Give back to the device what nobody uses."""
        with self._lock:
            self._drain()
            self._device.trim(0)
            self._host.trim(0)

    def _take_back(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            if isinstance(block.where, HostBlock):
                self._host.release(block)
            else:
                self._device.release(block)


def _aligned(nbytes: int) -> int:
    return max(1, -(-nbytes // _ALIGNMENT)) * _ALIGNMENT


def _rounded(nbytes: int) -> int:
    """Up to a size that others want as well: powers of two and their halves between, at least one alignment."""
    size = _ALIGNMENT
    while size < nbytes:
        if size + size // 2 >= nbytes and (size // 2) % _ALIGNMENT == 0:
            return size + size // 2
        size *= 2
    return size
