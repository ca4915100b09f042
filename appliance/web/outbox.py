"""What waits to be sent to one page: put in from any thread, taken out by the page's writer."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Final

__all__ = ["Outbox"]

MAX_BYTES: Final = 4 << 20
"""Some 90 s of reply sound: a page that is this far behind will not catch up in time to be of use."""
MAX_MESSAGES: Final = 2000


class Outbox:
    """A bounded queue. When full it is spoilt: everything in it is dropped and the page is to be closed, for a
    page that misses messages shows what is not so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[str | bytes] = deque()  # bounded in `put`: a `maxlen` would lose messages unseen
        self._bytes = 0
        self._ready = asyncio.Event()
        self._closed = False
        self.spoilt = False
        """The page did not keep up."""

    def put(self, *messages: str | bytes) -> None:
        """Send these, in order and with nothing between them; never waits."""
        with self._lock:
            if self._closed:
                return
            self._waiting.extend(messages)
            self._bytes += sum(map(len, messages))
            if self._bytes > MAX_BYTES or len(self._waiting) > MAX_MESSAGES:
                self._waiting.clear()
                self.spoilt = self._closed = True
        self._wake()

    def close(self) -> None:
        """No more: what waits is still sent."""
        with self._lock:
            self._closed = True
        self._wake()

    async def take(self) -> str | bytes | None:
        """The next message; None when there will be no more."""
        while True:
            with self._lock:
                if self._waiting:
                    message = self._waiting.popleft()
                    self._bytes -= len(message)
                    return message
                if self._closed:
                    return None
                self._ready.clear()
            await self._ready.wait()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            # The loop has ended, and the writer with it; a session that is still being closed may yet speak.
            self._closed = True
