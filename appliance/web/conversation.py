"""One page's session: opened by `start`, closed by `stop`, by the page going, or by long silence of its microphone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner
from appliance.web.capture import BrowserCapture
from appliance.web.context import WebContext
from appliance.web.errors import ProtocolError
from appliance.web.limits import Bucket, Rate
from appliance.web.messages import Start
from appliance.web.outbox import Outbox
from appliance.web.player import BrowserPlayer

__all__ = ["Conversation"]

_LOG = logging.getLogger(__name__)

NO_SOUND_S: Final = 3.0
"""The endpoint is found in the sound; where none comes, listening would never end."""
UNUSED_S: Final = 60.0
"""A session that hears nothing and does nothing takes the place of another."""
SOUND: Final = Rate(burst=15.0, per_s=1.1)
"""Seconds of sound: as fast as it is spoken; a network that stalled may catch up."""


class Conversation:
    """Belongs to one socket's handler; everything is called on the event loop."""

    def __init__(self, context: WebContext, outbox: Outbox, start: Start) -> None:
        self._context = context
        self._start = start
        self._players: list[BrowserPlayer] = []
        self._bucket = Bucket(SOUND)
        self._sound_s = time.monotonic()
        self._runner: LiveRunner | None = None
        self._capture: BrowserCapture | None = None
        self._closing: asyncio.Task[None] | None = None

        def player(runner: LiveRunner) -> BrowserPlayer:
            self._players.append(BrowserPlayer(runner, outbox))
            return self._players[-1]

        # A task of its own: a page that goes while it runs must find the session, to close it.
        self._opening = asyncio.create_task(
            asyncio.to_thread(context.service.open_session, "browser", player, wake=start.wake)
        )

    async def open(self) -> str:
        """Wait for the session and begin; gives its name. Raises `SessionLimitError`."""
        runner = self._runner = await asyncio.shield(self._opening)
        self._capture = BrowserCapture(self._start.rate_hz, self._start.encoding, runner.now)
        self._sound_s = time.monotonic()
        return runner.session.name

    def push(self, data: bytes) -> None:
        """Hear a block. Raises `ProtocolError`."""
        if self._runner is None or self._capture is None:
            return
        self._sound_s = time.monotonic()
        if not self._bucket.take(self._capture.seconds(data)):
            raise ProtocolError("sound comes faster than anybody speaks; send it as it is captured")
        for frame in self._capture.push(data):
            self._runner.push(frame)

    def missed(self, samples: int) -> None:
        """The page could not send some sound."""
        if self._capture is not None:
            self._sound_s = time.monotonic()
            self._capture.missed(samples)

    def listen(self) -> None:
        """Begin an utterance."""
        self._call(lambda runner: runner.session.listen)

    def played(self, generation: int, underruns: int) -> None:
        """The page has played a reply."""
        for player in self._players:
            player.played(generation, underruns)

    def check(self) -> str | None:
        """Look after things once a second; gives the reason where the session should be closed."""
        if self._runner is None:
            return None
        for player in self._players:
            player.expire()
        quiet_s = time.monotonic() - self._sound_s
        phase = self._runner.session.phase
        if phase is Phase.LISTENING and quiet_s > NO_SOUND_S:
            return f"no sound has come for {NO_SOUND_S:.0f} s; is the microphone still there?"
        if phase is Phase.IDLE and quiet_s > UNUSED_S:
            return f"not used for {UNUSED_S:.0f} s"
        return None

    def close(self) -> asyncio.Task[None]:
        """End the session and its threads; the task goes on whatever becomes of who waits for it."""
        if self._closing is None:
            closing = self._closing = asyncio.create_task(self._close())
            self._context.closing.add(closing)
            closing.add_done_callback(self._context.closing.discard)
        return self._closing

    async def _close(self) -> None:
        await asyncio.wait({self._opening})
        if self._opening.cancelled() or self._opening.exception() is not None:
            return  # `open` has told; there is nothing to close
        runner = self._opening.result()
        self._runner = None
        await asyncio.to_thread(self._context.service.close_session, runner)
        for player in self._players:
            if player.timeouts or player.underruns:
                name, counts = runner.session.name, (player.timeouts, player.underruns)
                _LOG.info("session %s: %d replies never reported as played, %d gaps", name, *counts)
        heard = None if self._capture is None else self._capture.stats()
        if heard is not None and (heard.missing_s or heard.lost_s):
            name, missing_s = runner.session.name, heard.missing_s + heard.lost_s
            _LOG.warning("session %s: %.2f s of sound missing, %.2f made up", name, missing_s, heard.concealed_s)
        if runner.dropped_frames:
            _LOG.warning("session %s: %d frames were lost", runner.session.name, runner.dropped_frames)

    def _call(self, action: Callable[[LiveRunner], Callable[[], None]]) -> None:
        if self._runner is not None:
            self._runner.call(action(self._runner))
