"""One conversation on a TensorRT engine: copies in, compute, copies out, on three CUDA streams.

`run` waits for its result. `start` and `finish` let two runs overlap: while one computes, the next one's inputs go in
and the last one's outputs come out. In the steady state nothing is allocated on the device.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from models.engines.base import Array, State
from models.engines.tensorrt.buffers import Slot
from models.engines.tensorrt.context import Context, RunShape
from models.engines.tensorrt.device import HostBlock
from models.engines.tensorrt.graphs import Captured, GraphKey
from models.engines.tensorrt.pool import Block
from models.engines.tensorrt.profiles import covering
from models.engines.tensorrt.resources import StreamResources, Ticket
from models.errors import DeviceError, EngineError

if TYPE_CHECKING:
    from models.engines.tensorrt.engine import TensorRtEngine
    from models.engines.tensorrt.tensors import Tensor

__all__ = ["TensorRtStream"]

_IN_FLIGHT = 2
"""One computing, one being copied: more would only wait."""


class TensorRtStream:
    """See `models.engines.base.Stream`. Not thread-safe, but `close` may come from another thread.

    A large input that is given again is not copied again, nor one that is read-only as our outputs are: an utterance's
    cross-attention goes to the device once, not at every step.
    """

    def __init__(self, engine: TensorRtEngine) -> None:
        self._engine = engine
        self._held = StreamResources(engine)
        self._lock = threading.Lock()
        weakref.finalize(self, engine.drop, self._held).atexit = False
        try:
            self.reset()
        except BaseException:  # also an interrupt: whoever asked never gets a stream to close
            self._held.close()
            raise

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """See `Stream.run`. Names and shapes are those of the engine's `inputs`; either float type is taken.

        Raises `EngineError` with TensorRT's reason, `UncoveredShapeError`, `DeviceError`; the state then is as it was.
        """
        return self.finish(self.start(inputs))

    def start(self, inputs: Mapping[str, Array]) -> Ticket:
        """Put a run on its way. At most two may be; end them with `finish`, the oldest first."""
        with self._lock:
            held = self._open()
            if len(held.in_flight) >= _IN_FLIGHT:
                raise EngineError(f"{self._engine.name}: {_IN_FLIGHT} runs are on their way; finish the oldest first")
            ticket = self._start(held, inputs)
            held.in_flight.append(ticket)
            return ticket

    def finish(self, ticket: Ticket) -> Mapping[str, Array]:
        """The outputs of the oldest run, read-only, copied: later runs do not change them."""
        with self._lock:
            held = self._open()
            if not held.in_flight or held.in_flight[0] is not ticket:
                raise EngineError(f"{self._engine.name}: runs end in the order they were started in")
            held.in_flight.popleft()
            try:
                self._engine.device.synchronize_event(ticket.slot.copied_out)
                return {name: self._output(name, ticket) for name in self._engine.outputs}
            except DeviceError:
                held.withdraw(ticket)
                raise
            finally:
                held.end(ticket)

    def rewind(self) -> None:
        """See `Rewindable.rewind`: the other side still holds it. Not while a run is on its way."""
        with self._lock:
            held = self._open()
            if held.in_flight:
                raise EngineError(f"{self._engine.name}: a run is on its way; finish it before it is taken back")
            if held.last is not None:
                (held.states.side, held.states.shapes), held.last = held.last, None

    def snapshot(self) -> State:
        """See `Stream.snapshot`: of the dtype that the states were declared with."""
        with self._lock:
            held, engine = self._open(), self._engine
            result = {}
            for state in engine.states:
                value = np.zeros(held.states.shapes[state.input], dtype=state.dtype)
                address = held.states.address(state.input)
                if value.size and address is not None:
                    self._read(held, state.input, address, value)
                result[state.input] = value
            return result

    def restore(self, state: State) -> None:
        """See `Stream.restore`. Raises `EngineError` if it is not a state of this model, `UncoveredShapeError` if no
        profile has room for it."""
        with self._lock:
            self._restore(self._open(), state)

    def reset(self) -> None:
        """See `Stream.reset`."""
        with self._lock:
            held = self._open()
            for slot in held.slots:
                slot.forget()
            self._restore(held, {s.input: s.initial() for s in self._engine.states})

    def close(self) -> None:
        """Give the memory back now, not when the stream is collected. A run in another thread ends first."""
        with self._lock:
            self._held.close()

    @property
    def graphs(self) -> int:
        """CUDA graphs held."""
        return len(self._held.graphs)

    # ---- a run ------------------------------------------------------------------------------------

    def _open(self) -> StreamResources:
        self._engine.check_open()
        if self._held.closed:
            raise EngineError(f"{self._engine.name}: the stream is closed")
        return self._held

    def _start(self, held: StreamResources, inputs: Mapping[str, Array]) -> Ticket:
        engine = self._engine
        engine.reap()
        if inputs.keys() != engine.inputs.keys():
            raise EngineError(f"{engine.name}: wants inputs {sorted(engine.inputs)}, got {sorted(inputs)}")
        for name, value in inputs.items():
            _check_input(engine.name, engine.inputs[name], value)
        shapes, cut = self._shapes(held, inputs)
        number = covering(engine.profiles, shapes) if shapes else 0
        shape = RunShape(number, tuple(shapes.items()))
        slot_number = self._free_slot(held)
        slot = held.slots[slot_number]
        self._make_room(held, slot, shape)
        staged_in: list[Block[HostBlock]] = []
        staged_out: dict[str, Block[HostBlock]] = {}
        try:
            self._copy_in(held, slot, inputs, shapes, staged_in)
            outputs = self._compute(held, slot, GraphKey(shape, slot_number, held.states.side))
            engine.device.wait(held.copy_out, slot.computed)
            for name, tensor in engine.outputs.items():
                nbytes = prod(outputs[name]) * tensor.dtype.itemsize
                staged_out[name] = engine.pool.host_block(nbytes)
                engine.device.copy_out(staged_out[name].where.address, slot.blocks[name].where, nbytes, held.copy_out)
            engine.device.record(slot.copied_out, held.copy_out)
        except BaseException:  # also an interrupt: the device still reads and writes what was lent to it
            # What was copied in may be of this run: the next one copies again. What it has written lies where the
            # state before was. Nothing may be under way when the pinned memory goes back.
            slot.forget()
            held.last = None
            held.settle()
            engine.pool.release(*staged_in, *staged_out.values())
            raise
        ticket = Ticket(slot, outputs, tuple(staged_in), staged_out, cut, held.states.side, held.states.shapes)
        held.last = held.states.side, held.states.shapes
        held.states.swap(outputs)
        return ticket

    def _shapes(
        self, held: StreamResources, inputs: Mapping[str, Array]
    ) -> tuple[dict[str, tuple[int, ...]], int | None]:
        """Shapes as the engine is to see them, and the length that padding hides."""
        shapes: dict[str, tuple[int, ...]] = {**{n: v.shape for n, v in inputs.items()}, **held.states.shapes}
        padding, cut = self._engine.padding, None
        if padding is not None:
            cut = shapes[padding.inputs[0]][padding.axis]
            sizes = [p[padding.inputs[0]].most[padding.axis] for p in self._engine.profiles]
            wide = min((n for n in sizes if n >= cut), default=cut)
            for name in padding.inputs:
                shapes[name] = (*shapes[name][: padding.axis], wide, *shapes[name][padding.axis + 1 :])
        return shapes, cut

    def _free_slot(self, held: StreamResources) -> int:
        busy = {id(t.slot) for t in held.in_flight}
        for number, slot in enumerate(held.slots):
            if id(slot) not in busy:
                return number
        held.slots.append(Slot.open(self._engine.pool))
        return len(held.slots) - 1

    def _make_room(self, held: StreamResources, slot: Slot, shape: RunShape) -> None:
        """Memory for this run; once a profile has been used, it is there."""
        engine = self._engine
        with engine.lock:
            sizes = engine.sizes(shape.profile, held.context)
        capacity = {s.input: max(sizes.most[s.input], sizes.most[s.output]) for s in engine.states}
        wanted = {n: max(sizes.usual[n], self._nbytes(n, d)) for n, d in shape.inputs if n in engine.inputs}
        wanted |= {n: sizes.usual[n] for n in engine.outputs}
        if slot.needs(wanted) or held.states.needs(capacity):
            held.wait()
            held.graphs.clear()
            slot.reserve(wanted, sizes.usual)
            if held.states.needs(capacity):
                held.last = None
                held.states.reserve(capacity, engine.compute)

    def _copy_in(
        self,
        held: StreamResources,
        slot: Slot,
        inputs: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
        staged: list[Block[HostBlock]],
    ) -> None:
        """Through pinned memory, which joins `staged` and is the run's until it ends."""
        engine = self._engine
        for name, value in inputs.items():
            if slot.has(name, value):
                continue
            nbytes = self._nbytes(name, shapes[name])
            block = engine.pool.host_block(nbytes)
            staged.append(block)
            view = block.where.bytes[:nbytes].view(engine.tensors[name].dtype).reshape(shapes[name])
            if value.shape != shapes[name]:
                view[...] = 0
            view[tuple(slice(n) for n in value.shape)] = value
            engine.device.copy_in(slot.blocks[name].where, block.where.address, nbytes, held.copy_in)
            slot.hold(name, value)
        engine.device.record(slot.copied_in, held.copy_in)

    def _compute(self, held: StreamResources, slot: Slot, key: GraphKey) -> Mapping[str, tuple[int, ...]]:
        engine = self._engine
        with engine.lock:
            engine.check_open()
            engine.device.wait(engine.compute, slot.copied_in)
            found = held.graphs.find(key)
            if found is not None:
                engine.device.launch(found.graph, engine.compute)
                outputs = found.outputs
            else:
                # A capture waits for nothing, but what it replaces must not be under way.
                capture = not held.in_flight and held.graphs.is_due(key)
                context = engine.context() if capture else held.context
                outputs = context.prepare(key.shape, engine.scratch(key.shape.profile), engine.compute)
                self._make_room_for(slot, outputs, engine.sizes(key.shape.profile, held.context).usual)
                addresses = {n: slot.blocks[n].where for n in (*engine.inputs, *engine.outputs)}
                addresses |= held.states.addresses()
                context.enqueue(addresses, engine.compute)
                if capture:
                    self._capture(held, context, addresses, key, outputs)
            engine.device.record(slot.computed, engine.compute)
        return outputs

    def _make_room_for(self, slot: Slot, outputs: Mapping[str, tuple[int, ...]], usual: Mapping[str, int]) -> None:
        """Outputs larger than usual. Graphs of this slot hold the old addresses of outputs too."""
        wanted = {n: self._nbytes(n, outputs[n]) for n in self._engine.outputs}
        if slot.needs(wanted):
            self._held.wait()
            self._held.graphs.clear()
            slot.reserve(wanted, usual)

    def _capture(
        self,
        held: StreamResources,
        context: Context,
        addresses: Mapping[str, int],
        key: GraphKey,
        outputs: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Write the run that has just been started down as a graph. Where that fails, runs stay plain."""
        engine = self._engine
        try:
            engine.device.begin_capture(engine.capture)
            try:
                context.enqueue(addresses, engine.capture)
            except BaseException:  # also an interrupt: all streams capture on this one
                engine.device.abandon_capture(engine.capture)
                raise
            graph = engine.device.end_capture(engine.capture)
        except EngineError as error:
            held.graphs.never(key)
            engine.log.add(2, f"no CUDA graph: {error}")
            return
        held.graphs.add(key, Captured(graph, context, outputs))

    def _output(self, name: str, ticket: Ticket) -> Array:
        engine, shape = self._engine, ticket.outputs[name]
        tensor, padding = engine.outputs[name], engine.padding
        view = ticket.staged_out[name].where.bytes[: self._nbytes(name, shape)].view(tensor.dtype).reshape(shape)
        if padding is not None and name in padding.outputs:
            view = view[(slice(None),) * padding.axis + (slice(ticket.cut),)]
        floating = np.issubdtype(tensor.dtype, np.floating)
        value = np.array(view, dtype=engine.options.float_dtype if floating else tensor.dtype)
        value.flags.writeable = False
        return value

    # ---- the state --------------------------------------------------------------------------------

    def _restore(self, held: StreamResources, state: State) -> None:
        engine = self._engine
        names = {s.input: s for s in engine.states}
        if state.keys() != names.keys():
            raise EngineError(f"{engine.name}: the state has {sorted(state)}, wanted {sorted(names)}")
        for name, value in state.items():
            wanted = names[name]
            if not _fits(engine.tensors[name], value) or value.ndim != len(wanted.shape):
                raise EngineError(
                    f"{engine.name}: state {name} is {value.dtype} {value.shape}, "
                    f"wanted {wanted.dtype} with {len(wanted.shape)} dimensions"
                )
        shapes = {name: value.shape for name, value in state.items()}
        if any(value.size for value in state.values()):
            self._make_room_for_state(held, shapes)
        # Always the same side, so that an utterance's first run finds the graph of the last one's.
        held.states.shapes, held.states.side, held.last = shapes, 0, None
        for name, value in state.items():
            if value.size:
                self._write(held, name, value)

    def _make_room_for_state(self, held: StreamResources, shapes: Mapping[str, tuple[int, ...]]) -> None:
        engine = self._engine
        number = covering([{n: profile[n] for n in shapes} for profile in engine.profiles], shapes)
        with engine.lock:
            sizes = engine.sizes(number, held.context)
        capacity = {s.input: max(sizes.most[s.input], sizes.most[s.output]) for s in engine.states}
        if held.states.needs(capacity):
            held.wait()
            held.graphs.clear()
            held.states.reserve(capacity, engine.compute)

    def _write(self, held: StreamResources, name: str, value: Array) -> None:
        engine, nbytes = self._engine, held.states.nbytes(name)
        address = held.states.address(name)
        assert address is not None
        block = engine.pool.host_block(nbytes)
        try:
            block.where.bytes[:nbytes].view(engine.tensors[name].dtype).reshape(value.shape)[...] = value
            engine.device.copy_in(address, block.where.address, nbytes, engine.compute)
            engine.device.synchronize(engine.compute)
        finally:
            engine.pool.release(block)

    def _read(self, held: StreamResources, name: str, address: int, target: Array) -> None:
        engine, nbytes = self._engine, held.states.nbytes(name)
        block = engine.pool.host_block(nbytes)
        try:
            engine.device.copy_out(block.where.address, address, nbytes, engine.compute)
            engine.device.synchronize(engine.compute)
            target[...] = block.where.bytes[:nbytes].view(engine.tensors[name].dtype).reshape(target.shape)
        finally:
            engine.pool.release(block)

    def _nbytes(self, name: str, shape: tuple[int, ...]) -> int:
        return prod(shape) * self._engine.tensors[name].dtype.itemsize


def _check_input(engine: str, tensor: Tensor, value: Array) -> None:
    if not _fits(tensor, value):
        raise EngineError(f"{engine}: input {tensor.name} wants {tensor.dtype}, got {value.dtype}")
    dims = list(tensor.dims)
    if value.ndim != len(dims):
        raise EngineError(f"{engine}: input {tensor.name} wants {len(dims)} dimensions {dims}, got {value.shape}")
    if any(fixed not in (-1, n) for fixed, n in zip(dims, value.shape, strict=True)):
        raise EngineError(f"{engine}: invalid dimensions for input: {tensor.name} wants {dims}, got {value.shape}")


def _fits(tensor: Tensor, value: Array) -> bool:
    """The device's type, or another width of floats: what another backend has given is taken."""
    return value.dtype == tensor.dtype or value.dtype.kind == tensor.dtype.kind == "f"
