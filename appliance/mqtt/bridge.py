"""Wren over MQTT: events and states out, commands in, and Home Assistant told of it all.

One thread of its own, with one bounded queue: the hub, the link and the controls are never waited for, and what is
slow (opening a microphone) holds up nobody else.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from appliance import events
from appliance.errors import ApplianceError
from appliance.events import Event
from appliance.mqtt.commands import MAX_COMMAND_BYTES
from appliance.mqtt.commands_router import BURST, ERRORS_PER_SECOND, Answer, Bucket, CommandRouter
from appliance.mqtt.discovery import (
    REMOVED,
    DeviceInfo,
    Discovery,
    Mode,
    Outgoing,
    discovery_messages,
    transition,
)
from appliance.mqtt.entities import Topics, state_payloads
from appliance.mqtt.entities_table import ENTITIES
from appliance.mqtt.protocol import ONLINE, Kind, Link, Message, Refused
from appliance.mqtt.state import Published, encode, event_message, timer_events
from appliance.mqtt.state_view import IDLE, View, apply_event

if TYPE_CHECKING:
    from appliance.mqtt.controls import Controls, ControlsView
    from appliance.service import Service

__all__ = ["Bridge", "BridgeSettings"]

_LOG = logging.getLogger(__name__)

MAX_QUEUED: Final = 256
"""Events and commands that wait; a burst of speech makes some ten a second."""
MAX_QUEUED_COMMANDS: Final = 128
"""Beyond so many of either no command is taken: a flood of them must cost no event."""
LOOK_S: Final = 1.0
"""Between looks at what tells of itself by no event: volume, mute, timers."""
BUSY_TICK_S: Final = 0.05
"""Between looks while something is to be said or sounded."""
READY_S: Final = 2.0
"""Longest wait for the states before `online` is said: by the states alone nobody is told that Wren is there."""
MAX_FOUND: Final = 500
"""Discovery messages of ours that may stand at the broker; more were not left by us."""
SETTLE_S: Final = 0.5
"""What stands at the broker comes right after the subscription; so long the last of it is waited for."""
GHOSTS_S: Final = 5.0
"""After a connection, until what stood under former prefixes has come and is cleared."""
STEP_S: Final = 0.5
"""Between the steps of a change of discovery, so that none overtakes the one before."""
BIRTH_DELAY_S: Final = (0.5, 3.0)
"""After Home Assistant's birth, at random: it asks every device in the house at once."""
DISCOVERY_BYTES: Final = 64 << 10
"""Ours has some ten thousand; somebody else's on our topic is not read."""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """What is told, and where."""

    device: DeviceInfo
    discovery_prefix: str = "homeassistant"
    discovery: Mode = "device"
    transcripts: bool = False
    """Tell what was said."""
    models: dict[str, str] = field(default_factory=dict)
    """Task -> model, to be shown beside the engine."""
    ghosts: tuple[str, ...] = ()
    """Filters of where this appliance was before: what stands there is cleared."""
    on_cleared: Callable[[], None] = lambda: None
    """Told once nothing stands there any more."""


class Bridge:
    """Made once, started once, closed before the link is."""

    def __init__(
        self,
        link: Link,
        service: Service,
        controls: Controls,
        settings: BridgeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        birth_delay_s: Callable[[], float] = lambda: random.uniform(*BIRTH_DELAY_S),
    ) -> None:
        self._link, self._service, self._controls, self._settings = link, service, controls, settings
        self._clock, self._birth_delay_s = clock, birth_delay_s
        base = link.availability_topic.rpartition("/")[0]
        self.topics = Topics(base, link.availability_topic)
        self.discovery = Discovery(self.topics, settings.device, settings.discovery_prefix, settings.discovery)
        self._router = CommandRouter(service, controls, self._tell(self.topics.result), self._tell(self.topics.error))
        self._view = View(models=settings.models, engines=_engines(service))
        self._states = Published()
        self._told: dict[str, bytes] = {}
        """Discovery as we told it last."""
        self._told_of: ControlsView | None = None
        """What it was made from."""
        self._found: dict[str, bytes] = {}
        self._steps: list[list[Outgoing]] = []
        """Of a change of discovery that is under way."""
        self._looked_s: float | None = None
        self._blind = False
        self._begun = False
        """There has been a connection: before the first, states would go out ahead of discovery."""
        self._due_s: dict[Callable[[], None], float] = {}
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_QUEUED)
        self._fresh: deque[threading.Event] = deque(maxlen=1)
        """A new connection, which waits for the states. Beside the queue: of all, this must not be lost in a flood."""
        self._busy_answers = Bucket(ERRORS_PER_SECOND, BURST)
        """Of the link's worker."""
        self.dropped = 0
        """Events and commands that were not taken, because too many waited."""
        self._unsubscribe: Callable[[], None] | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="mqtt-bridge", daemon=True)

    # ---- any thread

    def start(self) -> None:
        """Subscribe and begin; call it before the link connects. Returns at once."""
        link = self._link
        link.subscribe(self.topics.command("+"), self._on_command, MAX_COMMAND_BYTES)
        link.subscribe(f"{self._settings.discovery_prefix}/status", self._on_status)
        for pattern in self.discovery.filters:
            link.subscribe(pattern, self._on_found, DISCOVERY_BYTES)
        for pattern in self._settings.ghosts:
            link.subscribe(pattern, self._on_ghost, DISCOVERY_BYTES)
        link.on_refused(self._on_refused)
        link.on_ready(self._on_ready)
        self._unsubscribe = self._service.hub.subscribe(self._on_event)
        self._thread.start()

    def close(self) -> None:
        """End; what stands at the broker stays, and the link's own `offline` says that nobody is there."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._closing = True
        if self._thread.is_alive():
            try:
                self._queue.put(None, timeout=2.0)
            except queue.Full:
                _LOG.warning("MQTT: %d messages wait and are not told", self._queue.qsize())
            self._thread.join(timeout=5.0)

    def _put(self, work: Callable[[], None]) -> bool:
        if self._closing:
            return False
        try:
            self._queue.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def _on_ready(self) -> None:
        """Waits for what it asks for: the link says `online` after what has been published by then."""
        if self._closing:
            return
        told = threading.Event()
        self._fresh.append(told)
        with contextlib.suppress(queue.Full):  # full: it is at work, and looks after each piece
            self._queue.put_nowait(lambda: None)
        if not told.wait(READY_S) and not self._closing:
            _LOG.warning("MQTT: online before the states were told; they follow")

    def _on_event(self, event: Event) -> None:
        self._put(lambda: self._event(event))

    def _on_command(self, message: Message) -> None:
        name = message.topic.rpartition("/")[2]
        if self._queue.qsize() < MAX_QUEUED_COMMANDS and self._put(lambda: self._command(name, message)):
            return
        if self._busy_answers.take(self._clock()):
            told = {"command": name[:64], "id": None, "code": "mqtt.busy", "message": "too much waits; try again"}
            self._tell(self.topics.error)(told)

    def _on_refused(self, refused: Refused) -> None:
        before, _, name = refused.topic.rpartition("/")
        if f"{before}/+" == self.topics.command("+"):
            code = "mqtt.too_large" if refused.size > MAX_COMMAND_BYTES else "mqtt.rate"
            self._put(lambda: self._refuse(name, code, refused.reason))

    def _on_status(self, message: Message) -> None:
        if message.payload == ONLINE:
            self._put(lambda: self._later(self._tell_all, self._birth_delay_s()))

    def _on_found(self, message: Message) -> None:
        # Our own messages come back too, without the mark.
        if message.retain:
            self._put(lambda: self._note_found(message))

    def _on_ghost(self, message: Message) -> None:
        if message.retain and message.payload:  # straight to the link, which keeps it until the broker has it
            self._link.publish(message.topic, REMOVED, kind=Kind.STATE, retain=True)

    def _tell(self, topic: str) -> Callable[[Answer], None]:
        def tell(answer: Answer) -> None:
            self._link.publish(topic, encode(answer), kind=Kind.EVENT)

        return tell

    # ---- the bridge's thread

    def _run(self) -> None:
        next_look_s = self._clock()
        while not self._closing:
            try:
                work = self._queue.get(timeout=self._wait_s(next_look_s))
                if work is None:
                    break
                work()
            except queue.Empty:
                pass
            except Exception:  # noqa: BLE001 - see below
                # One event or command that cannot be told must not end all that come after it.
                _LOG.exception("MQTT: something could not be told")
            next_look_s = self._round(next_look_s)
        self._router.speech.drop()

    def _round(self, next_look_s: float) -> float:
        try:
            if self._fresh:
                fresh = self._fresh.popleft()
                try:
                    self._ready()
                finally:
                    fresh.set()
            now_s = self._clock()
            self._router.tick(now_s)
            for due in [work for work, due_s in self._due_s.items() if now_s >= due_s]:
                del self._due_s[due]
                due()
            if now_s >= next_look_s:
                next_look_s = now_s + LOOK_S
                self._look()
            if self._queue.empty():
                self._publish_changes()
        except Exception:  # noqa: BLE001 - as above
            _LOG.exception("MQTT: the state could not be told")
            next_look_s = self._clock() + LOOK_S
        return next_look_s

    def _wait_s(self, next_look_s: float) -> float:
        due_s = min((next_look_s, *self._due_s.values()))
        wait_s = max(0.0, due_s - self._clock())
        return min(wait_s, BUSY_TICK_S) if self._router.busy else wait_s

    def _later(self, work: Callable[[], None], delay_s: float) -> None:
        """Once, however often it is asked for; the first time counts."""
        self._due_s.setdefault(work, self._clock() + delay_s)

    def _ready(self) -> None:
        """Connected, perhaps to a broker that has forgotten everything."""
        self._look()
        self._tell_all()
        if self._settings.ghosts:
            self._later(self._ghosts_gone, GHOSTS_S)

    def _ghosts_gone(self) -> None:
        link = self._link.state()
        if link.connected and link.queued == 0:
            self._settings.on_cleared()

    def _tell_all(self) -> None:
        """Discovery, then state."""
        self._begun = True
        self._told = self._wanted()
        self._retain(self._told.items())
        self._states.forget()
        self._publish_changes()

    def _note_found(self, message: Message) -> None:
        if len(self._found) < MAX_FOUND:
            self._found[message.topic] = message.payload
        self._due_s[self._mend] = self._clock() + SETTLE_S

    def _mend(self) -> None:
        """Turn what another version or setting left at the broker into what is wanted."""
        if not self._begun:
            self._later(self._mend, SETTLE_S)  # what stands can come before the link is ready
            return
        found, self._found = self._found, {}
        self._lead(found)

    def _lead(self, found: Mapping[str, bytes]) -> None:
        """From what stands to what is wanted, a step at a time."""
        farewells, wanted, removals = transition(self.discovery, found, self._told)
        for topic, payload in farewells:
            self._link.publish(topic, payload, kind=Kind.EVENT)
        if farewells:
            self._steps += [wanted, removals]
            self._later(self._next_step, STEP_S)
        else:
            self._retain((*wanted, *removals))

    def _next_step(self) -> None:
        link = self._link.state()
        if self._steps and link.connected and link.queued == 0:  # the broker has the step before
            self._retain(self._steps.pop(0))
        if self._steps:
            self._later(self._next_step, STEP_S)

    def _event(self, event: Event) -> None:
        told = event_message(event, transcripts=self._settings.transcripts)
        if told is not None:
            self._link.publish(self.topics.event(told[0]), encode(told[1]), kind=Kind.EVENT)
        self._view = apply_event(self._view, event)
        if isinstance(event, events.UtteranceEnded):
            self._view = replace(self._view, response_ms=_response_times(self._service))

    def _command(self, name: str, message: Message) -> None:
        if self._router.take(name, message.payload, retained=message.retain, now_s=self._clock()):
            self._look()

    def _refuse(self, name: str, code: str, reason: str) -> None:
        self._router.refuse(name, b"", code, reason, self._clock())

    def _look(self) -> None:
        """At what tells of itself by no event."""
        try:
            controls, timers = self._controls.view(), tuple(self._controls.timers())
        except ApplianceError as error:
            if not self._blind:  # once, not every second
                _LOG.warning("MQTT: volume, mute and timers cannot be looked at: %s", error)
            self._blind = True
            return
        self._blind = False
        now_s = self._clock()
        if self._looked_s is not None:
            for told in timer_events(self._view.timers, timers, now_s - self._looked_s):
                self._link.publish(self.topics.event("timer"), encode(told), kind=Kind.EVENT)
        self._looked_s = now_s
        open_sessions = self._service.sessions()
        # A page that is closed in mid-sentence tells of no end.
        phases = {name: phase for name, phase in self._view.phases.items() if open_sessions.get(name, IDLE) != IDLE}
        # How much waits changes with each message, and is nobody's news.
        link = replace(self._link.state(), queued=0)
        self._view = replace(
            self._view, controls=controls, timers=timers, phases=phases, link=link, untold=self.dropped
        )

    def _publish_changes(self) -> None:
        if not self._begun:
            return
        if self._told and self._view.controls != self._told_of:
            before, self._told = self._told, self._wanted()
            self._lead(before)
        self._retain(self._states.changes(state_payloads(ENTITIES, self.topics, self._view)).items())

    def _wanted(self) -> dict[str, bytes]:
        self._told_of = self._view.controls
        return discovery_messages(self.discovery, ENTITIES, self._view.controls)

    def _retain(self, messages: Iterable[Outgoing]) -> None:
        for topic, payload in messages:
            self._link.publish(topic, payload, kind=Kind.STATE, retain=True)


def _response_times(service: Service) -> tuple[int, ...]:
    """Of the newest utterances that had one, in ms, oldest first."""
    times: Sequence[float | None] = [trace.response_s for trace in service.traces()]
    return tuple(round(time_s * 1000) for time_s in times if time_s is not None)


def _engines(service: Service) -> dict[str, str]:
    """Task -> what runs it."""
    settled = service.wren.opener.settled
    return {task: f"{row.backend} {row.precision}" for task, row in settled.items()}
