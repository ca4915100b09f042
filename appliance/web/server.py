"""Serving the application on the address that the settings name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from appliance.service import Service
from appliance.settings import Settings
from appliance.web.app import make_app
from appliance.web.connections import CONNECTIONS
from appliance.web.context import MachineState, no_microphone
from appliance.web.errors import WebStartError

__all__ = ["WebServer", "serve"]

KEEP_ALIVE_S: Final = 30.0
SHUTDOWN_S: Final = 3.0
"""How long requests under way may take to end when Wren stops."""
BACKLOG: Final = 64


@dataclass(frozen=True, slots=True)
class WebServer:
    """The page as it is served."""

    address: str
    """For people: `http://127.0.0.1:10380/`."""
    link: str
    """The address that opens the page, with the token: to be printed, never to be logged."""


@asynccontextmanager
async def serve(
    service: Service, settings: Settings, machine: Callable[[], MachineState] = no_microphone
) -> AsyncIterator[WebServer]:
    """Serve until the block is left. Raises `WebStartError`."""
    app = make_app(service, settings, machine)
    host, port = settings.web.host, settings.web.port
    runner = web.AppRunner(
        app,
        access_log=None,  # its lines hold the query, and so the token
        handler_cancellation=True,  # a client that goes takes its work with it
        auto_decompress=False,  # a small body must not become a large one
        keepalive_timeout=KEEP_ALIVE_S,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        connections = app[CONNECTIONS]
        assert runner.server is not None
        connections.serve(runner.server)
        try:
            server = await asyncio.get_running_loop().create_server(connections, host, port, backlog=BACKLOG)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise WebStartError(
                f"the page cannot be served on {host} port {port} ({reason}); "
                "choose others with: wren config set web.port PORT, wren config set web.host ADDRESS"
            ) from None
        try:
            actual_port: int = server.sockets[0].getsockname()[1]
            address = f"http://{_shown(host)}:{actual_port}/"
            token = "" if settings.web.token is None else settings.web.token.get_secret_value()
            yield WebServer(address, f"{address}?token={token}")
        finally:
            server.close()
    finally:
        await runner.cleanup()


def _shown(host: str) -> str:
    """An address that a browser here can open."""
    if host in {"0.0.0.0", "::", ""}:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
