"""What a ladder is made of: rungs, how they stand, faults and who is blamed for them."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from models.engines.base import Engine, StateTensor
from models.engines.quarantine import FaultKind, Quarantine
from models.engines.watchdog import Watchdog
from models.errors import EngineError, EngineHungError, UncoveredShapeError

__all__ = [
    "Carried",
    "Fault",
    "Ladder",
    "LadderState",
    "Listener",
    "Rung",
    "RungChanged",
    "RungState",
    "Slot",
    "TimeLimits",
]

_log = logging.getLogger(__name__)
T = TypeVar("T")

Carried = Literal["state", "replay"]
"""How a stream's state came to another rung: handed on, or made again from its inputs."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """When a call to a backend counts as hung. Generous: a machine that is busy must not cost it its best engine."""

    open_s: float = 120.0
    first_s: float = 60.0
    """The first run of a stream may load kernels, find algorithms, capture a graph."""
    run_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to run a model."""

    name: str
    """As people read it: `ort-cpu int8`."""
    backend: str
    precision: str
    key: str
    """Digest of all that the engine is made of; the quarantine's key."""
    open: Callable[[], Engine]
    """Makes the engine. Imports its backend itself. Raises `EngineError` or whatever the backend raises."""
    limits: TimeLimits | None = None
    """None: runs on the caller's thread, unwatched. For what computes on the CPU only: it waits for no device, and its
    work then counts as the caller's where processor time is measured by thread."""
    may_crash: bool = False
    """Whether opening and the first run may take the process with them, and so are marked in the quarantine."""


@dataclass(frozen=True, slots=True)
class RungChanged:
    """Another rung serves from now on."""

    task: str
    before: str | None
    """None: none has served yet; the ladder opened on a rung that is not its first."""
    after: str
    reason: str
    carried: Carried | None
    """None where no stream was running, or streams have no state."""


Status = Literal["serving", "ready", "not opened", "failed", "set aside", "quarantined"]


@dataclass(frozen=True, slots=True)
class RungState:
    """How a rung stands."""

    name: str
    backend: str
    precision: str
    status: Status
    """`set aside`: until the next start only; `failed`: could not be opened; `ready`: opened, and not in use."""
    reason: str
    """Why it does not serve; empty where nothing is wrong."""
    run_ms: float | None = None
    """How long its last run took, by the clock; None where there was none."""


@dataclass(frozen=True, slots=True)
class LadderState:
    """How a ladder stands, for people to read."""

    task: str
    serving: str | None
    degraded: bool
    """Whether a rung above the serving one failed."""
    rungs: tuple[RungState, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, and the error to raise if no rung does better."""

    kind: FaultKind
    error: Exception

    @property
    def reason(self) -> str:
        """One line."""
        return " ".join(str(self.error).split()) or type(self.error).__name__

    @property
    def lasting(self) -> bool:
        """Whether the same would happen again at the next start; errors that may pass say so themselves."""
        return not (self.kind == "error" and getattr(self.error, "retry", False))

    @property
    def is_the_engines(self) -> bool:
        """Whether the rung is to be put away for it; not where it only has no room for shapes like these."""
        return not isinstance(self.error, UncoveredShapeError)


@dataclass(slots=True, eq=False)
class Slot:
    """A rung and what has become of it."""

    rung: Rung
    engine: Engine | None = None
    status: Literal["not opened", "ready", "failed", "set aside", "quarantined"] = "not opened"
    reason: str = ""
    hung: bool = False
    """A call is still in it: it is never touched again, not even to close it."""
    proven: bool = False
    """Whether a run has come back with a value."""
    run_s: float | None = None
    """Seconds that the last run took, whichever stream's."""
    streams: weakref.WeakSet[object] = field(default_factory=weakref.WeakSet)
    """Who runs on it."""


Listener = Callable[[RungChanged], None]


@dataclass(slots=True)
class Ladder:
    """What the streams of a ladder share: the rungs and which of them serves. The inside of a `LadderEngine`."""

    task: str
    slots: list[Slot]
    states: tuple[StateTensor, ...]
    quarantine: Quarantine
    watchdog: Watchdog
    listener: Listener
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held for moments."""
    opening: threading.RLock = field(default_factory=threading.RLock)
    """Held while a rung is opened, which may take minutes: who needs the same one waits for it."""
    serving: Slot | None = None
    closed: bool = False

    def call(self, slot: Slot, work: Callable[[], T], limit_s: float) -> T:
        """Make a call to a rung's backend, watched if the rung is. Raises `EngineHungError`, and what it raises."""
        if slot.rung.limits is None:
            return work()
        try:
            return self.watchdog.call(work, limit_s)
        except EngineHungError as error:
            slot.hung = True
            raise EngineHungError(f"{self.task} on {slot.rung.name}: {error}") from None

    def usable(self, after: Slot | None = None) -> Iterator[Slot]:
        """Rungs that can be used, best first, opened as they are asked for; below `after`, if given."""
        with self.lock:
            # One that was replaced while a stream ran on it stands nowhere: its replacement may be tried.
            start = self.slots.index(after) + 1 if after in self.slots else 0
            slots = self.slots[start:]
        for slot in slots:
            with self.opening:
                ready = self._open(slot)
            if ready:
                yield slot

    def change(self, slot: Slot, reason: str, carried: Carried | None) -> None:
        """Make a rung the serving one; the others hear of it."""
        with self.lock:
            before, self.serving = self.serving, slot
        if before is not slot:
            self.tell(RungChanged(self.task, before.rung.name if before else None, slot.rung.name, reason, carried))

    def tell(self, event: RungChanged) -> None:
        """Log, and tell the listener."""
        _log.warning("%s runs on %s from now on: %s", event.task, event.after, event.reason)
        try:
            self.listener(event)
        except Exception:  # noqa: BLE001 (whoever listens must not cost the one who speaks a word)
            _log.exception("a listener failed at %s", event)

    def blame(self, slot: Slot, fault: Fault) -> None:
        """Another rung managed what this one failed at: it serves no more."""
        with self.lock:
            if slot.status == "ready":
                slot.status, slot.reason = ("quarantined" if fault.lasting else "set aside"), fault.reason
        if fault.lasting:
            rung = slot.rung
            self.quarantine.add(rung.key, task=self.task, rung=rung.name, kind=fault.kind, reason=fault.reason)

    def moved(self, stream: object, before: Slot | None, after: Slot) -> None:
        """A stream was opened (`before` is None) or went over. The weights of rungs that were put away go when their
        last stream has left them, or once it is gone at the next such occasion."""
        with self.lock:
            if before is not None:
                before.streams.discard(stream)
            after.streams.add(stream)
            left = [
                (slot, slot.engine)
                for slot in self.slots
                if slot.engine is not None
                and not (slot.streams or slot.hung)
                and slot.status in ("set aside", "quarantined")
            ]
            for slot, _ in left:
                slot.engine = None
        for slot, engine in left:
            # Beside: somebody is speaking, and a device that has failed may take its time.
            threading.Thread(target=self.release, args=(slot, engine), name="release", daemon=True).start()

    def release(self, slot: Slot, engine: Engine) -> None:
        """Close an engine; that one cannot be closed, or not in time, is only noted."""
        limits = slot.rung.limits or TimeLimits()
        try:
            self.call(slot, engine.close, limits.first_s)
        except Exception as error:  # noqa: BLE001 (nobody can do anything about it, and the others shall be closed)
            _log.warning("%s: %s cannot be closed: %s", self.task, slot.rung.name, error)

    def _open(self, slot: Slot) -> bool:
        if self.closed:
            raise EngineError(f"{self.task}: the engine is closed")
        if slot.status != "not opened":
            return slot.status == "ready"
        rung = slot.rung
        if (entry := self.quarantine.find(rung.key)) is not None:
            slot.status, slot.reason = "quarantined", entry.reason
            return False
        try:
            slot.engine = self.opened(slot)
            slot.status = "ready"
        except Exception as error:  # noqa: BLE001 (a backend raises what it likes; it is in `state`, and the next is tried)
            slot.status, slot.reason = "failed", Fault("error", error).reason
            _log.info("%s: %s cannot be opened: %s", self.task, rung.name, slot.reason)
        return slot.status == "ready"

    def opened(self, slot: Slot) -> Engine:
        """Open a rung's engine. Raises what the backend raises."""
        rung = slot.rung
        limit_s = TimeLimits().open_s if rung.limits is None else rung.limits.open_s
        with self.trial(slot):
            return self.call(slot, rung.open, limit_s)

    @contextlib.contextmanager
    def trial(self, slot: Slot) -> Iterator[None]:
        """Around opening and first runs of a rung that may take the process with it."""
        if slot.proven or not slot.rung.may_crash:
            yield
            return
        with self.quarantine.trial(slot.rung.key, task=self.task, rung=slot.rung.name):
            yield

    def prove(self, slot: Slot) -> None:
        """A run has come back. Where a process died in this engine before, it was the plug."""
        if not slot.proven:
            slot.proven = True
            if slot.rung.may_crash:
                self.quarantine.pardon(slot.rung.key)
