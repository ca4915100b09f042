"""The page served for real, on a free port, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from appliance.app import Wren
from appliance.service import Service
from appliance.settings import Settings
from appliance.web import MachineState, WebServer, serve

TOKEN: Final = "test-token-0123456789"
START_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RunningPage:
    """A served page and what is behind it."""

    server: WebServer
    service: Service

    @property
    def address(self) -> str:
        """Without the token."""
        return self.server.address


def page_settings(**web: object) -> Settings:
    """Settings with a token and any free port."""
    return Settings.model_validate({"web": {"port": 0, "token": TOKEN, **web}})


@contextmanager
def running_page(
    wren: Wren, settings: Settings | None = None, machine: Callable[[], MachineState] = MachineState
) -> Iterator[RunningPage]:
    """Serve until the block is left."""
    service = Service(wren)
    started: list[WebServer | Exception] = []
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            async with serve(service, settings or page_settings(), machine) as server:
                started.append(server)
                ready.set()
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - raised where the page is wanted, below
            started.append(error)
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="page")
    thread.start()
    try:
        assert ready.wait(START_TIMEOUT_S)
        server = started[0]
        if isinstance(server, Exception):
            raise server
        yield RunningPage(server, service)
    finally:
        if loops and len(started) == 1 and isinstance(started[0], WebServer):
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(START_TIMEOUT_S)
        service.close()
        assert not thread.is_alive()
