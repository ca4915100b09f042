"""What waits to go out, and what went out but is not acknowledged. Pure: no threads, no clock, no I/O.

Ours, because what a client library keeps while there is no connection knows nothing of what a message is for, and a
broker drops what is too much without a word.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from appliance.mqtt.protocol import Kind

__all__ = ["Limits", "Outbox", "Outgoing"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may wait."""

    states: int = 2000
    """Topics. Some 40 entities with discovery and state are 100; whoever needs more than this has a leak."""
    events: int = 500
    commands: int = 32
    total_bytes: int = 8 << 20
    one_bytes: int = 256 << 10
    """Of one payload; Home Assistant's own page of a big device is some 30 KiB."""


LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message on its way."""

    number: int
    """Grows with every message: the order in which they go out."""
    topic: str
    payload: bytes
    kind: Kind
    retain: bool


class Outbox:
    """Three lanes, one a kind: the order holds within each, and between them as far as nothing has to wait.

    Of events only one is under way at a time. Whether the broker has passed on what it did not acknowledge is not to
    be known when it dies, so that one may come twice; all others come once.

    A message is *waiting* until `take` gives it, then *under way* until `acknowledged`. When the connection ends,
    `lost` puts what was under way back in front, except commands, which are given up, and states that a newer one
    has replaced.
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._number = 0
        self._bytes = 0
        self._states: OrderedDict[str, Outgoing] = OrderedDict()
        # Bounded by `limits`, not by `maxlen`: what falls out has to be counted, and its bytes given back.
        self._events: deque[Outgoing] = deque()
        self._commands: deque[Outgoing] = deque()
        self._under_way: OrderedDict[int, Outgoing] = OrderedDict()
        self._event_under_way = False
        self.dropped = 0
        """Messages that were refused or given up."""

    def put(self, topic: str, payload: bytes, kind: Kind, retain: bool, *, connected: bool) -> bool:
        """Add a message; False means refused. A replaced state is not counted as dropped: the newer one says it."""
        limits, size = self._limits, len(payload)
        if size > limits.one_bytes:
            return self._refuse()
        old = self._states.pop(topic, None) if kind is Kind.STATE else None
        freed = len(old.payload) if old is not None else 0
        while kind is Kind.EVENT and self._events and self._too_many_events(size):
            self._bytes -= len(self._events.popleft().payload)
            self.dropped += 1
        full = self._bytes - freed + size > limits.total_bytes
        if kind is Kind.STATE:
            full |= len(self._states) >= limits.states
        elif kind is Kind.COMMAND:
            full |= not connected or len(self._commands) >= limits.commands
        if full:
            if old is not None:  # what it said is out of date; saying it would be wrong
                self._bytes -= freed
            return self._refuse()
        self._number += 1
        self._bytes += size - freed
        self._add(Outgoing(self._number, topic, payload, kind, retain))
        return True

    def forget(self, topic: str) -> None:
        """A state that waits is not to be said any more."""
        old = self._states.pop(topic, None)
        self._bytes -= len(old.payload) if old is not None else 0

    def take(self, window: int) -> list[Outgoing]:
        """The next messages to send, so that at most `window` are under way."""
        taken: list[Outgoing] = []
        while len(self._under_way) < window:
            heads = list(self._heads())
            if not heads:
                break
            item = min(heads, key=lambda head: head.number)
            self._remove(item)
            self._under_way[item.number] = item
            self._event_under_way |= item.kind is Kind.EVENT
            taken.append(item)
        return taken

    def acknowledged(self, number: int, *, taken: bool = True) -> None:
        """The broker has it, or said that it never will (`taken` False: dropped); unknown numbers are ignored."""
        item = self._under_way.pop(number, None)
        if item is not None:
            self._event_under_way &= item.kind is not Kind.EVENT
            self._bytes -= len(item.payload)
            self.dropped += not taken

    def lost(self) -> int:
        """The connection ended; gives how many commands were given up."""
        back = sorted((*self._under_way.values(), *self._states.values()), key=lambda item: item.number)
        events = [item for item in self._under_way.values() if item.kind is Kind.EVENT]
        given_up = [item for item in self._under_way.values() if item.kind is Kind.COMMAND]
        given_up += self._commands
        self._under_way.clear()
        self._event_under_way = False
        self._commands.clear()
        self._states.clear()
        for item in back:
            if item.kind is Kind.STATE:
                older = self._states.pop(item.topic, None)
                self._bytes -= len(older.payload) if older is not None else 0
                self._states[item.topic] = item
        self._events.extendleft(reversed(events))
        while len(self._events) > self._limits.events:
            self._bytes -= len(self._events.popleft().payload)
            self.dropped += 1
        self._bytes -= sum(len(item.payload) for item in given_up)
        self.dropped += len(given_up)
        return len(given_up)

    @property
    def queued(self) -> int:
        """Messages that the broker does not have yet."""
        return len(self._states) + len(self._events) + len(self._commands) + len(self._under_way)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._states or self._events or self._commands)

    @property
    def held_bytes(self) -> int:
        """Payload bytes in it."""
        return self._bytes

    def _too_many_events(self, size: int) -> bool:
        return len(self._events) >= self._limits.events or self._bytes + size > self._limits.total_bytes

    def _refuse(self) -> bool:
        self.dropped += 1
        return False

    def _add(self, item: Outgoing) -> None:
        if item.kind is Kind.STATE:
            self._states[item.topic] = item
        else:
            (self._events if item.kind is Kind.EVENT else self._commands).append(item)

    def _heads(self) -> Iterator[Outgoing]:
        if self._states:
            yield next(iter(self._states.values()))
        if self._events and not self._event_under_way:
            yield self._events[0]
        if self._commands:
            yield self._commands[0]

    def _remove(self, item: Outgoing) -> None:
        if item.kind is Kind.STATE:
            del self._states[item.topic]
        else:
            (self._events if item.kind is Kind.EVENT else self._commands).popleft()
