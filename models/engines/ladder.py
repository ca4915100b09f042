"""Several ways to run one model, best first: where one fails, the next takes the stream over within the utterance.

A fault is a run that raises, does not come back in time, or gives infinities. The run is made again on the next rung,
from the state before it, so nothing that was heard is lost. Only when that succeeds is the rung that failed blamed:
inputs that every rung refuses are the caller's mistake, the last rung is never put away, and a rung that has no room
for a run's shapes (`UncoveredShapeError`) serves all others as before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from models.engines.base import StateTensor
from models.engines.quarantine import Quarantine
from models.engines.rung import Fault, Ladder, LadderState, Listener, Rung, RungChanged, RungState, Slot, TimeLimits
from models.engines.takeover import LadderStream
from models.engines.watchdog import Watchdog
from models.errors import EngineError

__all__ = [
    "LadderEngine",
    "LadderState",
    "LadderStream",
    "Rung",
    "RungChanged",
    "RungState",
    "TimeLimits",
    "open_ladders",
]

_log = logging.getLogger(__name__)


def _ignore(event: RungChanged) -> None:
    del event


class LadderEngine:
    """An engine that is as many engines as it has rungs; see the module. `stream` may be called from any thread."""

    def __init__(
        self,
        task: str,
        rungs: Sequence[Rung],
        states: Sequence[StateTensor] = (),
        *,
        quarantine: Quarantine | None = None,
        watchdog: Watchdog | None = None,
        listener: Listener = _ignore,
    ) -> None:
        """Open the first rung that can be; those below it are opened when they are needed.

        `states` say what snapshots hold: dtypes are changed on the way to a rung that wants others. Raises
        `EngineError`, with every rung's reason, if none can be opened.
        """
        self._ladder = Ladder(
            task,
            [Slot(rung) for rung in rungs],
            tuple(states),
            Quarantine(None) if quarantine is None else quarantine,
            Watchdog(task) if watchdog is None else watchdog,
            listener,
        )
        first = next(self._ladder.usable(), None)
        if first is None:
            reasons = "; ".join(f"{s.rung.name}: {s.reason}" for s in self._ladder.slots) or "it has none"
            raise EngineError(f"{task}: no rung can be opened: {reasons}")
        self._ladder.serving = first
        if first is not self._ladder.slots[0]:
            above = self._ladder.slots[: self._ladder.slots.index(first)]
            reason = "; ".join(f"{slot.rung.name} {slot.status}: {slot.reason}" for slot in above)
            self._ladder.tell(RungChanged(task, None, first.rung.name, reason, None))

    def stream(self) -> LadderStream:
        """Open a stream on the rung that serves. Raises `EngineError` after `close`, or if no rung opens one."""
        return LadderStream(self._ladder)

    def close(self) -> None:
        """Release every rung; streams raise `EngineError` from then on. A rung that hangs is left as it is."""
        with self._ladder.lock:
            self._ladder.closed = True
            slots = list(self._ladder.slots)
        for slot in slots:
            engine, slot.engine = slot.engine, None
            if engine is not None and not slot.hung:
                self._ladder.release(slot, engine)

    def offer(self, rung: Rung, reason: str = "it has been built") -> bool:
        """A rung that can be had now: in the place of one of its name, else above all.

        It is opened on the caller's thread. If it stands above what serves, new streams are opened on it at once,
        those that run go over at their next `reset` (those without state at their next run). False, with the reason
        in `state`, where it is quarantined or cannot be opened.
        """
        ladder, slot = self._ladder, Slot(rung)
        if (entry := ladder.quarantine.find(rung.key)) is not None:
            slot.status, slot.reason = "quarantined", entry.reason
        else:
            try:
                slot.engine, slot.status = ladder.opened(slot), "ready"
            except Exception as error:  # noqa: BLE001 (as in opening: the ladder goes on with what it has)
                slot.status, slot.reason = "failed", Fault("error", error).reason
        with ladder.lock:
            if ladder.closed:
                if slot.engine is not None and not slot.hung:
                    slot.engine.close()
                return False
            place = next((i for i, s in enumerate(ladder.slots) if s.rung.name == rung.name), None)
            ready = slot.status == "ready"
            if place is None:
                ladder.slots.insert(0, slot)
            elif ladder.slots[place].status != "ready":
                ladder.slots[place] = slot
            elif ready:
                ladder.slots.insert(place, slot)  # streams are still on the old one
            if not ready:
                return False
            serving = ladder.serving
            better = serving is None or ladder.slots.index(slot) < ladder.slots.index(serving)
        if better:
            ladder.change(slot, reason, None)
        return True

    def replace(self, rung: Rung, reason: str) -> bool:
        """A rung opened anew in the place of the one of its name, with other threads for instance.

        Streams go over as in `offer`; the old weights are let go when the last stream has left them. False where there
        is no rung of that name or the new one cannot be opened: the old one stays then.
        """
        ladder, slot = self._ladder, Slot(rung)
        try:
            slot.engine, slot.status = ladder.opened(slot), "ready"
        except Exception as error:  # noqa: BLE001 (as in opening: the ladder goes on with what it has)
            _log.warning("%s: %s cannot be opened anew: %s", ladder.task, rung.name, Fault("error", error).reason)
            return False
        with ladder.lock:
            old = next((s for s in ladder.slots if s.rung.name == rung.name), None)
            if ladder.closed or old is None:
                slot.engine.close()
                return False
            ladder.slots[ladder.slots.index(old)] = slot
            served = ladder.serving is old
        if served:
            ladder.change(slot, reason, None)
        return True

    def retry(self) -> None:
        """Look again at the rungs that failed or were put away, after `Quarantine.clear`; the best one serves then."""
        ladder = self._ladder
        with ladder.lock:
            for slot in ladder.slots:
                away = slot.status in ("failed", "set aside", "quarantined") and not slot.hung
                if away and ladder.quarantine.find(slot.rung.key) is None:
                    slot.status, slot.reason = ("not opened" if slot.engine is None else "ready"), ""
        best = next(ladder.usable(), None)
        if best is not None:
            ladder.change(best, "tried again", None)

    def state(self) -> LadderState:
        """Which rung serves, and why the others do not."""
        ladder = self._ladder
        with ladder.lock:
            serving, slots = ladder.serving, list(ladder.slots)
        rows = tuple(
            RungState(
                name=s.rung.name,
                backend=s.rung.backend,
                precision=s.rung.precision,
                status="serving" if s is serving else s.status,
                reason=s.reason,
                run_ms=None if s.run_s is None else round(s.run_s * 1000, 2),
            )
            for s in slots
        )
        degraded = serving is not None and any(s.reason for s in slots[: slots.index(serving)])
        return LadderState(ladder.task, serving.rung.name if serving else None, degraded, rows)


def open_ladders(
    task: str,
    rungs: Mapping[str, Sequence[Rung]],
    states: Mapping[str, Sequence[StateTensor]],
    *,
    quarantine: Quarantine,
    listener: Listener | None = None,
) -> dict[str, LadderEngine]:
    """A ladder for each of a task's graphs, the first rung open: part -> engine, named `task.part`.

    `states`: part -> its recurrent tensors; parts that are left out have none. Raises `EngineError` where not one rung
    of a part can be opened; nothing stays open then.
    """
    watchdog = Watchdog(task)
    listener = _ignore if listener is None else listener
    ladders: dict[str, LadderEngine] = {}
    try:
        for part, of_part in rungs.items():
            ladders[part] = LadderEngine(
                f"{task}.{part}",
                of_part,
                states.get(part, ()),
                quarantine=quarantine,
                watchdog=watchdog,
                listener=listener,
            )
    except BaseException:  # also an interrupt: whoever asked never gets them to close
        for ladder in ladders.values():
            ladder.close()
        raise
    return ladders
