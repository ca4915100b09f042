"""CUDA, as far as an engine needs it: memory, streams, events, graphs. One small protocol; the real one is here.

Addresses, streams, events and graphs are plain numbers, as TensorRT's Python API takes them.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from models.errors import DeviceError, DeviceMemoryError, TensorRtMissingError

__all__ = ["CudaDevice", "Device", "DeviceInfo", "HostBlock"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class HostBlock:
    """Pinned host memory: what the device copies from and to without the CPU."""

    address: int
    bytes: Bytes
    """A view of it, shape [nbytes]; not to be touched after `free_host`."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What an engine depends on."""

    name: str
    sm: str
    """Compute capability, as `8.7`."""
    cuda: str
    """CUDA runtime, as `12.6`."""
    driver: str
    """Newest CUDA that the driver knows, as `12.6`."""
    total_bytes: int


class Device(Protocol):
    """One device. Any method raises `DeviceError` with CUDA's name for what went wrong. Thread-safe."""

    def info(self) -> DeviceInfo: ...
    def free_bytes(self) -> int:
        """Device memory that nobody uses."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Device memory; its address. Raises `DeviceMemoryError`."""
        ...

    def free(self, address: int) -> None: ...
    def allocate_host(self, nbytes: int) -> HostBlock:
        """Pinned host memory. Raises `DeviceMemoryError`."""
        ...

    def free_host(self, block: HostBlock) -> None: ...
    def create_stream(self) -> int: ...
    def destroy_stream(self, stream: int) -> None: ...
    def synchronize(self, stream: int) -> None:
        """Wait until all work of a stream is done."""
        ...

    def create_event(self) -> int: ...
    def destroy_event(self, event: int) -> None: ...
    def record(self, event: int, stream: int) -> None: ...
    def wait(self, stream: int, event: int) -> None:
        """Have a stream's later work wait for the event; the caller does not."""
        ...

    def synchronize_event(self, event: int) -> None:
        """Wait until what was recorded is done."""
        ...

    def copy_in(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Pinned host memory to the device, in the stream's turn."""
        ...

    def copy_out(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """The device to pinned host memory, in the stream's turn."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Device to device, in the stream's turn."""
        ...

    def begin_capture(self, stream: int) -> None:
        """Have a stream's work written down instead of done; other threads' work goes on."""
        ...

    def end_capture(self, stream: int) -> int:
        """What was written down since `begin_capture`, as a graph that can be launched."""
        ...

    def abandon_capture(self, stream: int) -> None:
        """End a capture whose work failed; raises nothing."""
        ...

    def launch(self, graph: int, stream: int) -> None: ...
    def destroy_graph(self, graph: int) -> None: ...


class CudaDevice:
    """A GPU through `cuda-bindings` (12.x and 13.x have the same names). See `Device`.

    Without a driver some calls raise and some return an error code; both come out as `DeviceError`.
    """

    def __init__(self, index: int = 0) -> None:
        """Open a device. Raises `TensorRtMissingError` (no cuda-bindings, no driver, no device), `DeviceError`."""
        try:
            # cuda-bindings 12.0 to 12.5 had only the old name.
            self._cuda: Any = _import_first("cuda.bindings.runtime", "cuda.cudart")
        except ImportError as error:
            raise TensorRtMissingError(
                f"cuda-bindings cannot be loaded ({error}); pip install 'cuda-bindings==12.*' (JetPack 6) or "
                "'cuda-bindings==13.*' (JetPack 7)"
            ) from error
        self._index = index
        self._per_thread = threading.local()
        try:
            count = int(self._raw("cudaGetDeviceCount"))
        except DeviceError as error:
            raise TensorRtMissingError(f"no CUDA device can be used: {error}") from error
        if index >= count:
            raise TensorRtMissingError(f"CUDA device {index} is not there: this machine has {count}")

    def info(self) -> DeviceInfo:
        """See `DeviceInfo`."""
        cuda = self._cuda
        properties = self._call("cudaGetDeviceProperties", self._index)
        attribute = cuda.cudaDeviceAttr
        major, minor = (
            int(self._call("cudaDeviceGetAttribute", a, self._index))
            for a in (attribute.cudaDevAttrComputeCapabilityMajor, attribute.cudaDevAttrComputeCapabilityMinor)
        )
        return DeviceInfo(
            name=_text(properties.name),
            sm=f"{major}.{minor}",
            cuda=_version(int(self._call("cudaRuntimeGetVersion"))),
            driver=_version(int(self._call("cudaDriverGetVersion"))),
            total_bytes=int(properties.totalGlobalMem),
        )

    def free_bytes(self) -> int:
        """See `Device`."""
        return int(self._call("cudaMemGetInfo")[0])

    def allocate(self, nbytes: int) -> int:
        """See `Device`."""
        return int(self._call("cudaMalloc", nbytes))

    def free(self, address: int) -> None:
        """See `Device`."""
        self._call("cudaFree", address)

    def allocate_host(self, nbytes: int) -> HostBlock:
        """See `Device`."""
        address = int(self._call("cudaHostAlloc", nbytes, self._cuda.cudaHostAllocDefault))
        view = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        return HostBlock(address, view)

    def free_host(self, block: HostBlock) -> None:
        """See `Device`."""
        self._call("cudaFreeHost", block.address)

    def create_stream(self) -> int:
        """See `Device`. It waits for no other stream, the default one included."""
        return int(self._call("cudaStreamCreateWithFlags", self._cuda.cudaStreamNonBlocking))

    def destroy_stream(self, stream: int) -> None:
        """See `Device`."""
        self._call("cudaStreamDestroy", stream)

    def synchronize(self, stream: int) -> None:
        """See `Device`."""
        self._call("cudaStreamSynchronize", stream)

    def create_event(self) -> int:
        """See `Device`. A thread that waits for it sleeps: a home's appliance has other things to do."""
        flags = self._cuda.cudaEventDisableTiming | self._cuda.cudaEventBlockingSync
        return int(self._call("cudaEventCreateWithFlags", flags))

    def destroy_event(self, event: int) -> None:
        """See `Device`."""
        self._call("cudaEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        """See `Device`."""
        self._call("cudaEventRecord", event, stream)

    def wait(self, stream: int, event: int) -> None:
        """See `Device`."""
        self._call("cudaStreamWaitEvent", stream, event, 0)

    def synchronize_event(self, event: int) -> None:
        """See `Device`."""
        self._call("cudaEventSynchronize", event)

    def copy_in(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """See `Device`."""
        self._copy(target, source, nbytes, "cudaMemcpyHostToDevice", stream)

    def copy_out(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """See `Device`."""
        self._copy(target, source, nbytes, "cudaMemcpyDeviceToHost", stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """See `Device`."""
        self._copy(target, source, nbytes, "cudaMemcpyDeviceToDevice", stream)

    def begin_capture(self, stream: int) -> None:
        """See `Device`."""
        mode = self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", stream, mode)

    def end_capture(self, stream: int) -> int:
        """See `Device`."""
        graph = self._call("cudaStreamEndCapture", stream)
        try:
            return int(self._call("cudaGraphInstantiate", graph, 0))
        finally:
            self._call("cudaGraphDestroy", graph)

    def abandon_capture(self, stream: int) -> None:
        """See `Device`. The stream is usable afterwards; that the capture is invalid is known already."""
        try:
            graph = self._call("cudaStreamEndCapture", stream)
            if int(graph):
                self._call("cudaGraphDestroy", graph)
        except DeviceError:
            return

    def launch(self, graph: int, stream: int) -> None:
        """See `Device`."""
        self._call("cudaGraphLaunch", graph, stream)

    def destroy_graph(self, graph: int) -> None:
        """See `Device`."""
        self._call("cudaGraphExecDestroy", graph)

    def _copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        if nbytes:
            self._call("cudaMemcpyAsync", target, source, nbytes, getattr(self._cuda.cudaMemcpyKind, kind), stream)

    def _call(self, name: str, *arguments: Any) -> Any:
        """A call on this device: CUDA's notion of the current one is a thread's own."""
        if getattr(self._per_thread, "index", None) != self._index:
            self._raw("cudaSetDevice", self._index)
            self._per_thread.index = self._index
        return self._raw(name, *arguments)

    def _raw(self, name: str, *arguments: Any) -> Any:
        try:
            code, *values = getattr(self._cuda, name)(*arguments)
        except (RuntimeError, OSError, ImportError, AttributeError, TypeError, ValueError) as error:
            # No driver (cuda.pathfinder's errors are RuntimeErrors), or bindings that do not fit the library.
            raise DeviceError(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}") from error
        if int(code):
            raise self._error(name, code)
        return values[0] if len(values) == 1 else tuple(values)

    def _error(self, name: str, code: Any) -> DeviceError:
        cuda_name = _said(lambda: self._cuda.cudaGetErrorName(code)) or str(code)
        text = _said(lambda: self._cuda.cudaGetErrorString(code))
        kind = DeviceMemoryError if cuda_name == "cudaErrorMemoryAllocation" else DeviceError
        return kind(f"{name}: {cuda_name} ({int(code)})" + (f": {text}" if text else ""))


def _import_first(*names: str) -> Any:
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])


def _said(ask: Callable[[], Any]) -> str:
    """A name or text of CUDA, or nothing: an error is being told already."""
    try:
        code, value = ask()
    except (RuntimeError, OSError, TypeError, ValueError):
        return ""
    return "" if int(code) or value is None else _text(value)


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace").rstrip("\0") if isinstance(value, bytes) else value


def _version(number: int) -> str:
    """CUDA writes 12.6 as 12060."""
    return f"{number // 1000}.{number % 1000 // 10}"
