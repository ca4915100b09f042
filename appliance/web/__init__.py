"""The local page and its API: one aiohttp application that listens to the same events as every other face."""

from __future__ import annotations

from appliance.web.app import make_app
from appliance.web.context import MachineState, Microphone
from appliance.web.errors import WebError
from appliance.web.server import WebServer, serve

__all__ = ["MachineState", "Microphone", "WebError", "WebServer", "make_app", "serve"]
