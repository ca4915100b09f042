"""Connections: a bounded number, and none that says nothing for ever. aiohttp itself bounds neither."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

__all__ = ["CONNECTIONS", "Connections"]

_LOG = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 128
"""Six for each of the most pages, and some air."""
FIRST_REQUEST_S: Final = 10.0
"""Later requests of a connection are bounded by its keep-alive time."""


class Connections:
    """The server's protocol factory."""

    def __init__(self) -> None:
        self._server: web.Server | None = None
        self._silent: dict[object, asyncio.TimerHandle] = {}
        self.refused = 0
        """Connections turned away because there were too many."""

    def serve(self, server: web.Server) -> None:
        """The server whose connections these are."""
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        """A new connection."""
        server = self._server
        if server is None or len(server.connections) >= MAX_CONNECTIONS:
            self.refused += 1
            _LOG.debug("%d connections are open; another was refused", MAX_CONNECTIONS)
            return _Refusing()
        handler = server()
        loop = asyncio.get_running_loop()
        self._silent[handler] = loop.call_later(FIRST_REQUEST_S, self._close_silent, handler)
        return handler

    def asked(self, request: web.BaseRequest) -> None:
        """Something was asked on this connection."""
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()

    def _close_silent(self, handler: RequestHandler) -> None:
        del self._silent[handler]
        handler.force_close()


class _Refusing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


CONNECTIONS: Final = web.AppKey("connections", Connections)
