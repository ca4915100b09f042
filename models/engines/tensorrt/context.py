"""One execution context with every answer checked, and nothing said to it twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.engines.tensorrt.api import IExecutionContext, LogLines, checked
from models.errors import EngineError

__all__ = ["Context", "RunShape", "Scratch"]


@dataclass(frozen=True, slots=True)
class RunShape:
    """What kernels, memory and graphs depend on: the profile and the shape of every input."""

    profile: int
    inputs: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Device memory for activations, big enough for a profile."""

    address: int
    nbytes: int


class Context:
    """Prepares and starts runs on a context whose activations' memory we manage. Use it under the engine's lock."""

    def __init__(self, raw: IExecutionContext, outputs: tuple[str, ...], name: str, log: LogLines) -> None:
        self._raw, self._outputs, self._name, self._log = raw, outputs, name, log
        self._profile = -1
        self._scratch: Scratch | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._output_shapes: dict[str, tuple[int, ...]] = {}

    def prepare(self, shape: RunShape, scratch: Scratch, stream: int) -> Mapping[str, tuple[int, ...]]:
        """Set profile and input shapes; the outputs' shapes. Raises `EngineError` with TensorRT's reason."""
        try:
            return self._prepare(shape, scratch, stream)
        except EngineError:
            # Half of it may have been taken: the next run says everything again.
            self._forget()
            raise

    def enqueue(self, addresses: Mapping[str, int], stream: int) -> None:
        """Start the prepared run, its tensors at these device addresses. Raises `EngineError`."""
        self._log.clear()
        for name, address in addresses.items():
            if self._addresses.get(name) != address:
                self._ask(self._raw.set_tensor_address(name, address), f"take an address for {name}")
                self._addresses[name] = address
        self._ask(self._raw.execute_async_v3(stream), "run")

    def _prepare(self, shape: RunShape, scratch: Scratch, stream: int) -> Mapping[str, tuple[int, ...]]:
        self._log.clear()
        if shape.profile != self._profile:
            self._forget()
            self._ask(self._raw.set_optimization_profile_async(shape.profile, stream), f"use profile {shape.profile}")
            self._profile = shape.profile
        if scratch != self._scratch:
            self._raw.set_device_memory(scratch.address, scratch.nbytes)
            self._scratch = scratch
        changed = not self._output_shapes
        for name, dims in shape.inputs:
            if self._shapes.get(name) != dims:
                self._ask(self._raw.set_input_shape(name, dims), f"take {name} of shape {list(dims)}")
                self._shapes[name] = dims
                changed = True
        if changed:
            if missing := self._raw.infer_shapes():
                raise EngineError(f"{self._name}: no shape was given for {', '.join(missing)}: {self._log.text()}")
            self._output_shapes = {name: self._output_shape(name) for name in self._outputs}
        return self._output_shapes

    def _output_shape(self, name: str) -> tuple[int, ...]:
        dims = tuple(int(n) for n in self._raw.get_tensor_shape(name))
        if any(n < 0 for n in dims):
            raise EngineError(f"{self._name}: the shape of {name}, {list(dims)}, depends on values; not supported")
        return dims

    def _ask(self, answer: bool, what: str) -> None:
        checked(answer, f"{what} ({self._name})", self._log)

    def _forget(self) -> None:
        self._profile, self._scratch = -1, None
        self._shapes, self._addresses, self._output_shapes = {}, {}, {}
