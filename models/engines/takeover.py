"""A stream that outlives the engine it runs on: see `models.engines.ladder`."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from models.engines.base import HELD_BYTES, Array, Engine, Rewindable, State, Stream
from models.engines.finite import not_finite
from models.engines.journal import Journal
from models.engines.rung import Carried, Fault, Ladder, Slot, TimeLimits
from models.errors import EngineError, EngineHungError

__all__ = ["LadderStream"]

_log = logging.getLogger(__name__)
T = TypeVar("T")


class _FailedError(Exception):
    """A call to a rung ended in a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class LadderStream:
    """One conversation's state, on whichever rung serves. One call at a time, from any thread.

    In the steady state it costs a sum over the outputs and, where there is a state, a copy of the small inputs.
    """

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._journal = Journal()
        self._converted: dict[str, tuple[weakref.ReferenceType[Array], Array]] = {}
        self._ran = False
        failed: list[tuple[Slot, Fault]] = []
        for slot in ladder.usable():
            try:
                self._slot, self._stream = slot, self._call(slot, _engine(slot).stream, opening=True)
            except _FailedError as error:
                failed.append((slot, error.fault))
                continue
            ladder.moved(self, None, slot)
            self._settle(failed, slot, None)
            return
        raise _error(ladder, failed[0][1] if failed else None)

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """See `Stream.run`; the outputs are finite. Raises `EngineError` where no rung can, `StreamLostError`."""
        if self._slot is not self._ladder.serving and (self._journal.is_empty or not self._ladder.states):
            self._go_over()
        try:
            outputs = self._attempt(self._slot, self._stream, inputs, self._ran)
        except _FailedError as failed:
            outputs = self._take_over(failed.fault, lambda slot, stream: self._attempt(slot, stream, inputs, False))
        self._ran = True
        if self._ladder.states:
            self._journal.add(inputs)
            if self._journal.is_full:
                self._journal.restart(self.snapshot())
        return outputs

    def snapshot(self) -> State:
        """See `Stream.snapshot`; dtypes are those of the ladder's states, whatever the rung computes in."""
        try:
            state = self._call(self._slot, self._stream.snapshot)
        except _FailedError as failed:
            state = self._take_over(failed.fault, lambda slot, stream: self._call(slot, stream.snapshot))
        return _cast(state, {s.input: np.dtype(s.dtype) for s in self._ladder.states})

    def restore(self, state: State) -> None:
        """See `Stream.restore`. Raises `EngineError` if every rung refuses the state."""
        try:
            self._restore(self._slot, self._stream, state)
        except _FailedError as failed:
            before = self._journal
            self._journal = Journal()
            try:
                self._take_over(failed.fault, lambda slot, stream: self._restore(slot, stream, state))
            except EngineError:
                self._journal = before
                raise
        self._journal.restart({name: np.array(value) for name, value in state.items()})

    def reset(self) -> None:
        """See `Stream.reset`. Goes over to a better rung where there is one by now."""
        self._journal.restart(None)
        self._converted.clear()
        if self._slot is not self._ladder.serving and self._go_over():
            return
        try:
            self._call(self._slot, self._stream.reset)
        except _FailedError as failed:
            self._take_over(failed.fault, lambda slot, stream: None)

    # ---- taking over ------------------------------------------------------------------------------

    def _take_over(self, fault: Fault, again: Callable[[Slot, Stream], T]) -> T:
        """Go down the ladder until `again` succeeds; what does not is blamed then. Raises the first fault's error."""
        state = self._state_before(fault)
        failed = [(self._slot, fault)]
        for slot in self._ladder.usable(after=self._slot):
            try:
                stream, carried = self._bring(slot, state)
                made = again(slot, stream)
            except _FailedError as also:
                failed.append((slot, also.fault))
                continue
            left, self._slot, self._stream, self._ran = self._slot, slot, stream, False
            self._converted.clear()
            self._settle(failed, slot, carried)
            self._ladder.moved(self, left, slot)
            return made
        raise _error(self._ladder, fault)

    def _settle(self, failed: list[tuple[Slot, Fault]], slot: Slot, carried: Carried | None) -> None:
        """Blame, and let the slot serve all others too, unless another does by now. A rung that only had no room for
        this run is not blamed: it goes on serving, and this stream comes back to it when it begins anew."""
        guilty = [(bad, why) for bad, why in failed if why.is_the_engines]
        for bad, why in guilty:
            self._ladder.blame(bad, why)
        if any(bad is self._ladder.serving for bad, _ in guilty):
            self._ladder.change(slot, f"{guilty[0][0].rung.name}: {guilty[0][1].reason}", carried)
        elif failed and not guilty:
            _log.info("%s: a stream goes on on %s: %s", self._ladder.task, slot.rung.name, failed[0][1].reason)

    def _state_before(self, fault: Fault) -> State | None:
        """The state before the run that failed, from the stream that failed; None where it cannot be had."""
        if not self._ladder.states or fault.kind == "hang" or self._slot.hung:
            return None
        try:
            if fault.kind == "non-finite":
                if not isinstance(self._stream, Rewindable):
                    return None
                self._call(self._slot, self._stream.rewind)
            state = self._call(self._slot, self._stream.snapshot)
        except _FailedError as failed:
            _log.info("%s: the state is lost with its engine: %s", self._ladder.task, failed)
            return None
        return state if not_finite(state) is None else None

    def _bring(self, slot: Slot, state: State | None) -> tuple[Stream, Carried | None]:
        """A stream on another rung, where this one is."""
        stream = self._call(slot, _engine(slot).stream, opening=True)
        if not self._ladder.states:
            return stream, None
        if state is not None:
            self._restore(slot, stream, state)
            return stream, "state"
        if self._journal.base is not None:
            self._restore(slot, stream, self._journal.base)
        ran = False
        self._converted.clear()
        for inputs in self._journal.runs():
            self._attempt(slot, stream, inputs, ran)
            ran = True
        return stream, "replay"

    def _go_over(self) -> bool:
        """To the rung that serves, where nothing of a conversation is lost by it."""
        serving = self._ladder.serving
        assert serving is not None
        try:
            stream = self._call(serving, _engine(serving).stream, opening=True)
        except _FailedError as failed:
            _log.warning("%s: no stream on %s: %s", self._ladder.task, serving.rung.name, failed)
            return False
        left, self._slot, self._stream, self._ran = self._slot, serving, stream, False
        self._converted.clear()
        self._ladder.moved(self, left, serving)
        return True

    # ---- calls ------------------------------------------------------------------------------------

    def _attempt(self, slot: Slot, stream: Stream, inputs: Mapping[str, Array], ran: bool) -> Mapping[str, Array]:
        fitted = self._fitted(_engine(slot), inputs)
        with self._ladder.trial(slot):
            began_s = time.perf_counter()
            outputs = self._call(slot, lambda: stream.run(fitted), opening=not ran)
            slot.run_s = time.perf_counter() - began_s
        self._ladder.prove(slot)
        if (name := not_finite(outputs)) is not None:
            error = EngineError(f"{self._ladder.task} on {slot.rung.name}: output {name} is not finite")
            raise _FailedError(Fault("non-finite", error))
        return outputs

    def _restore(self, slot: Slot, stream: Stream, state: State) -> None:
        states = getattr(_engine(slot), "states", self._ladder.states)
        fitted = _cast(state, {s.input: np.dtype(s.dtype) for s in states})
        self._call(slot, lambda: stream.restore(fitted))

    def _call(self, slot: Slot, work: Callable[[], T], *, opening: bool = False) -> T:
        """Raises `_FailedError`; `EngineError` where the ladder is closed."""
        limits = slot.rung.limits or TimeLimits()
        try:
            if slot.hung:
                raise EngineHungError(f"{self._ladder.task} on {slot.rung.name}: a call has not come back")
            return self._ladder.call(slot, work, limits.first_s if opening else limits.run_s)
        except EngineHungError as error:
            raise _FailedError(Fault("hang", error)) from None
        except Exception as error:
            if self._ladder.closed:
                raise
            raise _FailedError(Fault("error", error)) from error

    def _fitted(self, engine: Engine, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The inputs in the floats that the rung wants: what one rung's encoder gives, another's decoder may take."""
        wanted: Mapping[str, Any] = getattr(engine, "inputs", {})
        fitted = dict(inputs)
        for name, value in inputs.items():
            info = wanted.get(name)
            if info is None or info.dtype == value.dtype or not value.dtype.kind == info.dtype.kind == "f":
                continue
            kept = self._converted.get(name)
            if kept is not None and kept[0]() is value:
                fitted[name] = kept[1]
                continue
            fitted[name] = value.astype(info.dtype)
            if value.nbytes >= HELD_BYTES:
                self._converted[name] = (weakref.ref(value), fitted[name])
        return fitted


def _engine(slot: Slot) -> Engine:
    engine = slot.engine
    if engine is None:
        raise EngineError(f"{slot.rung.name}: the engine is closed")
    return engine


def _cast(state: State, dtypes: Mapping[str, np.dtype[Any]]) -> State:
    """Floats in the width that is wanted; all else as it is, for the engine to judge."""
    return {
        name: value.astype(dtypes[name], copy=False)
        if name in dtypes and value.dtype.kind == dtypes[name].kind == "f"
        else value
        for name, value in state.items()
    }


def _error(ladder: Ladder, fault: Fault | None) -> EngineError:
    """What to raise where every rung failed: the first one's own error if it is one of ours."""
    if fault is None:
        return EngineError(f"{ladder.task}: no rung is left")
    if isinstance(fault.error, EngineError):
        return fault.error
    error = EngineError(f"{ladder.task}: {fault.reason}")
    error.__cause__ = fault.error
    return error
