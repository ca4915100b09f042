"""One connection over paho, from CONNECT to its end, driven by the link's own thread.

paho is used for its packets only: its threads, its reconnecting and its queue are not. A new client is made for every
connection, so nothing is ever sent again behind the outbox's back. All callbacks run inside `open` and `step`.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from appliance.mqtt.backoff import Trouble
from appliance.mqtt.client_faults import (
    LinkFault,
    VersionRefused,
    fault_of_connack,
    fault_of_disconnect,
    fault_of_error,
)
from appliance.mqtt.outbox import Outgoing
from appliance.mqtt.protocol import OFFLINE, Kind, Message
from appliance.mqtt.tls import tls_context

if TYPE_CHECKING:
    import ssl

    from paho.mqtt.client import Client
    from pydantic import SecretStr

    from appliance.settings import MqttSettings

__all__ = ["VERSIONS", "Session", "Target", "Version", "broker_of", "target_of"]

CONNECT_TIMEOUT_S: Final = 4.0
"""For TCP and TLS each, and for the broker's answer to CONNECT."""
ANSWER_TIMEOUT_S: Final = 5.0
"""A broker that owes an answer and sends nothing for so long is gone, whatever TCP says: the half-open connection."""
KEEPALIVE_S: Final = 10
"""Silence after which the broker is pinged; after as much again without an answer it is gone. By 1.5 times this the
broker tells the others that we are."""
WINDOW: Final = 16
"""Messages under way; brokers allow 20 and more."""
MAX_PACKET_BYTES: Final = 1 << 20
"""What a broker of MQTT 5 may send us; it drops what is larger."""
FAILURE: Final = 0x80
"""Reason codes from here on are failures."""
QOS: Final = {Kind.STATE: 1, Kind.EVENT: 2, Kind.COMMAND: 1}
"""Events with 2: an event that comes twice is two events. Brokers pass it on only once we have released it, so what a
broker that hangs, or a dead link, has swallowed can be sent again and still comes once."""

PORT, TLS_PORT = 1883, 8883

Version = str
"""`5` or `3.1.1`."""
VERSIONS: Final[tuple[Version, ...]] = ("5", "3.1.1")
"""In the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, and as whom."""

    host: str
    port: int
    username: str | None
    password: SecretStr | None
    tls: ssl.SSLContext | None
    client_id: str
    will_topic: str | None
    broker: str
    """For people."""


def target_of(settings: MqttSettings, client_id: str, will_topic: str | None) -> Target:
    """Where the settings lead. Reads the certificates. Raises `LinkFault` where they, or the credentials, cannot do."""
    if settings.password is not None and settings.username is None:
        raise LinkFault(Trouble.REFUSED, "mqtt.password is set without mqtt.username; set both")
    return Target(
        host=_host(settings),
        port=_port(settings),
        username=settings.username,
        password=settings.password,
        tls=tls_context(settings),
        client_id=client_id,
        will_topic=will_topic,
        broker=broker_of(settings),
    )


def broker_of(settings: MqttSettings) -> str:
    """The broker as people are told of it: `host:port`, and `(TLS)` where it is."""
    host = _host(settings)
    return f"{f'[{host}]' if ':' in host else host}:{_port(settings)}{' (TLS)' if settings.tls else ''}"


def _host(settings: MqttSettings) -> str:
    return settings.host or "localhost"


def _port(settings: MqttSettings) -> int:
    return settings.port or (TLS_PORT if settings.tls else PORT)


class Session:
    """Use: `open`, then `send`, `subscribe` and `step` over and over until `LinkFault`, at last `close`."""

    def __init__(
        self,
        target: Target,
        version: Version,
        wake: socket.socket | None,
        on_message: Callable[[Message], None],
        on_answer: Callable[[Outgoing, str | None], None],
    ) -> None:
        """`wake` (if any) becoming readable ends a `step`. `on_answer` gets a message and why the broker refused it, or
        None."""
        self._target = target
        self.version = version
        self._wake = wake
        self._on_message = on_message
        self._on_answer = on_answer
        self._client = self._make()
        self._fault: LinkFault | None = None
        self._connected = False
        self._sent: dict[int, Outgoing] = {}
        self._asked: dict[int, str] = {}
        self._answer_due_s: float | None = None
        self._max_qos = 2
        self._may_retain = True
        self.window = WINDOW
        self.denied: set[str] = set()
        """Filters that the broker refused."""

    @property
    def settled(self) -> bool:
        """Whether all subscriptions were answered."""
        return not self._asked

    def open(self, stopping: Callable[[], bool]) -> None:
        """Connect and wait for the broker's word. Raises `LinkFault`, `VersionRefused` among them, and closes."""
        try:
            self._open(stopping)
        except BaseException:  # raised again: whatever it is (Ctrl-C too), the socket must not stay open
            self.close(politely=False)
            raise

    def subscribe(self, filters: Iterable[str]) -> None:
        """Ask for these."""
        for topic_filter in filters:
            _, mid = self._client.subscribe(topic_filter, qos=min(1, self._max_qos))
            if mid is not None:
                self._asked[mid] = topic_filter
                self._expect_answer()

    def send(self, item: Outgoing) -> None:
        """Hand a message to the broker."""
        qos = min(QOS[item.kind], self._max_qos)
        sent = self._client.publish(item.topic, item.payload, qos=qos, retain=item.retain and self._may_retain)
        if qos == 0:
            self._on_answer(item, None)  # a broker that gives no receipts: this is all there is to know
        else:
            self._sent[sent.mid] = item
            self._expect_answer()

    def step(self, timeout_s: float) -> None:
        """Wait for the network, or to be woken, and do what is due. Raises `LinkFault` once the connection is over."""
        try:
            self._step(timeout_s)
        except LinkFault:
            raise
        except Exception as error:  # noqa: BLE001 - what a broken or hostile broker sends must not end the thread
            self._fault = self._fault or fault_of_error(error, self._target.broker)
        if self._fault is not None:
            raise self._fault
        if self._answer_due_s is not None and time.monotonic() > self._answer_due_s:
            raise LinkFault(Trouble.NETWORK, f"{self._target.broker} has stopped answering")

    def close(self, *, politely: bool) -> None:
        """End it; politely means that the broker is not to publish the will."""
        client = self._client
        client.on_disconnect = None
        if politely and self._connected:
            client.disconnect()
        connection = client.socket()
        if connection is not None:
            connection.close()

    def _open(self, stopping: Callable[[], bool]) -> None:
        target = self._target
        try:
            self._client.connect(target.host, target.port, keepalive=KEEPALIVE_S, **self._connect_options())
        except Exception as error:  # noqa: BLE001 - ssl, socket, idna, paho: each raises its own; all mean this
            raise fault_of_error(error, target.broker) from None
        deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
        while not self._connected:
            if stopping() or time.monotonic() > deadline_s:
                raise LinkFault(
                    Trouble.NETWORK, f"{target.broker} takes the connection but says nothing; does it hang?"
                )
            self.step(0.1)

    def _make(self) -> Client:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        target, is_5 = self._target, self.version == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=target.client_id,
            # Nothing is kept at the broker for us: a command from an hour ago is not to be carried out now.
            clean_session=None if is_5 else True,
            protocol=MQTTProtocolVersion.MQTTv5 if is_5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        if target.username is not None:
            password = target.password.get_secret_value() if target.password is not None else None
            client.username_pw_set(target.username, password)
        if target.tls is not None:
            client.tls_set_context(target.tls)
        if target.will_topic is not None:
            client.will_set(target.will_topic, OFFLINE, qos=1, retain=True)
        client.on_socket_open = _send_at_once
        client.on_connect = self._connack
        client.on_disconnect = self._disconnected
        client.on_subscribe = self._suback
        client.on_publish = self._puback
        client.on_message = self._message
        return client

    def _connect_options(self) -> dict[str, Any]:
        if self.version != "5":
            return {}
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = MAX_PACKET_BYTES
        return {"clean_start": True, "properties": properties}

    def _step(self, timeout_s: float) -> None:
        client = self._client
        connection = client.socket()
        if connection is None:
            self._fault = self._fault or self._lost()
            return
        buffered = getattr(connection, "pending", lambda: 0)() > 0  # decrypted already: poll would not see it
        poll = select.poll()
        poll.register(connection, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
        if self._wake is not None:
            poll.register(self._wake, select.POLLIN)
        ready = dict(poll.poll(0 if buffered else timeout_s * 1000.0))
        if self._wake is not None and self._wake.fileno() in ready:
            _drain(self._wake)
        happened = ready.get(connection.fileno(), 0)
        if buffered or happened & ~select.POLLOUT:
            client.loop_read()
        if client.want_write():
            client.loop_write()
        client.loop_misc()

    def _lost(self) -> LinkFault:
        broker = self._target.broker
        if not self._connected:
            return VersionRefused(f"{broker} ends the connection without an answer; is it a broker?", said=False)
        return LinkFault(Trouble.NETWORK, f"the connection to {broker} was lost")

    def _expect_answer(self) -> None:
        if self._answer_due_s is None:
            self._answer_due_s = time.monotonic() + ANSWER_TIMEOUT_S

    def _answered(self) -> None:
        waiting = self._sent or self._asked
        self._answer_due_s = time.monotonic() + ANSWER_TIMEOUT_S if waiting else None

    def _connack(self, _client: object, _data: object, _flags: object, reason: Any, properties: Any) -> None:
        if reason.value >= FAILURE:
            target = self._target
            self._fault = fault_of_connack(reason.value, str(reason), target.broker, target.client_id)
            return
        self._connected = True
        self._max_qos = getattr(properties, "MaximumQoS", 2)
        self._may_retain = bool(getattr(properties, "RetainAvailable", 1))
        self.window = min(WINDOW, getattr(properties, "ReceiveMaximum", WINDOW))

    def _disconnected(self, _client: object, _data: object, flags: Any, reason: Any, _properties: object) -> None:
        if self._fault is not None:
            return
        if flags.is_disconnect_packet_from_server:
            target = self._target
            self._fault = fault_of_disconnect(reason.value, str(reason), target.broker, target.client_id)
        else:
            self._fault = self._lost()

    def _suback(self, _client: object, _data: object, mid: int, reasons: Any, _properties: object) -> None:
        topic_filter = self._asked.pop(mid, None)
        if topic_filter is not None and any(reason.value >= FAILURE for reason in reasons):
            self.denied.add(topic_filter)
        self._answered()

    def _puback(self, _client: object, _data: object, mid: int, reason: Any, _properties: object) -> None:
        item = self._sent.pop(mid, None)
        self._answered()
        if item is not None:
            self._on_answer(item, str(reason).lower() if reason.value >= FAILURE else None)

    def _message(self, _client: object, _data: object, message: Any) -> None:
        self._answered()  # in a flood, acknowledgements come late, but they come
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # matches no filter of ours
        self._on_message(Message(topic, bytes(message.payload), bool(message.retain)))


def _send_at_once(_client: object, _data: object, connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _drain(wake: socket.socket) -> None:
    try:
        while wake.recv(4096):
            pass
    except BlockingIOError:
        return
