"""The outbox against a plain model of its policies, through any history of connections."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.mqtt.outbox import Limits, Outbox, Outgoing
from appliance.mqtt.protocol import Kind

LIMITS = Limits(states=4, events=5, commands=2, total_bytes=60, one_bytes=12)
WINDOW = 3
TOPICS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
PAYLOADS = st.binary(max_size=14)


@dataclass
class Broker:
    """What has arrived, as a broker that counts would see it."""

    sent: list[Outgoing] = field(default_factory=list)
    acknowledged: list[Outgoing] = field(default_factory=list)
    connected: bool = False


class OutboxHistory(RuleBasedStateMachine):
    """Puts, acknowledgements and lost connections in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(LIMITS)
        self.broker = Broker()
        self.under_way: list[Outgoing] = []
        self.accepted_events: list[bytes] = []
        self.accepted_commands: list[bytes] = []
        self.latest: dict[str, bytes | None] = {}
        self.count = 0

    def _unique(self, payload: bytes) -> bytes:
        self.count += 1
        return b"%d:" % self.count + payload if len(payload) < 7 else payload

    @rule(topic=TOPICS, payload=PAYLOADS)
    def put_state(self, topic: str, payload: bytes) -> None:
        taken = self.outbox.put(topic, payload, Kind.STATE, True, connected=self.broker.connected)
        assert taken or len(payload) > LIMITS.one_bytes or self._full(payload) or len(self.latest) > LIMITS.states - 1
        if taken:
            self.latest[topic] = payload
        elif len(payload) <= LIMITS.one_bytes:
            self.latest[topic] = None  # nothing is promised any more

    @rule(payload=st.binary(max_size=4))
    def put_event(self, payload: bytes) -> None:
        payload = self._unique(payload)
        if self.outbox.put("event", payload, Kind.EVENT, False, connected=self.broker.connected):
            self.accepted_events.append(payload)
        else:
            assert self._full(payload)

    @rule(payload=st.binary(max_size=4))
    def put_command(self, payload: bytes) -> None:
        payload = self._unique(payload)
        taken = self.outbox.put("command", payload, Kind.COMMAND, False, connected=self.broker.connected)
        assert self.broker.connected or not taken
        if taken:
            self.accepted_commands.append(payload)

    def _full(self, payload: bytes) -> bool:
        return self.outbox.held_bytes + len(payload) > LIMITS.total_bytes

    @rule()
    def connect(self) -> None:
        self.broker.connected = True

    @precondition(lambda self: self.broker.connected)
    @rule()
    def take(self) -> None:
        items = self.outbox.take(WINDOW)
        self.under_way += items
        self.broker.sent += items
        assert len(self.under_way) <= WINDOW
        assert sum(item.kind is Kind.EVENT for item in self.under_way) <= 1

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(item)
        self.broker.acknowledged.append(item)
        self.outbox.acknowledged(item.number)

    @rule()
    def lose(self) -> None:
        self.broker.connected = False
        self.under_way.clear()
        self.outbox.lost()

    @invariant()
    def bounds_hold(self) -> None:
        assert self.outbox.queued <= LIMITS.states + LIMITS.events + LIMITS.commands + 2 * WINDOW
        assert 0 <= self.outbox.held_bytes <= LIMITS.total_bytes

    @invariant()
    def a_command_is_sent_once_at_most(self) -> None:
        sent = [item.payload for item in self.broker.sent if item.kind is Kind.COMMAND]
        assert len(sent) == len(set(sent))
        assert set(sent) <= set(self.accepted_commands)

    @invariant()
    def what_the_broker_has_is_never_sent_again(self) -> None:
        done = [item.number for item in self.broker.acknowledged]
        assert len(done) == len(set(done))

    def teardown(self) -> None:
        """A connection that holds at last: everything kept arrives, in order, and the newest state is the last word."""
        self.lose()
        self.connect()
        before = len(self.broker.acknowledged)
        while self.outbox.queued:
            self.take()
            for item in list(self.under_way):
                self.under_way.remove(item)
                self.broker.acknowledged.append(item)
                self.outbox.acknowledged(item.number)
        for kind in Kind:
            tail = [item.number for item in self.broker.acknowledged[before:] if item.kind is kind]
            assert tail == sorted(tail)
        assert self.outbox.held_bytes == 0
        events = [item for item in self.broker.acknowledged if item.kind is Kind.EVENT]
        assert len({item.payload for item in events}) == len(events)
        missing = len(self.accepted_events) - len(events)
        assert 0 <= missing <= self.outbox.dropped
        for topic, payload in self.latest.items():
            states = [item for item in self.broker.acknowledged if item.kind is Kind.STATE and item.topic == topic]
            if payload is not None:
                assert max(states, key=lambda item: item.number).payload == payload


TestOutboxHistory = OutboxHistory.TestCase
TestOutboxHistory.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def _fill(outbox: Outbox, kind: Kind, count: int) -> list[bool]:
    return [outbox.put(f"t{n}", b"%d" % n, kind, False, connected=True) for n in range(count)]


def _drained(outbox: Outbox) -> list[bytes]:
    """What a broker that acknowledges all at once is given, in order."""
    payloads = []
    while items := outbox.take(9):
        payloads += [item.payload for item in items]
        for item in items:
            outbox.acknowledged(item.number)
    return payloads


def test_of_too_many_events_the_oldest_are_dropped_and_counted() -> None:
    outbox = Outbox(Limits(events=3))
    assert all(_fill(outbox, Kind.EVENT, 5))
    assert _drained(outbox) == [b"2", b"3", b"4"]
    assert outbox.dropped == 2


def test_of_too_many_commands_the_newest_are_refused_and_none_waits_for_a_connection() -> None:
    outbox = Outbox(Limits(commands=2))
    assert _fill(outbox, Kind.COMMAND, 3) == [True, True, False]
    assert outbox.lost() == 2
    assert not outbox.put("t", b"", Kind.COMMAND, False, connected=False)
    assert (outbox.queued, outbox.dropped) == (0, 4)


def test_the_latest_state_wins_also_over_one_that_was_under_way() -> None:
    outbox = Outbox()
    outbox.put("s", b"old", Kind.STATE, True, connected=True)
    outbox.put("e", b"between", Kind.EVENT, False, connected=True)
    assert len(outbox.take(9)) == 2
    outbox.put("s", b"new", Kind.STATE, True, connected=True)
    outbox.lost()
    assert _drained(outbox) == [b"between", b"new"]
    assert outbox.dropped == 0


def test_what_was_under_way_goes_first_again_and_in_order() -> None:
    outbox = Outbox()
    _fill(outbox, Kind.STATE, 4)
    first = outbox.take(2)
    outbox.acknowledged(first[1].number)
    outbox.lost()
    assert _drained(outbox) == [b"0", b"2", b"3"]


def test_one_event_is_under_way_at_a_time_and_goes_again_when_the_connection_is_lost() -> None:
    outbox = Outbox()
    _fill(outbox, Kind.EVENT, 3)
    assert [item.payload for item in outbox.take(9)] == [b"0"]
    assert outbox.take(9) == []
    outbox.lost()
    assert _drained(outbox) == [b"0", b"1", b"2"]


def test_lanes_go_out_together_in_the_order_they_came() -> None:
    outbox = Outbox()
    for kind, topic in [
        (Kind.STATE, "a"),
        (Kind.EVENT, "b"),
        (Kind.STATE, "c"),
        (Kind.COMMAND, "d"),
        (Kind.EVENT, "e"),
    ]:
        outbox.put(topic, b"", kind, False, connected=True)
    outbox.put("a", b"again", Kind.STATE, True, connected=True)
    first = outbox.take(9)
    assert [item.topic for item in first] == ["b", "c", "d", "a"]
    outbox.acknowledged(first[0].number)
    assert [item.topic for item in outbox.take(9)] == ["e"]


def test_a_state_can_be_forgotten() -> None:
    outbox = Outbox()
    outbox.put("a", b"1", Kind.STATE, True, connected=False)
    outbox.forget("a")
    outbox.forget("b")
    assert (outbox.queued, outbox.held_bytes, outbox.take(9)) == (0, 0, [])


@pytest.mark.parametrize("kind", Kind)
def test_a_payload_that_is_too_large_is_refused(kind: Kind) -> None:
    outbox = Outbox(Limits(one_bytes=10))
    assert not outbox.put("t", bytes(11), kind, False, connected=True)
    assert outbox.put("t", bytes(10), kind, False, connected=True)
    assert (outbox.queued, outbox.dropped) == (1, 1)
