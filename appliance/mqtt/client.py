"""The link to the broker: one connection after another, in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from appliance.mqtt.backoff import FORGET_TAKEOVER_S, Backoff, Trouble
from appliance.mqtt.client_faults import LinkFault, VersionRefused
from appliance.mqtt.client_inbox import Inbox
from appliance.mqtt.client_session import VERSIONS, Session, Version, broker_of, target_of
from appliance.mqtt.client_topics import check_topic
from appliance.mqtt.outbox import Outbox, Outgoing
from appliance.mqtt.protocol import MAX_BYTES, OFFLINE, ONLINE, Handler, Kind, LinkState, Message, Refused

if TYPE_CHECKING:
    from appliance.settings import MqttSettings

__all__ = ["MqttClient"]

_LOG = logging.getLogger(__name__)

STEP_S: Final = 1.0
"""Longest sleep of the thread; a publish, and the network, wake it."""
GOODBYE_S: Final = 2.0
"""For what waits, and `offline` after it, to reach the broker when Wren stops."""
CLOSE_TIMEOUT_S: Final = 10.0
ECHO_TIMEOUT_S: Final = 5.0
"""Our own `online` comes back within moments, if we may read where we may write."""
UNSTABLE_S: Final = 60.0
"""For so long a new connection is told with what ended those before it."""
REASSERT_S: Final = 1.0
"""Between two corrections of the availability topic: whoever writes there again and again is not to be fought."""
MAX_DENIED: Final = 50


class MqttClient:
    """The `Link` that runs. Use: subscribe, `start`, `close`.

    Three threads never wait for one another: callers of `publish` put into the outbox; the link's thread owns the
    connection; handlers run on the inbox's worker.
    """

    def __init__(
        self, settings: MqttSettings, *, client_id: str, availability_topic: str, backoff: Backoff | None = None
    ) -> None:
        """`settings.host` must be set; `settings.client_id` goes before `client_id`.

        Raises `ValueError` for a wrong topic.
        """
        check_topic(availability_topic)
        self._settings = settings
        self._client_id = settings.client_id or client_id
        self._availability = availability_topic
        self._backoff = backoff or Backoff()
        self._inbox = Inbox()
        self._on_ready: tuple[Callable[[], None], ...] = ()
        self._lock = threading.Lock()  # of everything below
        self._outbox = Outbox()
        self._session: Session | None = None
        self._version: Version = ""
        self._connections = 0
        self._connected_s = 0.0
        self._reason = "not connected yet"
        self._told: set[str] = set()
        self._denied: dict[str, None] = {}
        self._avoided: frozenset[str] = frozenset()
        self._new_filters: list[str] = []
        self._announced_s: float | None = None
        self._echoed = False
        self._asserted_s = 0.0
        self._reassert_s: float | None = None
        self._only_old = False
        self._nudged = False
        self._faults = 0
        self._stop = threading.Event()
        self._waker, self._wake = socket.socketpair()
        self._waker.setblocking(False)
        self._wake.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="mqtt-link", daemon=True)

    @property
    def availability_topic(self) -> str:
        """See `Link`."""
        return self._availability

    @property
    def client_id(self) -> str:
        """Our name at the broker."""
        return self._client_id

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._inbox.start()
        self._thread.start()

    def close(self) -> None:
        """Say what still waits, then `offline`, and end both threads; gives up on the broker after 2 s."""
        self._stop.set()
        self._nudge()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)
        self._inbox.close()
        if not self._thread.is_alive():
            self._waker.close()
            self._wake.close()

    def publish(self, topic: str, payload: bytes, *, kind: Kind, retain: bool = False) -> bool:
        """See `Link`. Topics that the broker denied when it last put us out are refused for this connection."""
        check_topic(topic)
        with self._lock:
            if topic in self._avoided:
                return False
            connected = self._session is not None
            taken = self._outbox.put(topic, payload, kind, retain, connected=connected)
        if taken and connected:
            self._nudge()
        return taken

    def subscribe(self, topic_filter: str, handler: Handler, max_bytes: int = MAX_BYTES) -> None:
        """See `Link`."""
        with self._lock:
            self._inbox.subscribe(topic_filter, handler, max_bytes)
            if self._session is not None:
                self._new_filters.append(topic_filter)
        self._nudge()

    def on_ready(self, callback: Callable[[], None]) -> None:
        """See `Link`."""
        with self._lock:
            self._on_ready += (callback,)

    def on_refused(self, callback: Callable[[Refused], None]) -> None:
        """See `Link`."""
        self._inbox.on_refused(callback)

    def state(self) -> LinkState:
        """See `Link`."""
        with self._lock:
            return LinkState(
                connected=self._session is not None,
                broker=broker_of(self._settings),
                reason=self._reason if self._session is None else self._oddity(),
                denied=tuple(self._denied),
                queued=self._outbox.queued,
                dropped=self._outbox.dropped,
                reconnects=max(0, self._connections - 1),
                refused=self._inbox.refused,
                faults=self._inbox.faults + self._faults,
                protocol=self._version,
            )

    def _oddity(self) -> str:
        """What is wrong with a connection that stands."""
        now_s = time.monotonic()
        if self._backoff.times(Trouble.TAKEN_OVER) and now_s - self._connected_s < FORGET_TAKEOVER_S:
            return f"another client came with our id {self._client_id}; give one of the two its own"
        if self._backoff.times(Trouble.UNSTABLE) > 1 and now_s - self._connected_s < UNSTABLE_S:
            return f"connections ended soon, time after time; does another client use our id {self._client_id}?"
        if not self._echoed and self._announced_s is not None and now_s - self._announced_s > ECHO_TIMEOUT_S:
            base = self._availability.rpartition("/")[0]
            return f"the broker takes what we say but does not let us read it; allow reading of {base}/#"
        return f"the broker denies {', '.join(self._denied)}; look at its access list" if self._denied else ""

    # What follows runs on the link's thread.

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._connect_and_serve()
                return
            except LinkFault as fault:
                wait_s = self._failed(fault)
            except Exception:  # noqa: BLE001 - a mistake of ours must not end the link for good
                _LOG.exception("the MQTT link failed; it starts anew")
                self._faults += 1
                wait_s = self._failed(LinkFault(Trouble.UNSTABLE, "the link failed inside Wren; see the log"))
            self._stop.wait(wait_s)

    def _failed(self, fault: LinkFault) -> float:
        trouble = fault.trouble
        reason = str(fault)
        wait_s = self._backoff.failed(trouble)
        if trouble is Trouble.UNSTABLE and self._backoff.times(trouble) > 1:
            reason += f" soon after it began, time after time; does another client use our id {self._client_id}?"
        with self._lock:
            self._reason = reason
        if reason not in self._told:  # once: a broker that is off for a day is one line
            self._told.add(reason)
            _LOG.warning("no MQTT: %s", reason)
        return wait_s

    def _connect_and_serve(self) -> None:
        """One connection. Returns when Wren stops; raises `LinkFault` when it ends otherwise."""
        session = self._open()
        with self._lock:
            self._session, self._version = session, session.version
            self._connections += 1
            self._connected_s = time.monotonic()
            # Some brokers put out whoever says what is denied: once that has happened, it is not said again.
            self._avoided = frozenset(self._denied) if self._backoff.times(Trouble.UNSTABLE) else frozenset()
            self._denied = dict.fromkeys(self._avoided)
            self._new_filters.clear()
            self._announced_s, self._echoed, self._reassert_s = None, False, None
            self._outbox.forget(self._availability)  # discovery and state come before `online`
            filters = self._inbox.filters
        _LOG.info("connected to %s with MQTT %s", broker_of(self._settings), session.version)
        politely = False
        try:
            session.subscribe([self._availability, *filters])
            announced = False
            while not self._stop.is_set():
                if self._told and time.monotonic() - self._connected_s > UNSTABLE_S:
                    self._told.clear()  # a new story from here on
                self._exchange(session, STEP_S)
                if session.settled and not announced:
                    announced = True
                    self._deny(session.denied)
                    self._inbox.call(lambda: self._announce(session))
            self._say_goodbye(session)
            politely = True
        except LinkFault as fault:
            held_s = time.monotonic() - self._connected_s
            raise LinkFault(self._backoff.ended(fault.trouble, held_s), str(fault)) from None
        finally:
            with self._lock:
                self._session = None
                self._reason = "closed" if politely else ""
                given_up = self._outbox.lost()
            session.close(politely=politely)
            if given_up:
                _LOG.warning("%d MQTT commands were given up with the connection", given_up)

    def _open(self) -> Session:
        """Connect with MQTT 5, or with 3.1.1 where the broker takes no other."""
        target = target_of(self._settings, self._client_id, self._availability)
        for version in VERSIONS[1:] if self._only_old else VERSIONS:
            session = Session(target, version, self._wake, self._received, self._answered)
            try:
                session.open(self._stop.is_set)
            except VersionRefused as fault:
                self._only_old |= fault.said
                if version == VERSIONS[-1]:
                    self._only_old = False
                    raise
            else:
                return session
        raise AssertionError("there is always a last version")

    def _exchange(self, session: Session, timeout_s: float) -> None:
        """Send what may be sent, take what has come."""
        now_s = time.monotonic()
        self._nudged = False  # whoever nudges from here on wakes the step below
        with self._lock:
            if self._reassert_s is not None and now_s >= self._reassert_s:
                self._asserted_s, self._reassert_s = now_s, None
                self._outbox.put(self._availability, ONLINE, Kind.STATE, True, connected=True)
            items: Sequence[Outgoing] = self._outbox.take(session.window)
            filters = list(self._new_filters)
            self._new_filters.clear()
        for item in items:
            session.send(item)
        if filters:
            session.subscribe(filters)
        session.step(timeout_s)
        if session.denied - self._denied.keys():
            self._deny(session.denied)

    def _say_goodbye(self, session: Session) -> None:
        with self._lock:
            self._announced_s = self._reassert_s = None
            self._outbox.put(self._availability, OFFLINE, Kind.STATE, True, connected=True)
        deadline_s = time.monotonic() + GOODBYE_S
        while self._outbox.queued and time.monotonic() < deadline_s:
            self._exchange(session, 0.05)

    def _answered(self, item: Outgoing, refused: str | None) -> None:
        with self._lock:
            self._outbox.acknowledged(item.number, taken=refused is None)
        if refused is not None:
            self._deny({item.topic})

    def _deny(self, topics: set[str]) -> None:
        with self._lock:
            new = sorted(topics - self._denied.keys())[: MAX_DENIED - len(self._denied)]
            self._denied.update(dict.fromkeys(new))
        for topic in new:
            _LOG.warning("the MQTT broker denies %s; look at its access list", topic)

    def _received(self, message: Message) -> None:
        if message.topic == self._availability:
            self._own_availability(message.payload)
        else:
            self._inbox.deliver(message)

    def _own_availability(self, payload: bytes) -> None:
        """Our own word came back; or the will of an earlier connection, published late, says that we are off."""
        with self._lock:
            if self._announced_s is None:
                return
            if payload == ONLINE:
                self._echoed = True
                return
            self._reassert_s = max(time.monotonic(), self._asserted_s + REASSERT_S)

    # On the worker.

    def _announce(self, session: Session) -> None:
        for callback in self._on_ready:
            try:
                callback()
            except Exception:  # noqa: BLE001 - one that fails must not keep the others, and us, from being seen
                self._faults += 1
                _LOG.exception("an MQTT ready callback failed")
        with self._lock:
            if self._session is not session or self._stop.is_set():
                return
            self._outbox.put(self._availability, ONLINE, Kind.STATE, True, connected=True)
            self._announced_s = time.monotonic()
        self._nudge()

    def _nudge(self) -> None:
        if self._nudged:
            return
        self._nudged = True
        with contextlib.suppress(OSError):  # full: it will wake as it is; closed: nobody is there to wake
            self._waker.send(b"\0")
