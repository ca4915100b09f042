"""Real cuda-bindings on a machine without a GPU: every call ends in our error, whichever way CUDA says no."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.engines.tensorrt.device import CudaDevice, HostBlock
from models.errors import DeviceError, DeviceMemoryError, TensorRtMissingError
from tests.models.engines.nvidia import needed

CALLS: dict[str, Callable[[CudaDevice], Any]] = {
    "info": lambda d: d.info(),
    "free_bytes": lambda d: d.free_bytes(),
    "allocate": lambda d: d.allocate(512),
    "free": lambda d: d.free(512),
    "allocate_host": lambda d: d.allocate_host(512),
    "free_host": lambda d: d.free_host(HostBlock(512, np.zeros(1, dtype=np.uint8))),
    "create_stream": lambda d: d.create_stream(),
    "destroy_stream": lambda d: d.destroy_stream(4096),
    "synchronize": lambda d: d.synchronize(4096),
    "create_event": lambda d: d.create_event(),
    "destroy_event": lambda d: d.destroy_event(4096),
    "record": lambda d: d.record(4096, 8192),
    "wait": lambda d: d.wait(8192, 4096),
    "synchronize_event": lambda d: d.synchronize_event(4096),
    "copy_in": lambda d: d.copy_in(4096, 8192, 16, 4096),
    "copy_out": lambda d: d.copy_out(4096, 8192, 16, 4096),
    "copy": lambda d: d.copy(4096, 8192, 16, 4096),
    "begin_capture": lambda d: d.begin_capture(4096),
    "end_capture": lambda d: d.end_capture(4096),
    "launch": lambda d: d.launch(4096, 8192),
    "destroy_graph": lambda d: d.destroy_graph(4096),
}


@pytest.fixture
def unopened() -> CudaDevice:
    """A device on real bindings, its opening left out: without a GPU that is as far as it goes."""
    runtime = needed("cuda.bindings.runtime")
    code, count = runtime.cudaGetDeviceCount()
    if not int(code) and count:
        pytest.skip("there is a GPU: benchmarks/gpu_check.py is the test for it")
    device = CudaDevice.__new__(CudaDevice)
    device._cuda, device._index = runtime, 0
    device._per_thread = types.SimpleNamespace(index=0)  # type: ignore[assignment]
    return device


@pytest.mark.parametrize("name", sorted(CALLS))
def test_without_a_driver_every_call_says_so_by_cudas_name(unopened: CudaDevice, name: str) -> None:
    """The arguments reach CUDA: a wrong type would be a TypeError, which our error would name."""
    with pytest.raises(DeviceError, match=r"cuda\w+: cudaErrorInsufficientDriver \(35\)") as caught:
        CALLS[name](unopened)
    assert "TypeError" not in str(caught.value)


def test_the_list_of_calls_is_whole() -> None:
    methods = {n for n in vars(CudaDevice) if not n.startswith("_")}
    assert methods == CALLS.keys() | {"abandon_capture"}


def test_abandoning_a_capture_raises_nothing(unopened: CudaDevice) -> None:
    unopened.abandon_capture(4096)


def test_opening_without_a_driver_says_that_there_is_no_device(unopened: CudaDevice) -> None:
    del unopened
    with pytest.raises(TensorRtMissingError, match="no CUDA device can be used: cudaGetDeviceCount"):
        CudaDevice()


class FakeCuda(types.ModuleType):
    """FAKE bindings whose calls say no in every way that the real ones have."""

    cudaAllocDefault = cudaHostAllocDefault = 0

    def __init__(self, answer: Callable[[], Any]) -> None:
        super().__init__("cuda.bindings.runtime")
        self._answer = answer

    def cudaGetDeviceCount(self) -> Any:
        return 0, 1

    def cudaSetDevice(self, index: int) -> Any:
        return (0,)

    def cudaMalloc(self, nbytes: int) -> Any:
        return self._answer()

    def cudaGetErrorName(self, code: Any) -> Any:
        return 0, {2: b"cudaErrorMemoryAllocation", 700: b"cudaErrorIllegalAddress"}[code]

    def cudaGetErrorString(self, code: Any) -> Any:
        raise RuntimeError("this one raises")


def _raise(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (lambda: (2, None), DeviceMemoryError, r"cudaMalloc: cudaErrorMemoryAllocation \(2\)$"),
        (lambda: (700, None), DeviceError, r"cudaMalloc: cudaErrorIllegalAddress \(700\)$"),
        (lambda: _raise(RuntimeError("no libcuda")), DeviceError, "cudaMalloc: RuntimeError: no libcuda"),
        (lambda: _raise(OSError("libcudart.so")), DeviceError, "cudaMalloc: OSError: libcudart.so"),
    ],
)
def test_codes_and_exceptions_both_become_our_errors(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any], kind: type[DeviceError], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", FakeCuda(answer))
    device = CudaDevice()
    with pytest.raises(kind, match=message) as caught:
        device.allocate(16)
    assert type(caught.value) is kind


def test_the_old_name_of_the_bindings_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.cudart", FakeCuda(lambda: (0, 4096)))
    assert CudaDevice().allocate(16) == 4096


def test_without_bindings_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TensorRtMissingError, match=r"cuda-bindings==12.*cuda-bindings==13"):
        CudaDevice()


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", FakeCuda(lambda: (0, 4096)))
    with pytest.raises(TensorRtMissingError, match="CUDA device 3 is not there: this machine has 1"):
        CudaDevice(3)


def test_nothing_is_imported_before_it_is_needed() -> None:
    assert "cuda" not in vars(importlib.import_module("models.engines.tensorrt.device"))
