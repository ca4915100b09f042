"""Events to pages: each page gets those of its own session, and those of all if it asked to watch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Final

from appliance import events
from appliance.service import Service
from appliance.web.outbox import Outbox
from appliance.web.records import event_record, trace_record

__all__ = ["Broadcast", "Subscription", "encode"]

MAX_PAGES: Final = 16


class Subscription:
    """One page's wish; `session` and `watching` may be changed at any time."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.session: str | None = None
        """The page's own session."""
        self.watching = False
        """Whether it wants the events of other sessions too."""

    def wants(self, session: str) -> bool:
        """Whether an event of that session is for this page. What happens to the machine is for every page."""
        return self.watching or session in (self.session, events.MACHINE)


class Broadcast:
    """A listener of the hub: called on the sessions' threads, it only puts into outboxes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pages: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()

    def start(self) -> Callable[[], None]:
        """Listen; call what is returned to stop."""
        return self._service.hub.subscribe(self)

    def __call__(self, event: events.Event) -> None:
        """Tell the pages that want to know."""
        wanting = [page for page in self._pages if page.wants(event.session)]
        record = event_record(event) if wanting else None
        if record is None:
            return
        messages = [encode(record)]
        if isinstance(event, events.UtteranceEnded):
            # The service's own recorder listens before us, so the trace is there.
            traces = (trace for trace in reversed(self._service.traces()) if trace.utterance == event.utterance)
            messages += [encode({"type": "trace", **trace_record(trace)}) for trace in traces]
        for page in wanting:
            page.outbox.put(*messages)

    @property
    def full(self) -> bool:
        """Whether no more pages are taken."""
        return len(self._pages) >= MAX_PAGES

    def add(self, page: Subscription) -> None:
        """A page has come."""
        with self._lock:
            self._pages = (*self._pages, page)

    def remove(self, page: Subscription) -> None:
        """A page has gone."""
        with self._lock:
            self._pages = tuple(kept for kept in self._pages if kept is not page)


def encode(record: dict[str, object]) -> str:
    """One message."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))
