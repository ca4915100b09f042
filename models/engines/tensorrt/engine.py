"""An engine on TensorRT: a plan's weights on the device, shared by streams; activations' memory, shared by all of them.

All streams of an engine compute on one CUDA stream, one after the other: so one piece of memory a profile serves the
activations of all, and a further session costs its state and its inputs and outputs only. Copies run on streams of
their own beside it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from models.engines.base import StateTensor
from models.engines.tensorrt.api import ICudaEngine, LogLines, TensorRt, checked
from models.engines.tensorrt.context import Context, RunShape, Scratch
from models.engines.tensorrt.device import Device
from models.engines.tensorrt.pool import Block, Pool
from models.engines.tensorrt.profiles import Padding
from models.engines.tensorrt.tensors import Tensor, read_profiles, read_tensors
from models.errors import DeviceError, EngineError, EnginePlanError

if TYPE_CHECKING:
    from models.engines.tensorrt.resources import StreamResources
    from models.engines.tensorrt.stream import TensorRtStream

__all__ = ["EngineOptions", "Sizes", "TensorRtEngine"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is run."""

    graphs: int = 8
    """CUDA graphs a stream may hold; 0 for none. Each has an execution context of its own."""
    float_dtype: str = "float32"
    """What floating-point outputs come as, whatever the engine computes in: as from the other backends."""
    version_compatible: bool = False
    """Whether the plan brings code to run on the host, as version-compatible ones do, and may use it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of every tensor at a profile's usual and largest shapes."""

    usual: Mapping[str, int]
    most: Mapping[str, int]


class TensorRtEngine:
    """See `models.engines.base.Engine`. `stream` may be called from any thread."""

    def __init__(
        self,
        plan: bytes,
        states: Sequence[StateTensor] = (),
        *,
        trt: TensorRt,
        pool: Pool,
        name: str,
        padding: Padding | None = None,
        options: EngineOptions = EngineOptions(),
    ) -> None:
        """Load a plan. `states` carry the dtype of snapshots, which need not be the device's.

        Raises `EnginePlanError` (TensorRT does not take it, or it has not those states), `DeviceError`.
        """
        self.name, self.trt, self.pool, self.padding, self.options = name, trt, pool, padding, options
        self.log = LogLines()
        self._logger = self.log.logger(trt)
        self.lock = threading.Lock()
        """Held while a run is put on the compute stream: half of another's in between would share its activations."""
        self._scratch: dict[int, tuple[Scratch, Block[int]]] = {}
        self._sizes: dict[int, Sizes] = {}
        self._streams: weakref.WeakSet[TensorRtStream] = weakref.WeakSet()
        self._dropped: deque[StreamResources] = deque()
        """Of streams that were let go without `close`. Never more than there were: every run takes them back."""
        device = pool.device
        with contextlib.ExitStack() as undo:
            # First of all: a CUDA call of ours makes the device this thread's own, and TensorRT loads onto that.
            self.compute = device.create_stream()
            undo.callback(device.destroy_stream, self.compute)
            self.capture = device.create_stream()
            undo.callback(device.destroy_stream, self.capture)
            self._runtime = trt.Runtime(self._logger)
            if options.version_compatible:
                self._runtime.engine_host_code_allowed = True
            self._raw: ICudaEngine | None = checked(
                self._runtime.deserialize_cuda_engine(plan), f"load the plan of {name}", self.log, EnginePlanError
            )
            self.tensors = read_tensors(trt, self._raw, name)
            self.profiles = read_profiles(self._raw, self.tensors, name, self.log)
            self.states = tuple(states)
            self._check_states()
            undo.pop_all()
        inputs, outputs = {s.input for s in states}, {s.output for s in states}
        self.inputs = {n: t for n, t in self.tensors.items() if t.is_input and n not in inputs}
        """What every run is given."""
        self.outputs = {n: t for n, t in self.tensors.items() if not t.is_input and n not in outputs}
        """What every run returns."""
        self._output_names = tuple(n for n, t in self.tensors.items() if not t.is_input)

    @property
    def device(self) -> Device:
        """What it runs on."""
        return self.pool.device

    def stream(self) -> TensorRtStream:
        """Open a stream. Raises `EngineError` after `close`, `DeviceMemoryError`."""
        from models.engines.tensorrt.stream import TensorRtStream

        self.reap()
        stream = TensorRtStream(self)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """Release everything; a run in another thread ends first. Streams raise `EngineError` from then on.

        A device that is broken takes nothing back; that is logged, not raised: what broke it has been told.
        """
        for stream in list(self._streams):
            self._give_back(stream.close)
        self.reap()
        with self.lock:
            if self._raw is None:
                return
            self._give_back(lambda: self.device.synchronize(self.compute))
            self._raw = None
            self.pool.release(*(block for _, block in self._scratch.values()))
            self._scratch.clear()
            for stream_handle in (self.compute, self.capture):
                self._give_back(partial(self.device.destroy_stream, stream_handle))
        self._give_back(self.pool.trim)

    # ---- for streams ------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `EngineError` after `close`."""
        if self._raw is None:
            raise EngineError(f"{self.name}: the engine is closed")

    def context(self) -> Context:
        """A context of its own. Raises `EngineError`."""
        self.check_open()
        assert self._raw is not None
        self.log.clear()
        strategy = self.trt.ExecutionContextAllocationStrategy.USER_MANAGED
        raw = checked(self._raw.create_execution_context(strategy), f"open a context of {self.name}", self.log)
        return Context(raw, self._output_names, self.name, self.log)

    def scratch(self, profile: int) -> Scratch:
        """Memory for a profile's activations, got the first time it is asked for. Under the lock."""
        if profile not in self._scratch:
            assert self._raw is not None
            nbytes = checked(
                self._raw.get_device_memory_size_for_profile_v2(profile), "say how much memory it needs", self.log
            )
            block = self.pool.device_block(nbytes, exact=True)
            self._scratch[profile] = (Scratch(block.where, block.nbytes), block)
        return self._scratch[profile][0]

    def sizes(self, profile: int, context: Context) -> Sizes:
        """See `Sizes`; worked out once, on a stream's context. Under the lock."""
        if profile not in self._sizes:
            spans = self.profiles[profile]
            usual = self._bytes_of(profile, context, {n: s.usual for n, s in spans.items()})
            most = self._bytes_of(profile, context, {n: s.most for n, s in spans.items()})
            self._sizes[profile] = Sizes(usual, most)
        return self._sizes[profile]

    def drop(self, resources: StreamResources) -> None:
        """Take over what a forgotten stream held. Safe in a finaliser: nothing is done yet."""
        self._dropped.append(resources)

    def reap(self) -> None:
        """Give back what forgotten streams held."""
        with contextlib.suppress(IndexError):
            while True:
                self._give_back(self._dropped.popleft().close)

    def _give_back(self, step: Callable[[], None]) -> None:
        try:
            step()
        except DeviceError as error:
            _log.warning("%s: not given back to the device: %s", self.name, error)

    def _bytes_of(self, profile: int, context: Context, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, int]:
        outputs = context.prepare(RunShape(profile, tuple(shapes.items())), self.scratch(profile), self.compute)
        return {name: self._bytes(self.tensors[name], dims) for name, dims in self._both(shapes, outputs)}

    @staticmethod
    def _both(
        inputs: Mapping[str, tuple[int, ...]], outputs: Mapping[str, tuple[int, ...]]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield from inputs.items()
        yield from outputs.items()

    @staticmethod
    def _bytes(tensor: Tensor, dims: Sequence[int]) -> int:
        return prod(dims) * tensor.dtype.itemsize

    def _check_states(self) -> None:
        for state in self.states:
            read, written = self.tensors.get(state.input), self.tensors.get(state.output)
            if read is None or written is None or not read.is_input or written.is_input:
                raise EnginePlanError(f"{self.name}: the plan has no recurrent tensor {state.input} -> {state.output}")
            if read.dtype != written.dtype or len(read.dims) != len(state.shape):
                raise EnginePlanError(
                    f"{self.name}: {state.input} is {read.dtype} {list(read.dims)} and {state.output} {written.dtype}; "
                    f"wanted one type and {len(state.shape)} dimensions"
                )
