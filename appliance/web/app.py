"""The application: routes, what is checked before them, and errors as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import hdrs, web

from appliance.errors import ApplianceError
from appliance.service import Service, SessionLimitError
from appliance.settings import Settings
from appliance.web import api
from appliance.web.broadcast import Broadcast
from appliance.web.connections import CONNECTIONS, Connections
from appliance.web.context import CONTEXT, MachineState, WebContext, no_microphone
from appliance.web.errors import AuthError, RateError, WebError, WebStartError
from appliance.web.guard import PUBLIC_PREFIX, Guard, add_headers
from appliance.web.socket import SOCKETS, OpenSockets, open_socket
from appliance.web.upload import post_file
from models.errors import ModelsError

__all__ = ["make_app"]

_LOG = logging.getLogger(__name__)

PAGE: Final = Path(__file__).with_name("page")
_STATIC: Final = PAGE / "static"
_GUARD: Final = web.AppKey("guard", Guard)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(
    service: Service, settings: Settings, machine: Callable[[], MachineState] = no_microphone
) -> web.Application:
    """The page and its API. `machine` tells what the page shows of this machine; called on the event loop, quick.

    Raises `WebStartError` where the settings hold no token (see `ensure_web_token`).
    """
    if settings.web.token is None:
        raise WebStartError("the page has no token; make one with: wren config set web.token …")
    token = settings.web.token.get_secret_value()
    app = web.Application(middlewares=[_answer_errors, _check])
    app[CONTEXT] = WebContext(service, settings, token, machine, Broadcast(service))
    app[_GUARD] = Guard(settings, token)
    app[SOCKETS] = OpenSockets()
    app[CONNECTIONS] = Connections()
    app.cleanup_ctx.append(_listening)
    app.on_shutdown.append(_close_sockets)
    app.router.add_get("/", _page)
    app.router.add_static(PUBLIC_PREFIX, _STATIC, follow_symlinks=False)
    app.router.add_get("/ws", open_socket)
    app.router.add_get("/api/state", api.get_state)
    app.router.add_get("/api/traces", api.get_traces)
    app.router.add_post("/api/text", api.post_text)
    app.router.add_post("/api/mute", api.post_mute)
    app.router.add_get("/api/say", api.get_say)
    app.router.add_post("/api/file", post_file)
    return app


async def _listening(app: web.Application) -> AsyncIterator[None]:
    context = app[CONTEXT]
    stop = context.broadcast.start()
    yield
    stop()
    if context.closing:
        await asyncio.wait(context.closing)


async def _close_sockets(app: web.Application) -> None:
    await app[SOCKETS].close()


async def _page(request: web.Request) -> web.StreamResponse:
    """`GET /`: the page; with `?token=` a cookie and back here without it; else a page that asks for the token."""
    guard = request.app[_GUARD]
    token = request.query.get("token")
    if token is not None and guard.opens(request, token):
        response = web.Response(status=web.HTTPFound.status_code, headers={hdrs.LOCATION: "/"})
        guard.remember(request, response)
        return response
    if token is None and guard.knows(request):
        return web.FileResponse(PAGE / "index.html")
    return web.FileResponse(PAGE / "locked.html", status=AuthError.status)


@web.middleware
async def _check(request: web.Request, handler: Handler) -> web.StreamResponse:
    request.app[CONNECTIONS].asked(request)
    request.app[_GUARD].check(request)
    return await handler(request)


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost: whatever goes wrong inside leaves as JSON with our code, and with our headers."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            response = error
        else:
            response = _error(
                error.status, f"web.http_{error.status}", f"{request.method} {request.path}: {error.reason}"
            )
            if allow := error.headers.get(hdrs.ALLOW):
                response.headers[hdrs.ALLOW] = allow
    except WebError as error:
        response = _error(error.status, error.code, str(error), retry=error.retry)
        if isinstance(error, RateError):
            response.headers[hdrs.RETRY_AFTER] = "1"
    except SessionLimitError as error:
        response = _error(503, error.code, str(error), retry=True)
    except (ApplianceError, ModelsError) as error:
        response = _error(500, error.code, str(error), retry=error.retry)
    except ConnectionError:
        raise  # the client has gone; there is nobody to answer
    except Exception:  # noqa: BLE001 - the last line of defence: it is logged, and the client is told
        # The path alone: the query may hold a token, and this may be logged where others read.
        _LOG.exception("%s %s could not be answered", request.method, request.path)
        response = _error(500, "internal", "something went wrong inside Wren; its log says what")
    if not response.prepared:
        add_headers(response, cacheable=request.path.startswith(PUBLIC_PREFIX))
    return response


def _error(status: int, code: str, message: str, *, retry: bool = False) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message, "retry": retry}}, status=status)
