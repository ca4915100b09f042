"""What the rest of `appliance/mqtt` knows of the connection: messages out by kind, messages in by topic filter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

__all__ = ["MAX_BYTES", "OFFLINE", "ONLINE", "Handler", "Kind", "Link", "LinkState", "Message", "Refused"]

MAX_BYTES: Final = 8192
"""Largest payload that a handler is given unless it asks for more."""
ONLINE: Final = b"online"
OFFLINE: Final = b"offline"
"""What stands, retained, on the availability topic; the broker's will is the second."""


class Kind(Enum):
    """What becomes of a message that cannot go out at once. The order holds within a kind."""

    STATE = "state"
    """Latest wins per topic; kept, and sent again, until the broker has it. For whatever is retained."""
    EVENT = "event"
    """Kept in order until the broker has it; when too many wait, the oldest are dropped, and that is counted. Comes
    once, but for the one that was just being handed over when a connection broke: give it an id where that matters."""
    COMMAND = "command"
    """Now or never: refused while there is no connection, and never sent twice. For what makes something happen."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the broker gave it."""

    topic: str
    payload: bytes
    retain: bool
    """It stood at the broker before we subscribed: nobody asks for it just now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that reached no handler."""

    topic: str
    size: int
    """Bytes of its payload."""
    reason: str
    """`too large: 9000 bytes, at most 8192`, or `too many at once`."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """How the connection stands; for the page, `wren doctor` and Home Assistant's diagnostics. Holds no secret."""

    connected: bool
    broker: str
    """`host:port`, and `TLS` where it is."""
    reason: str
    """Why there is no connection, or what is odd about the one there is, with what to do; empty where all is well."""
    denied: tuple[str, ...]
    """Topics and filters that the broker does not let us use."""
    queued: int
    """Messages that the broker does not have yet."""
    dropped: int
    """Messages out that were given up since the start: events too many, commands refused or lost with a connection."""
    reconnects: int
    """Connections made since the start, beyond the first."""
    refused: int = 0
    """Messages in that reached no handler since the start."""
    faults: int = 0
    """Handlers that raised since the start."""
    protocol: str = ""
    """`5` or `3.1.1`; empty before the first connection."""


Handler = Callable[[Message], None]
"""Called on the link's one worker thread, never on the network's. What it raises is counted and logged."""


class Link(Protocol):
    """A connection that comes and goes. Thread-safe; nothing here blocks."""

    @property
    def availability_topic(self) -> str:
        """Where `online` and, as the will, `offline` stand retained. The link alone publishes there."""
        ...

    def publish(self, topic: str, payload: bytes, *, kind: Kind, retain: bool = False) -> bool:
        """Hand a message over; False means refused (`Kind` says when).

        Raises `ValueError` for a topic with wildcards, empty or too long: that is a mistake of the caller.
        """
        ...

    def subscribe(self, topic_filter: str, handler: Handler, max_bytes: int = MAX_BYTES) -> None:
        """Take messages from now on, over every reconnect. Filters of one link must not overlap.

        Larger payloads never reach the handler; `on_refused` hears of them. Raises `ValueError` for a wrong filter.
        """
        ...

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Called on the worker after every (re)connect, once the broker has answered all subscriptions.

        The place to publish discovery, then state. `online` follows what the callbacks published.
        """
        ...

    def on_refused(self, callback: Callable[[Refused], None]) -> None:
        """Called on the worker for a message that was too large or came in a flood; at most some ten a second."""
        ...

    def state(self) -> LinkState:
        """How it stands just now."""
        ...
