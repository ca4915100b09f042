"""What the page's handlers share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from aiohttp import web

from appliance.service import Service
from appliance.settings import Settings
from appliance.web.broadcast import Broadcast

__all__ = ["CONTEXT", "MachineState", "Microphone", "WebContext", "no_microphone"]

MAX_TEXTS: Final = 4
MAX_SAYS: Final = 2
MAX_FILES: Final = 1
"""Hearing a recording takes a whole core for its time: a second one would make live speech wait."""

Microphone = Literal["live", "muted", "absent"]


@dataclass(frozen=True, slots=True)
class MachineState:
    """What the page shows of this machine."""

    microphone: Microphone = "absent"
    degraded: tuple[str, ...] = ()
    """What works less well than it should, a sentence each."""
    readings: tuple[tuple[str, float, str], ...] = ()
    """Sensors: name, value, unit."""
    better_plan: str | None = None
    """Engines that will run from the next start, where measuring found better ones."""


def no_microphone() -> MachineState:
    """A machine without sound devices: the page's own microphone is all there is."""
    return MachineState()


@dataclass(slots=True)
class WebContext:
    """One a web application."""

    service: Service
    settings: Settings
    token: str
    machine: Callable[[], MachineState]
    broadcast: Broadcast
    closing: set[asyncio.Task[None]] = field(default_factory=set)
    """Sessions being closed; waited for when the application ends."""
    started_s: float = field(default_factory=time.monotonic)
    texts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_TEXTS))
    says: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_SAYS))
    files: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_FILES))


CONTEXT: Final = web.AppKey("wren", WebContext)
