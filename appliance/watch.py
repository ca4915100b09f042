"""Watches the machine beside the appliance: its heat, and once, while nobody speaks, how fast its engines are.

Reads only; nothing of the machine's clocks, fans or power modes is ever set.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from appliance import events
from appliance.errors import ApplianceError
from appliance.machine import this_machine
from appliance.measuring import PACKS
from appliance.planning import current_plan, kept_timings, measure
from appliance.recognisers import moonshine_pack
from hw.power import advise_power, read_power, read_sensors
from hw.probe import RealRunner, Root
from hw.thermal import Heat, HeatAdvice, HeatState, Reading, advise, read_zones, step
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.building import BuildState, EngineBuilds
    from appliance.events import Listener
    from hw.plan import Overrides, Plan
    from hw.power import PowerAdvice
    from hw.probe import Machine, Runner
    from models import Store

__all__ = ["MachineWatch", "WatchState"]

_LOG = logging.getLogger(__name__)

SENSORS_S: Final = 10.0
"""Between readings: a machine warms over minutes."""
QUIET_S: Final = 20.0
"""Nobody must have spoken for so long before engines are measured."""
TRIES: Final = 3
"""After so many failed measurements the rules decide, until the next start."""


@dataclass(frozen=True, slots=True)
class WatchState:
    """What is known of the machine beside what it hears."""

    heat: HeatAdvice
    readings: tuple[Reading, ...]
    """The newest, in the order of the sensors; empty where there are none."""
    power: tuple[PowerAdvice, ...]
    """What a person could do to have it answer sooner."""
    measuring: bool
    """Engines are being timed just now."""
    better: str | None
    """A plan that holds from the next start, where measuring found a better one than the one that runs."""
    builds: tuple[BuildState, ...] = ()
    """TensorRT engines that are wanted."""

    @property
    def degraded(self) -> tuple[str, ...]:
        """What works less well because of it, a sentence each."""
        found = [] if self.heat == advise(Heat.NORMAL) else [f"the machine is {self.heat.text}"]
        for build in self.builds:
            if build.status == "building":
                share = "" if build.share is None else f", {build.share:.0%}"
                found.append(
                    f"a TensorRT engine is being built for {build.name} ({build.stage}{share}); until then the "
                    "engine below it serves"
                )
            elif build.status == "failed":
                found.append(f"{build.name} could not be built for TensorRT: {build.reason}")
        return tuple(found)


class MachineWatch:
    """A thread of its own; `state` may be asked from any."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        emit: Listener,
        on_heat: Callable[[HeatAdvice], None],
        idle_s: Callable[[], float],
        *,
        user: Overrides | None = None,
        may_measure: bool = True,
        builds: EngineBuilds | None = None,
        root: Root | None = None,
        runner: Runner | None = None,
        interval_s: float = SENSORS_S,
    ) -> None:
        """`on_heat` is told what to do when the level changes; `idle_s` says for how long nobody has spoken."""
        self._store, self._plan, self._user = store, plan, user
        # A transducer is not measured: what is, is of use once it is chosen no more.
        self._asr = moonshine_pack(store, plan.tasks["asr"].model) or PACKS["asr"]
        self._emit, self._on_heat, self._idle_s = emit, on_heat, idle_s
        self._root = Root() if root is None else root
        self._runner = RealRunner() if runner is None else runner
        self._interval_s = interval_s
        self._heat = HeatState()
        self._readings: tuple[Reading, ...] = ()
        self._power: tuple[PowerAdvice, ...] = ()
        self._tries_left = TRIES if may_measure else 0
        self._builds = builds
        self._measuring = False
        self._better: str | None = None
        self._machine: Machine | None = None
        self._trouble = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End, if it was started; waits for a reading under way, not for a measurement: that is a process of its own,
        which ends when there is nobody to take its results."""
        self._closed.set()
        if self._builds is not None:
            self._builds.close()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def state(self) -> WatchState:
        """As of the newest reading."""
        heat = advise(self._heat.heat)
        builds = () if self._builds is None else self._builds.states
        return WatchState(heat, self._readings, self._power, self._measuring, self._better, builds)

    # ---- the thread

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self.look()
                if advise(self._heat.heat).background and self._idle_s() >= QUIET_S:
                    self._work_in_quiet()
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 - see below
                # A sensor's oddity must not end the watch; it is tried again with the next reading, and told once.
                if repr(error) != self._trouble:
                    self._trouble = repr(error)
                    _LOG.exception("the machine could not be looked at")
            self._closed.wait(self._interval_s)

    def look(self) -> None:
        """One round: read the sensors, tell of them, and of the heat where its level changes."""
        machine = self._known()
        limit_c = read_zones(self._root).limit_c
        self._readings = read_sensors(self._root, self._runner, machine)
        self._power = advise_power(machine, read_power(self._root))
        if self._readings:
            self._emit(events.SensorsRead(time.monotonic(), events.MACHINE, self._readings))
        before, self._heat = self._heat.heat, step(self._heat, self._readings, limit_c)
        if self._heat.heat is not before:
            advice = advise(self._heat.heat)
            _LOG.warning("the machine is %s", advice.text)
            self._emit(events.HeatChanged(time.monotonic(), events.MACHINE, self._heat.heat.name.lower(), advice.text))
            self._on_heat(advice)

    def _known(self) -> Machine:
        if self._machine is None:
            # Afresh: whoever changed the power mode since the boot's first probe finds it at the next start.
            self._machine = this_machine(self._store, fresh=True)
        return self._machine

    def _work_in_quiet(self) -> None:
        if self._tries_left:
            self._measure()
        elif self._builds is not None:
            self._builds.step()

    def _measure(self) -> None:
        machine = self._known()
        self._tries_left -= 1
        if kept_timings(self._store, machine, self._asr) is None:
            self._measuring = True
            try:
                measure(self._store, machine, background=True, asr=self._asr)
            except (ApplianceError, ModelsError) as error:
                _LOG.warning("engines could not be measured: %s", error)
                return
            finally:
                self._measuring = False
        self._tries_left = 0
        self._compare(current_plan(self._store, machine, user=self._user, asr=self._asr))

    def _compare(self, plan: Plan) -> None:
        changes = []
        for task, choice in plan.tasks.items():
            now = self._plan.tasks[task]
            # What was put in place by hand is no model that was measured.
            if now.model == choice.model and (now.backend, now.precision, now.scheme, now.threads) != (
                choice.backend,
                choice.precision,
                choice.scheme,
                choice.threads,
            ):
                how = " ".join(part for part in (choice.backend, choice.precision, choice.scheme) if part)
                changes.append(f"{task}: {how}, {choice.threads} thread{'s' if choice.threads > 1 else ''}")
        self._better = "; ".join(changes) or None
        if self._better is not None:
            _LOG.info("measured here; from the next start: %s", self._better)
