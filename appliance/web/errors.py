"""What a client is told went wrong; each error has an HTTP status and a stable code."""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar

from appliance.errors import ApplianceError

__all__ = [
    "AuthError",
    "BusyError",
    "DiskFullError",
    "HostError",
    "NoMicrophoneError",
    "OriginError",
    "ProtocolError",
    "RateError",
    "RequestError",
    "TooLargeError",
    "WebError",
    "WebStartError",
]


class WebError(ApplianceError):
    """Base of the page's errors."""

    code = "web"
    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR


class WebStartError(WebError):
    """The page cannot be served: its address is taken or does not exist here, or it has no token."""

    code = "web.start"


class AuthError(WebError):
    """The request carries no token, or a wrong one."""

    code = "web.auth"
    status = HTTPStatus.UNAUTHORIZED


class HostError(WebError):
    """The request was sent to a name that is not this machine's (as in DNS rebinding)."""

    code = "web.host"
    status = HTTPStatus.MISDIRECTED_REQUEST


class OriginError(WebError):
    """The request was made by another site's page."""

    code = "web.origin"
    status = HTTPStatus.FORBIDDEN


class NoMicrophoneError(WebError):
    """This machine's own microphone is not in use."""

    code = "web.no_microphone"
    status = HTTPStatus.CONFLICT


class RateError(WebError):
    """More requests than a page makes."""

    code = "web.rate"
    retry = True
    status = HTTPStatus.TOO_MANY_REQUESTS


class BusyError(WebError):
    """As much is being done as this machine takes."""

    code = "web.busy"
    retry = True
    status = HTTPStatus.SERVICE_UNAVAILABLE


class RequestError(WebError):
    """The request is not what this address takes."""

    code = "web.request"
    status = HTTPStatus.BAD_REQUEST


class TooLargeError(WebError):
    """The request is larger than this address takes."""

    code = "web.too_large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class DiskFullError(WebError):
    """There is no room for the upload."""

    code = "web.disk"
    retry = True
    status = HTTPStatus.INSUFFICIENT_STORAGE


class ProtocolError(WebError):
    """A WebSocket message is not what docs/protocol.md says; the connection is closed."""

    code = "web.protocol"
    status = HTTPStatus.BAD_REQUEST
