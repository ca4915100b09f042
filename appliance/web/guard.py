"""Who may ask what: host, origin, token, rate; and the headers that keep the page to itself.

Sources: OWASP's sheets on cross-site request forgery and on HTTP headers; RFC 6265bis (SameSite), RFC 6750 (bearer).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from appliance.settings import Settings
from appliance.web.errors import AuthError, HostError, OriginError, RateError
from appliance.web.limits import PeerBuckets, Rate

__all__ = ["PUBLIC_PREFIX", "Guard", "add_headers"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PUBLIC_PREFIX: Final = "/static/"
"""Scripts and styles hold no secret, and the page that asks for the token needs them."""

REQUESTS: Final = Rate(burst=120, per_s=40)
"""A page loads some 15 files and then asks a few times a minute."""
WRONG_TOKENS: Final = Rate(burst=10, per_s=0.2)
"""Guessing 256 bits is hopeless anyhow; this keeps somebody's own short token, and the log, out of harm's way."""
COOKIE_AGE_S: Final = 180 * 24 * 3600

_SAFE: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(:\d{1,5})?")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "wren",
}


def add_headers(response: web.StreamResponse, *, cacheable: bool) -> None:
    """What every answer carries. Scripts may be kept but are asked for again: an update must not meet an old page."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-cache" if cacheable else "no-store")


class Guard:
    """Checks requests before any handler sees them."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._token = token.encode()
        # What the browser keeps opens this page, and is of no use to whoever would make a new link from it.
        self._cookie = hmac.new(self._token, b"wren page", hashlib.sha256).hexdigest().encode()
        self._names = _own_names(settings)
        self._requests = PeerBuckets(REQUESTS)
        self._wrong = PeerBuckets(WRONG_TOKENS)

    def check(self, request: web.Request) -> None:
        """Refuse what must not be served. Raises `HostError`, `RateError`, `OriginError`, `AuthError`."""
        self._check_host(request)
        if not self._requests.of(_peer(request)).take():
            raise RateError("too many requests; wait a second")
        self._check_origin(request)
        if not (request.path == "/" or request.path.startswith(PUBLIC_PREFIX)) and not self.knows(request):
            raise AuthError("open the page with the address that `wren run` printed, or send the token as a bearer")

    def knows(self, request: web.Request) -> bool:
        """Whether the request carries the cookie, or the token as a bearer. Raises `RateError` after wrong ones."""
        cookie = request.cookies.get(_cookie_name(request))
        scheme, _, bearer = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if cookie is not None and hmac.compare_digest(cookie.encode(), self._cookie):
            return True
        return scheme.lower() == "bearer" and self.opens(request, bearer)

    def opens(self, request: web.Request, token: str) -> bool:
        """Whether this is the token. Raises `RateError` after too many wrong ones from the same peer."""
        wrong = self._wrong.of(_peer(request))
        if wrong.empty:
            raise RateError("too many wrong tokens; wait a minute")
        right = hmac.compare_digest(token.strip().encode(), self._token)
        if not right:
            wrong.take()
        return right

    def remember(self, request: web.Request, response: web.StreamResponse) -> None:
        """Give the browser the cookie."""
        response.set_cookie(
            _cookie_name(request),
            self._cookie.decode(),
            max_age=COOKIE_AGE_S,
            httponly=True,
            samesite="Strict",
            path="/",
        )

    def _check_host(self, request: web.Request) -> None:
        """A name that an attacker's DNS points here must not be taken for ours; a bare address cannot be rebound."""
        host = request.headers.get(hdrs.HOST, "")
        match = _HOST.fullmatch(host)
        name = match["name"].lower().rstrip(".") if match else ""
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return
        raise HostError(f"this machine is not called {host[:100]!r}; add the name to web.host_names if it is yours")

    def _check_origin(self, request: web.Request) -> None:
        """A browser says which page asks; what changes something, or opens a socket, must come from ours."""
        origin = request.headers.get(hdrs.ORIGIN)
        socket_opened = request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"
        if origin is None:
            # No browser: it has no cookie of ours either, unless somebody made it send one.
            careful = socket_opened or request.method not in _SAFE
            if careful and hdrs.AUTHORIZATION not in request.headers and _cookie_name(request) in request.cookies:
                raise OriginError("a request with the page's cookie must carry its Origin")
            return
        # The host alone decides: a proxy in front of us may speak https where we speak http.
        if origin.lower().partition("://")[2] != request.headers[hdrs.HOST].lower():
            raise OriginError(f"a page of {origin[:100]!r} may not use this one")


def _peer(request: web.Request) -> str:
    return request.remote or "?"


def _cookie_name(request: web.Request) -> str:
    """With the port in it: browsers share cookies among all ports of a host, and one Wren must not log out another."""
    return f"wren_{request.url.port}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _own_names(settings: Settings) -> frozenset[str]:
    own = socket.gethostname().lower()
    short = own.partition(".")[0]
    names = {"localhost", own, short, f"{short}.local", settings.web.host, *settings.web.host_names}
    return frozenset(name.lower() for name in names)
