"""The assistant as sessions on several threads use it: one at a time, for there is one home."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

from appliance.voice.limits import LIMITS, StageTimeoutError

if TYPE_CHECKING:
    from appliance.intent.assistant import Assistant
    from appliance.intent.skills.timers import Timer
    from appliance.intent.types import HomeView, Reply, Understanding, UtteranceId

__all__ = ["SharedAssistant"]

T = TypeVar("T")


class SharedAssistant:
    """See the module. Thread-safe."""

    def __init__(self, assistant: Assistant) -> None:
        self._assistant = assistant
        self._lock = threading.Lock()

    def match(self, text: str, area: str | None = None) -> Understanding:
        """See `Assistant.match`."""
        with self._lock:
            return self._assistant.match(text, area)

    def preview(self, understanding: Understanding) -> Reply:
        """See `Assistant.preview`; no side effect."""
        with self._lock:
            return self._assistant.preview(understanding)

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        """See `Assistant.commit`; waits for the home, but not for ever. Raises `StageTimeoutError`: the home may still
        do it."""
        return self._within(self._assistant.commit(understanding, key))

    @property
    def lost_sentences(self) -> tuple[str, ...]:
        """See `Assistant.lost_sentences`."""
        return self._assistant.lost_sentences

    def timers(self) -> list[tuple[Timer, float]]:
        """Timers that run or are paused, with the seconds left."""
        with self._lock:
            book = self._assistant.timers
            return [(timer, book.left_s(timer)) for timer in book.find()]

    def start_timer(self, seconds: int, name: str | None) -> Timer | None:
        """A timer that rings; None where there are too many."""
        with self._lock:
            return self._assistant.timers.start(seconds=seconds, name=name)

    def cancel_timer(self, timer_id: int) -> bool:
        """False where there is no such timer."""
        with self._lock:
            book = self._assistant.timers
            found = next((timer for timer in book.find() if timer.id == timer_id), None)
            if found is not None:
                book.cancel(found)
            return found is not None

    def view(self) -> HomeView:
        """See `Assistant.view`."""
        return self._assistant.view()

    def tick(self) -> list[tuple[Timer, Reply | None]]:
        """See `Assistant.tick`: timers that have ended since the last call."""
        return self._within(self._assistant.tick())

    @property
    def has_timers(self) -> bool:
        """Whether there is any that could end; asked without a wait, for there is mostly none."""
        return len(self._assistant.timers) > 0

    def _within(self, deed: Coroutine[None, None, T]) -> T:
        """One deed at a time; a home that does not answer keeps nobody else waiting for longer than its limit."""

        async def limited() -> T:
            async with asyncio.timeout(LIMITS.home_s):
                return await deed

        if not self._lock.acquire(timeout=LIMITS.home_s):
            deed.close()
            raise StageTimeoutError(f"the home has been busy with another command for {LIMITS.home_s:g} s")
        try:
            return asyncio.run(limited())
        except TimeoutError:
            raise StageTimeoutError(f"the home did not answer within {LIMITS.home_s:g} s; is it there?") from None
        finally:
            self._lock.release()
