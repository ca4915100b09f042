"""A short visit to the broker beside the running Wren: what stands there, and taking it away. For the command line."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from appliance.errors import ApplianceError
from appliance.mqtt.backoff import Trouble
from appliance.mqtt.client_faults import LinkFault, VersionRefused
from appliance.mqtt.client_session import VERSIONS, Session, target_of
from appliance.mqtt.outbox import Outgoing
from appliance.mqtt.protocol import Kind, Message

if TYPE_CHECKING:
    from appliance.settings import MqttSettings

__all__ = ["Visit", "VisitError"]

QUIET_S: Final = 0.7
"""What stands comes right after the subscription; after so long without a message, all of it has come."""
TIMEOUT_S: Final = 20.0
"""For all of a look, or of a removal."""
MAX_FOUND: Final = 2000
"""Topics; one appliance has some eighty."""
STEP_S: Final = 0.1


class VisitError(ApplianceError):
    """What was asked for cannot be done at the broker as it stands."""

    code = "mqtt.visit"


class Visit:
    """A connection of its own, without a will: it disturbs no Wren that is connected, and leaves nothing.

    A context manager. Entering, and everything else, raises `LinkFault`.
    """

    def __init__(self, settings: MqttSettings, device: str) -> None:
        """`device` begins the name under which it comes."""
        self._target = target_of(settings, f"{device}-visit-{secrets.token_hex(3)}", None)
        self._found: dict[str, bytes] = {}
        self._at_s = 0.0
        self._waiting: set[int] = set()
        self._refused: set[str] = set()
        self._session: Session

    def __enter__(self) -> Self:
        for version in VERSIONS:
            self._session = Session(self._target, version, None, self._note, self._answered)
            try:
                self._session.open(lambda: False)
            except VersionRefused:
                if version == VERSIONS[-1]:
                    raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close(politely=error is None)

    @property
    def protocol(self) -> str:
        """`5` or `3.1.1`."""
        return self._session.version

    @property
    def broker(self) -> str:
        """`host:port`, and `(TLS)` where it is."""
        return self._target.broker

    @property
    def denied(self) -> frozenset[str]:
        """Filters and topics that the broker has refused, as far as it says so."""
        return frozenset(self._session.denied | self._refused)

    def look(self, filters: Iterable[str]) -> Mapping[str, bytes]:
        """What stands, retained, on topics that match: topic -> payload, `MAX_FOUND` at most."""
        self._found = {}
        self._at_s = time.monotonic()
        self._session.subscribe(filters)
        deadline_s = self._at_s + TIMEOUT_S
        while not self._session.settled or time.monotonic() - self._at_s < QUIET_S:
            self._step(deadline_s)
        return self._found

    def clear(self, topics: Iterable[str]) -> None:
        """Let nothing stand there any more."""
        waiting = [Outgoing(number, topic, b"", Kind.STATE, True) for number, topic in enumerate(topics)]
        deadline_s = time.monotonic() + TIMEOUT_S
        while waiting or self._waiting:
            while waiting and len(self._waiting) < self._session.window:
                item = waiting.pop(0)
                self._waiting.add(item.number)
                self._session.send(item)
            if self._waiting:
                self._step(deadline_s)

    def _step(self, deadline_s: float) -> None:
        if time.monotonic() > deadline_s:
            raise LinkFault(Trouble.NETWORK, f"{self.broker} is too slow or too busy; try again")
        self._session.step(STEP_S)

    def _note(self, message: Message) -> None:
        if message.retain and message.payload and len(self._found) < MAX_FOUND:
            self._found[message.topic] = message.payload
            self._at_s = time.monotonic()

    def _answered(self, item: Outgoing, refused: str | None) -> None:
        self._waiting.discard(item.number)
        if refused is not None:
            self._refused.add(item.topic)
