"""The WebSocket: a page's microphone in, events and the reply's sound out."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from appliance.errors import ApplianceError
from appliance.web.broadcast import Subscription, encode
from appliance.web.context import CONTEXT, WebContext
from appliance.web.conversation import Conversation
from appliance.web.errors import BusyError, ProtocolError
from appliance.web.limits import Bucket, Rate
from appliance.web.messages import Listen, Missed, Played, Start, Stop, Watch, parse_message
from appliance.web.outbox import Outbox
from models.errors import ModelsError

__all__ = ["SOCKETS", "OpenSockets", "open_socket"]

_LOG = logging.getLogger(__name__)

MAX_MESSAGE_BYTES: Final = 64 << 10
"""A third of a second of 48 kHz float samples; ours are 20 ms."""
HEARTBEAT_S: Final = 15.0
"""A page whose network is gone is noticed after this and a half."""
CLOSE_TIMEOUT_S: Final = 2.0
CHECK_EVERY_S: Final = 1.0
MESSAGES: Final = Rate(burst=20, per_s=5)
"""Text messages: button presses."""


class OpenSockets:
    """Those of one application."""

    def __init__(self) -> None:
        self._open: set[web.WebSocketResponse] = set()

    def add(self, socket: web.WebSocketResponse) -> None:
        """One was opened."""
        self._open.add(socket)

    def discard(self, socket: web.WebSocketResponse) -> None:
        """One was closed."""
        self._open.discard(socket)

    async def close(self) -> None:
        """Tell every page that Wren stops."""
        closing = (socket.close(code=WSCloseCode.GOING_AWAY, message=b"Wren stops") for socket in set(self._open))
        await asyncio.gather(*closing, return_exceptions=True)


SOCKETS: Final = web.AppKey("sockets", OpenSockets)


async def open_socket(request: web.Request) -> web.StreamResponse:
    """`GET /ws`."""
    context = request.app[CONTEXT]
    if context.broadcast.full:
        raise BusyError("as many pages are open as Wren takes; close one")
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S, timeout=CLOSE_TIMEOUT_S, max_msg_size=MAX_MESSAGE_BYTES, compress=False
    )
    await socket.prepare(request)
    request.app[SOCKETS].add(socket)
    try:
        await _Page(context, socket).serve()
    finally:
        request.app[SOCKETS].discard(socket)
    return socket


class _Page:
    """One open socket."""

    def __init__(self, context: WebContext, socket: web.WebSocketResponse) -> None:
        self._context = context
        self._socket = socket
        self._outbox = Outbox(asyncio.get_running_loop())
        self._subscription = Subscription(self._outbox)
        self._conversation: Conversation | None = None
        self._changing = asyncio.Lock()
        """Held while a session is opened or closed: the page and the watcher may both want to."""
        self._started = False
        self._bucket = Bucket(MESSAGES)

    async def serve(self) -> None:
        """Until either side closes."""
        self._context.broadcast.add(self._subscription)
        writer, watcher = asyncio.create_task(self._write()), asyncio.create_task(self._watch())
        code = WSCloseCode.OK
        try:
            code = await self._read()
        finally:
            self._context.broadcast.remove(self._subscription)
            watcher.cancel()
            # Before anything is waited for: where the line is cut, this may be cancelled at its first await.
            closing = None if self._conversation is None else self._conversation.close()
            if closing is not None:
                await asyncio.shield(closing)
            self._outbox.close()
            # What is left, the reason of the end among it, is sent before the end.
            await asyncio.wait({writer}, timeout=CLOSE_TIMEOUT_S)
            writer.cancel()
            await self._socket.close(code=code)

    async def _read(self) -> WSCloseCode:
        """Take messages; gives the code to close with."""
        try:
            async for message in self._socket:
                await self._take(message)
        except ProtocolError as error:
            self._tell_error(error, fatal=True)
            return WSCloseCode.POLICY_VIOLATION
        except Exception:  # noqa: BLE001 - a fault of ours ends this page, and must be seen
            _LOG.exception("a page's message could not be handled")
            return WSCloseCode.INTERNAL_ERROR
        return WSCloseCode.TRY_AGAIN_LATER if self._outbox.spoilt else WSCloseCode.OK

    async def _take(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            if not self._started:
                raise ProtocolError("sound before `start`")
            # After a session was closed from this side, sound that was under way still comes: it has no use.
            if self._conversation is not None:
                self._conversation.push(message.data)
        elif message.type is WSMsgType.TEXT:
            if not self._bucket.take():
                raise ProtocolError("too many messages; a person does not press that fast")
            await self._obey(message.data)

    async def _obey(self, text: str) -> None:
        conversation = self._conversation
        match parse_message(text):
            case Start() as start:
                await self._begin(start)
            case Stop():
                await self._end("stopped")
            case Listen() if conversation is not None:
                conversation.listen()
            case Missed() as missed if conversation is not None:
                conversation.missed(missed.samples)
            case Played() as played if conversation is not None:
                conversation.played(played.generation, played.underruns)
            case Watch() as watch:
                self._subscription.watching = watch.sessions == "all"

    async def _begin(self, start: Start) -> None:
        async with self._changing:
            if self._conversation is not None:
                raise ProtocolError("`start` while a session is open; send `listen`, or `stop` first")
            self._started = True
            self._conversation = conversation = Conversation(self._context, self._outbox, start)
            try:
                session = await conversation.open()
            except (ApplianceError, ModelsError) as error:
                self._conversation = None
                self._tell_error(error, fatal=False)
                return
            self._subscription.session = session
            self._tell({"type": "started", "session": session, "wake": start.wake})
        if not start.wake:
            conversation.listen()

    async def _end(self, reason: str | None = None) -> None:
        async with self._changing:
            conversation, self._conversation = self._conversation, None
            if conversation is None:
                return
            await asyncio.shield(conversation.close())
            self._subscription.session = None
            if reason is not None:
                self._tell({"type": "stopped", "reason": reason})

    async def _watch(self) -> None:
        """What must happen even where the page says nothing more."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            reason = None if self._conversation is None else self._conversation.check()
            if reason is not None:
                await self._end(reason)

    async def _write(self) -> None:
        try:
            while (message := await self._outbox.take()) is not None:
                if isinstance(message, bytes):
                    await self._socket.send_bytes(message)
                else:
                    await self._socket.send_str(message)
        except (ConnectionError, RuntimeError) as error:
            _LOG.debug("a page went while it was written to: %s", error)
        if self._outbox.spoilt:
            _LOG.warning("a page did not take what it was sent; it is closed")
            await self._socket.close(code=WSCloseCode.TRY_AGAIN_LATER)

    def _tell(self, record: dict[str, object]) -> None:
        self._outbox.put(encode(record))

    def _tell_error(self, error: ApplianceError | ModelsError, *, fatal: bool) -> None:
        self._tell({"type": "error", "code": error.code, "message": str(error), "retry": error.retry, "fatal": fatal})
