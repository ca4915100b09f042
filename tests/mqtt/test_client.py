"""The link against brokers that a real one will not play: of another age, hostile, silent; and its parts alone."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from appliance.mqtt.backoff import Backoff, Trouble
from appliance.mqtt.client import MqttClient
from appliance.mqtt.client_faults import LinkFault
from appliance.mqtt.client_inbox import MAX_WAITING, Inbox
from appliance.mqtt.client_topics import check_filter, check_topic, matches
from appliance.mqtt.protocol import Kind, Link, Message, Refused
from appliance.mqtt.tls import tls_context
from appliance.settings import MqttSettings
from tests.peers.mosquitto import free_port, until

CONNECT, PUBLISH, SUBSCRIBE, PINGREQ = 1, 3, 8, 12
Play = Callable[["FakeConnection"], None]


class FakeConnection:
    """One connection at the fake broker."""

    def __init__(self, connection: socket.socket, level: int) -> None:
        self.socket = connection
        self.level = level

    def send(self, text: str) -> None:
        """Hexadecimal bytes."""
        self.socket.sendall(bytes.fromhex(text))

    def welcome(self) -> None:
        """CONNACK."""
        self.send("20 03 00 00 00" if self.level == 5 else "20 02 00 00")

    def read(self) -> tuple[int, bytes]:
        """Type and body of the next packet. Raises `OSError` at the end."""
        kind = self._exactly(1)[0] >> 4
        length = shift = 0
        while True:
            byte = self._exactly(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return kind, self._exactly(length)

    def serve(self) -> None:
        """Answer as a broker does, as far as the link needs it: grants all, passes nothing on. (No events: QoS 2.)"""
        tail = "00" if self.level == 5 else ""
        while True:
            kind, body = self.read()
            if kind == SUBSCRIBE:
                self.send(f"90 {3 + bool(tail):02x} {body[:2].hex()} {tail} 01")
            elif kind == PUBLISH:
                length = int.from_bytes(body[:2], "big")
                self.send(f"40 02 {body[2 + length : 4 + length].hex()}")
            elif kind == PINGREQ:
                self.send("d0 00")

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise OSError("the end")
            data += piece
        return data


class FakeBroker:
    """Reads CONNECT, then plays what it is given."""

    def __init__(self, play: Play) -> None:
        self.levels: list[int] = []
        self._play = play
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="fake-broker", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="fake-broker", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            peer = FakeConnection(connection, 0)
            try:
                kind, body = peer.read()
                assert kind == CONNECT
                peer.level = body[6]
                self.levels.append(peer.level)
                self._play(peer)
            except OSError:
                return


@contextmanager
def linked(play: Play, **changes: Any) -> Iterator[tuple[MqttClient, FakeBroker]]:
    broker = FakeBroker(play)
    settings = MqttSettings(host="127.0.0.1", port=broker.port).model_copy(update=changes)
    client = MqttClient(settings, client_id="wren-1", availability_topic="wren/box/availability")
    client.start()
    try:
        yield client, broker
    finally:
        client.close()
        broker.close()


def _old(said: bool) -> Play:
    def play(peer: FakeConnection) -> None:
        if peer.level == 4:
            peer.welcome()
            peer.serve()
        elif said:
            peer.send("20 02 00 01")

    return play


@pytest.mark.parametrize("said", [True, False])
def test_a_broker_of_the_former_version_is_taken_as_it_is(said: bool) -> None:
    with linked(_old(said)) as (client, broker):
        ready = threading.Event()
        client.on_ready(ready.set)
        assert ready.wait(10.0)
        client.publish("wren/box/state", b"idle", kind=Kind.STATE, retain=True)
        until(lambda: not client.state().queued, "acknowledged")
        assert client.state().protocol == "3.1.1"
        assert broker.levels == [5, 4]


@pytest.mark.parametrize(
    "sent",
    ["", "00", "ff ff ff ff ff", "20 ff ff ff 7f 00", "20 03 00 00 7f", "20 03 00 63 00", "d0 00", "30 05 00 00 ff ff"],
)
def test_what_is_no_broker_is_told_and_not_hammered(sent: str) -> None:
    def play(peer: FakeConnection) -> None:
        peer.send(sent)
        peer.socket.shutdown(socket.SHUT_WR)
        peer.read()

    with linked(play) as (client, broker):
        until(lambda: f"127.0.0.1:{broker.port}" in client.state().reason, "told")
        until(lambda: len(broker.levels) >= 2, "tried again")
        state = client.state()
        assert not state.connected
        time.sleep(0.5)
        assert len(broker.levels) <= 8
        assert state.faults == 0


def test_after_the_welcome_garbage_ends_the_connection_and_not_the_link() -> None:
    connections = iter(range(100))

    def play(peer: FakeConnection) -> None:
        peer.welcome()
        if next(connections) < 2:
            peer.socket.sendall(b"\xf0" + os.urandom(4000))
            time.sleep(0.2)
        else:
            peer.serve()

    with linked(play) as (client, _):
        until(lambda: client.state().reconnects >= 2 and client.state().connected, "connected at last")


def test_a_takeover_is_reported_and_waited_for() -> None:
    def play(peer: FakeConnection) -> None:
        peer.welcome()
        peer.read()
        peer.send("e0 02 8e 00")
        peer.read()

    with linked(play) as (client, broker):
        until(lambda: "another client came" in client.state().reason, "told")
        assert "our id wren-1" in client.state().reason
        time.sleep(0.8)
        assert len(broker.levels) == 1


def test_a_broker_that_acknowledges_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.mqtt.client_session.ANSWER_TIMEOUT_S", 0.3)

    def play(peer: FakeConnection) -> None:
        peer.welcome()
        while True:
            peer.read()

    with linked(play) as (client, _):
        until(lambda: "stopped answering" in client.state().reason, "told")


def test_without_a_connection_states_and_events_wait_and_commands_are_refused() -> None:
    settings = MqttSettings(host="127.0.0.1", port=free_port())
    client: Link = MqttClient(settings, client_id="wren-1", availability_topic="wren/box/availability")
    assert client.publish("s", b"1", kind=Kind.STATE)
    assert client.publish("s", b"2", kind=Kind.STATE)
    assert client.publish("e", b"1", kind=Kind.EVENT)
    assert not client.publish("c", b"1", kind=Kind.COMMAND)
    state = client.state()
    assert (state.connected, state.queued, state.dropped) == (False, 2, 1)
    with pytest.raises(ValueError, match="wildcard"):
        client.publish("a/#", b"", kind=Kind.STATE)


def test_a_ready_callback_that_fails_keeps_nobody_from_being_seen() -> None:
    def play(peer: FakeConnection) -> None:
        peer.welcome()
        peer.serve()

    with linked(play) as (client, _):
        seen = threading.Event()
        client.on_ready(lambda: 1 // 0 and None)
        client.on_ready(seen.set)
        assert seen.wait(10.0)
        until(lambda: client.state().faults == 1 and not client.state().queued, "online was said")


def test_closing_is_quick_whatever_the_broker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.mqtt.client.GOODBYE_S", 0.2)

    def play(peer: FakeConnection) -> None:
        peer.welcome()
        peer.socket.recv(1)
        time.sleep(5.0)

    with linked(play) as (client, _):
        until(lambda: client.state().connected, "connected")
        start_s = time.monotonic()
        client.close()
        assert time.monotonic() - start_s < 4.0
        names = {thread.name for thread in threading.enumerate()}
        assert not {"mqtt-link", "mqtt-worker"} & names


TEXTS = st.text(st.sampled_from("ab/+#$"), max_size=8)


@given(TEXTS, TEXTS)
def test_matching_agrees_with_paho(topic_filter: str, topic: str) -> None:
    from paho.mqtt.client import topic_matches_sub

    try:
        check_filter(topic_filter)
        check_topic(topic)
    except ValueError:
        return
    assert matches(topic_filter, topic) == topic_matches_sub(topic_filter, topic)


@pytest.mark.parametrize("wrong", ["", "a+", "a/#/b", "#a", "a/b+/c", "x" * 2000, "a\0b", "\ud800"])
def test_a_wrong_filter_is_a_mistake_of_the_caller(wrong: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says its own
        check_filter(wrong)


def test_a_flood_on_one_filter_is_bounded_and_costs_no_other() -> None:
    inbox = Inbox()
    got: list[str] = []
    refused: list[Refused] = []
    inbox.subscribe("flood/#", lambda message: got.append(message.topic), 100)
    inbox.subscribe("calm", lambda message: got.append(message.topic), 100)
    inbox.on_refused(refused.append)
    for _ in range(MAX_WAITING + 500):
        inbox.deliver(Message("flood/x", b"", False))
    inbox.deliver(Message("flood/y", bytes(101), False))
    inbox.deliver(Message("calm", b"", False))
    inbox.start()
    until(lambda: "calm" in got, "the calm one")
    inbox.close()
    assert got.count("flood/x") == MAX_WAITING
    assert inbox.refused == 501
    assert 0 < len(refused) <= 20
    assert "too many" in refused[0].reason


def test_a_too_large_message_reaches_those_who_want_to_hear_of_it_only() -> None:
    inbox = Inbox()
    got: list[Message] = []
    refused: list[Refused] = []
    inbox.subscribe("a", got.append, 10)
    inbox.on_refused(refused.append)
    inbox.start()
    inbox.deliver(Message("a", bytes(11), True))
    inbox.deliver(Message("a", bytes(10), True))
    until(lambda: got, "the one that fits")
    inbox.close()
    assert refused == [Refused("a", 11, "too large: 11 bytes, at most 10")]
    assert got == [Message("a", bytes(10), True)]
    with pytest.raises(ValueError, match="already"):
        inbox.subscribe("a", got.append, 10)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ca_file": Path("/x")}, "mqtt.tls is off"),
        ({"tls": True, "client_key": Path("/x")}, "without mqtt.client_certificate"),
        (
            {"tls": True, "ca_file": Path("/nowhere/ca.pem")},
            r"mqtt.ca_file \(/nowhere/ca.pem\) cannot be used: No such",
        ),
        ({"tls": True, "ca_file": Path(__file__)}, "cannot be used"),
    ],
)
def test_certificates_that_do_not_go_together_are_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(LinkFault, match=told) as caught:
        tls_context(MqttSettings().model_copy(update=changes))
    assert caught.value.trouble is Trouble.CERTIFICATE


def test_a_password_without_a_user_is_told_and_not_shown() -> None:
    settings = MqttSettings(host="127.0.0.1", port=free_port(), password=SecretStr("hunter2"))
    client = MqttClient(settings, client_id="x", availability_topic="x/a", backoff=Backoff(lambda: 0.0))
    client.start()
    until(lambda: "mqtt.username" in client.state().reason, "told")
    client.close()
    assert "hunter2" not in repr(client.state())
