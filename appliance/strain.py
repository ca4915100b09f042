"""How far Wren steps down, and why: strain of the stages and heat of the machine in one place, for all sessions.

The monitor (telemetry) says how deep, the ladder (voice) what that means; heat is a floor on the same ladder. What
changes is told as an event, logged and counted. Thread-safe; reports cost microseconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance import events
from appliance.events import Event, Listener
from appliance.telemetry.strain import Load, StrainMonitor, StrainSettings
from appliance.voice.breaker import Breakers, BreakerSettings, BreakerState
from appliance.voice.guards import Guard
from appliance.voice.limits import LIMITS, TimeLimits
from appliance.voice.meter import SessionMeter
from appliance.voice.relief import LADDER, Relief, Step, possible, relief_of
from appliance.voice.turns import HEAD_START_S, Lead, Turns
from models.engines.watchdog import Watchdog

__all__ = ["LOCAL", "Strain", "StrainState"]

_LOG = logging.getLogger(__name__)

LOCAL: Final = "local"
"""Name of the session of the machine's own microphone and speaker."""


@dataclass(frozen=True, slots=True)
class StrainState:
    """As of one moment."""

    steps: tuple[Step, ...]
    """That are taken; none: all that Wren can do."""
    because: str | None
    """Stage that strain was last seen in, or `heat`; None where no step is taken."""
    loads: Mapping[str, Load]
    stepped_down: int
    """Times since the start."""
    stepped_up: int
    opened: Mapping[str, int]
    """Times that each stage's breaker has opened."""
    hung: int
    """Calls that were given up and have not come back."""
    refused: int
    """Recognitions that waited too long for others."""


@dataclass(slots=True)
class _Counts:
    down: int = 0
    up: int = 0


class Strain:
    """See the module."""

    def __init__(
        self,
        has: Collection[str] = (),
        *,
        slots: int = 1,
        ladder: Sequence[Step] = LADDER,
        settings: StrainSettings | None = None,
        breakers: BreakerSettings | None = None,
        limits: TimeLimits = LIMITS,
        changed: Callable[[Relief], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has` is what steps may need and is installed; `slots` how many recognitions may run at once.

        `changed` is told what holds from now on, on whichever thread reported and in the order of the changes: nobody
        can report until it returns, so it must at once, and not call back.
        """
        self.emit: Listener | None = None
        """Told of every change, once somebody listens."""
        self.steps = possible(ladder, has)
        """The ladder as it is here."""
        self.skipped = tuple(step for step in ladder if step not in self.steps)
        self._clock = clock
        self._limits = limits
        self._changed = changed
        self._monitor = StrainMonitor([step.relieves for step in self.steps], settings or StrainSettings())
        self._floors: dict[str, frozenset[int]] = {}
        self._taken: tuple[Step, ...] = ()
        self._counts = _Counts()
        self._lock = threading.Lock()
        self._relief = Relief()
        self._lead = Lead(LOCAL)
        self._turns = Turns(slots)
        self._watchdog = Watchdog("stage")
        self.breakers = Breakers(clock, self._breaker_changed, breakers or BreakerSettings())

    # ---- for sessions

    def meter(self) -> SessionMeter:
        """For a session's runner and stages."""
        return SessionMeter(self.report)

    def guard(self, session: str, meter: SessionMeter) -> Guard:
        """What a session's guarded stages need."""
        head_start_s = HEAD_START_S if session == LOCAL else 0.0
        return Guard(meter, self.relief, self.breakers, self._turns, self._watchdog, head_start_s, self._limits)

    def relief(self) -> Relief:
        """What holds now."""
        return self._relief

    def share(self, session: str) -> float:
        """Of the usual work ahead that a session may do: with several conversations at once, one of them does all."""
        return self._relief.share if self._lead.leads(session) else 0.0

    def report(self, stage: str, cost_s: float, sound_s: float, age_s: float) -> None:
        """See `meter.Report`."""
        now_s = self._clock()
        with self._lock:
            self._monitor.note(stage, cost_s / sound_s, age_s, now_s)
        self.tick()

    def __call__(self, event: Event) -> None:
        """Listen to who converses."""
        if isinstance(event, events.ListeningStarted | events.Announcing):
            with self._lock:
                self._lead.began(event.session)
        elif isinstance(event, events.UtteranceEnded):
            self.gone(event.session)

    def gone(self, session: str) -> None:
        """A session has ended."""
        with self._lock:
            self._lead.ended(session)

    # ---- for the machine

    def tick(self) -> None:
        """Look at how things stand; now and then also while nobody reports."""
        with self._lock:
            told = self._settle() if self._monitor.step(self._clock()) else None
        self._tell(told)

    def floor(self, source: str, step: str | None) -> None:
        """Take the steps down to one of them for a reason of its own (heat); None lets go of them."""
        names = [row.name for row in self.steps]
        with self._lock:
            self._floors.pop(source, None)
            if step is not None:
                self._floors[source] = frozenset(range(names.index(step) + 1))
            told = self._settle()
        self._tell(told)

    # ---- for people

    @property
    def degraded(self) -> tuple[str, ...]:
        """What works less well because of it, a sentence each."""
        self.tick()  # nobody may be reporting
        state = self.state()
        found = []
        if state.steps:
            texts = "; ".join(step.text for step in state.steps)
            found.append(f"Wren {texts} ({_WHY.get(state.because or '', state.because)})")
        for stage, broken in self.breakers.broken().items():
            then = "is being tried again" if broken is BreakerState.HALF_OPEN else "rests for a while"
            found.append(f"{stage} failed again and again and {then}: {self.breakers.reason(stage)}")
        return tuple(found)

    def state(self) -> StrainState:
        """All that is known."""
        with self._lock:
            return StrainState(
                self._taken,
                self._because(),
                self._monitor.loads,
                self._counts.down,
                self._counts.up,
                self.breakers.opened,
                self._watchdog.abandoned,
                self._turns.refused,
            )

    def _because(self) -> str | None:
        return self._monitor.because or next(iter(self._floors), None)

    def _settle(self) -> Event | None:
        """Take the steps that are due; the lock is held. The event that tells of it."""
        numbers = frozenset(self._monitor.taken).union(*self._floors.values())
        taken = tuple(step for number, step in enumerate(self.steps) if number in numbers)
        begun = [step for step in taken if step not in self._taken]
        undone = [step for step in self._taken if step not in taken]
        if not begun and not undone:
            return None
        self._counts.down += bool(begun)
        self._counts.up += not begun
        self._taken, self._relief = taken, relief_of(taken)
        if self._changed is not None:
            self._changed(self._relief)
        text = "; ".join([f"Wren {step.text}" for step in begun] + [f"no longer: Wren {step.text}" for step in undone])
        names = tuple(step.name for step in taken)
        return events.StrainChanged(self._clock(), events.MACHINE, names, self._because() or "", text)

    def _breaker_changed(self, stage: str, state: BreakerState) -> None:
        self._tell(events.BreakerChanged(self._clock(), events.MACHINE, stage, state.value))

    def _tell(self, event: Event | None) -> None:
        match event:
            case None:
                return
            case events.StrainChanged():
                _LOG.warning("%s (%s)", event.text, event.because or "there is headroom again")
            case events.BreakerChanged():
                _LOG.warning("the circuit breaker of %s is %s", event.stage, event.state)
        if self.emit is not None:
            self.emit(event)


_WHY: Final[Mapping[str, str]] = {
    "wake": "this machine is too busy to listen in time",
    "vad": "this machine is too busy to listen in time",
    "recognition": "recognising takes too long here now",
    "intent": "understanding takes too long here now",
    "synthesis": "speech is not made in time here now",
    "playback": "speech is not played in time here now",
    "heat": "the machine is hot",
}
