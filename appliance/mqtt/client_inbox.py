"""What comes in: subscriptions, and the one worker thread on which all handlers run."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from appliance.mqtt.client_topics import check_filter, matches
from appliance.mqtt.protocol import Handler, Message, Refused

__all__ = ["Inbox"]

_LOG = logging.getLogger(__name__)

MAX_WAITING: Final = 2048
"""Messages of one subscription; a big home's retained discovery comes at once. A flood on one filter costs no other."""
MAX_WAITING_BYTES: Final = 4 << 20
REPORTS_PER_S: Final = 10
"""Of refused messages; beyond it they are only counted, else a flood would come back out as one."""
LOG_EVERY_S: Final = 10.0
"""Between two faults told in the log: a flood of bad messages must not fill the disk."""
CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class _Subscription:
    topic_filter: str
    handler: Handler
    max_bytes: int
    waiting: int = 0
    waiting_bytes: int = 0


class Inbox:
    """`deliver` is called by the network's thread and returns at once; handlers run on the worker, one at a time."""

    def __init__(self) -> None:
        self._subscriptions: tuple[_Subscription, ...] = ()
        # Bounded by what is let in: `MAX_WAITING` of each subscription, reports only below that, and one call a
        # connection.
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._on_refused: tuple[Callable[[Refused], None], ...] = ()
        self._reports: deque[float] = deque(maxlen=REPORTS_PER_S)
        self._thread = threading.Thread(target=self._run, name="mqtt-worker", daemon=True)
        self._log_from_s = 0.0
        self.refused = 0
        """Messages that reached no handler."""
        self.faults = 0
        """Handlers that raised."""

    def start(self) -> None:
        """Begin to call handlers."""
        self._thread.start()

    def close(self) -> None:
        """End the worker once the call in hand is done; what waits is not called any more."""
        with self._changed:
            self._closed = True
            self._work.clear()
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT_S)
            if self._thread.is_alive():
                _LOG.warning("an MQTT handler has not returned for %g s; it is left behind", CLOSE_TIMEOUT_S)

    def subscribe(self, topic_filter: str, handler: Handler, max_bytes: int) -> None:
        """Add one. Raises `ValueError` for a wrong filter, or one that is there already."""
        check_filter(topic_filter)
        with self._changed:
            if any(one.topic_filter == topic_filter for one in self._subscriptions):
                raise ValueError(f"{topic_filter} is subscribed to already; filters must not overlap")
            self._subscriptions += (_Subscription(topic_filter, handler, max_bytes),)

    def on_refused(self, callback: Callable[[Refused], None]) -> None:
        """Add one who hears of refused messages."""
        with self._changed:
            self._on_refused += (callback,)

    @property
    def filters(self) -> tuple[str, ...]:
        """All subscriptions, oldest first."""
        return tuple(one.topic_filter for one in self._subscriptions)

    def deliver(self, message: Message) -> None:
        """A message came."""
        for one in self._subscriptions:
            if matches(one.topic_filter, message.topic):
                self._deliver(one, message)

    def call(self, work: Callable[[], None]) -> None:
        """Run something of the link's own on the worker, after what waits there."""
        with self._changed:
            if not self._closed:
                self._work.append(work)
                self._changed.notify()

    def _deliver(self, one: _Subscription, message: Message) -> None:
        size = len(message.payload)
        with self._changed:
            if size > one.max_bytes:
                self._refuse(message, f"too large: {size} bytes, at most {one.max_bytes}")
            elif one.waiting >= MAX_WAITING or one.waiting_bytes + size > MAX_WAITING_BYTES:
                self._refuse(message, "too many at once")
            elif not self._closed:
                one.waiting += 1
                one.waiting_bytes += size
                self._work.append(lambda: self._handle(one, message))
                self._changed.notify()

    def _handle(self, one: _Subscription, message: Message) -> None:
        with self._changed:
            one.waiting -= 1
            one.waiting_bytes -= len(message.payload)
        one.handler(message)

    def _refuse(self, message: Message, reason: str) -> None:
        self.refused += 1
        now_s = time.monotonic()
        if len(self._reports) == REPORTS_PER_S and now_s - self._reports[0] < 1.0:
            return
        if len(self._work) > MAX_WAITING * len(self._subscriptions):
            return  # a handler hangs: nobody would hear of it soon
        self._reports.append(now_s)
        refused = Refused(message.topic, len(message.payload), reason)
        self._work.extend(lambda callback=callback: callback(refused) for callback in self._on_refused)  # type: ignore[misc]
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._work and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                work = self._work.popleft()
            try:
                work()
            except Exception:  # noqa: BLE001 - whatever a handler does, the next message must still be handled
                self._failed()

    def _failed(self) -> None:
        self.faults += 1
        now_s = time.monotonic()
        if now_s >= self._log_from_s:
            self._log_from_s = now_s + LOG_EVERY_S
            _LOG.exception("an MQTT handler failed (%d times since the start)", self.faults)
