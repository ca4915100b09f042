"""What can be wrong with a connection, told to a person, and sorted by how long to wait."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from appliance.errors import ApplianceError
from appliance.mqtt.backoff import Trouble

__all__ = ["LinkFault", "VersionRefused", "fault_of_connack", "fault_of_disconnect", "fault_of_error"]

UNSUPPORTED_VERSION: Final = 0x84
_CREDENTIALS: Final = frozenset({0x86, 0x87, 0x8C})
_BUSY: Final = frozenset({0x88, 0x89, 0x97, 0x9F})
_ENDED: Final[Mapping[int, Trouble]] = {
    0x00: Trouble.NETWORK,
    0x87: Trouble.REFUSED,  # not authorised (any more)
    0x89: Trouble.BUSY,
    0x8B: Trouble.NETWORK,  # server shutting down
    0x8D: Trouble.NETWORK,  # keep-alive: it did not hear us in time
    0x8E: Trouble.TAKEN_OVER,
    0x97: Trouble.BUSY,
    0x98: Trouble.REFUSED,  # administrative action
}
"""Reason codes of a broker's DISCONNECT (MQTT 5, 3.14.2.1); all others are about what we sent."""


class LinkFault(ApplianceError):
    """There is no connection (any more). The message is for a person and holds no secret."""

    code = "mqtt.link"
    retry = True

    def __init__(self, trouble: Trouble, reason: str) -> None:
        super().__init__(reason)
        self.trouble = trouble


class VersionRefused(LinkFault):
    """The broker does not take this version of MQTT."""

    def __init__(self, reason: str, *, said: bool) -> None:
        super().__init__(Trouble.NETWORK, reason)
        self.said = said
        """It said so; otherwise it ended the connection without an answer, which may mean this."""


def fault_of_connack(code: int, name: str, broker: str, client_id: str) -> LinkFault:
    """What a refused CONNECT means (MQTT 5, 3.2.2.2)."""
    if code == UNSUPPORTED_VERSION:
        return VersionRefused(f"{broker} does not take this version of MQTT", said=True)
    if code in _CREDENTIALS:
        return LinkFault(
            Trouble.REFUSED, f"{broker} refuses mqtt.username and mqtt.password ({name.lower()}); set the right ones"
        )
    if code in _BUSY:
        return LinkFault(Trouble.BUSY, f"{broker} takes nobody just now ({name.lower()}); look at its log")
    return LinkFault(Trouble.REFUSED, f"{broker} refuses client id {client_id} ({name.lower()}); look at its log")


def fault_of_disconnect(code: int, name: str, broker: str, client_id: str) -> LinkFault:
    """What a broker's DISCONNECT means."""
    trouble = _ENDED.get(code, Trouble.UNSTABLE)
    if trouble is Trouble.TAKEN_OVER:
        return LinkFault(
            trouble, f"another client came to {broker} with our id {client_id}; give one of the two its own"
        )
    if trouble is Trouble.REFUSED:
        return LinkFault(trouble, f"{broker} put us out ({name.lower()}); look at its log and access list")
    return LinkFault(trouble, f"{broker} ended the connection ({name.lower()})")


def fault_of_error(error: Exception, broker: str) -> LinkFault:
    """What a failed attempt to connect means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return LinkFault(
            Trouble.CERTIFICATE,
            f"{broker}: its certificate is not trusted ({error.verify_message}); check mqtt.ca_file and mqtt.host",
        )
    if isinstance(error, ssl.SSLError):
        told = (error.reason or "no TLS there").replace("_", " ").lower()
        return LinkFault(Trouble.CERTIFICATE, f"{broker}: no TLS connection ({told}); check mqtt.tls, port and keys")
    for kind, told in _NETWORK:
        if isinstance(error, kind):
            return LinkFault(Trouble.NETWORK, f"{broker}{told}")
    if isinstance(error, OSError):
        return LinkFault(Trouble.NETWORK, f"{broker} cannot be reached ({error.strerror or type(error).__name__})")
    return LinkFault(Trouble.UNSTABLE, f"{broker} sent what is no MQTT ({type(error).__name__}); is it a broker?")


_NETWORK: Final = (
    (socket.gaierror, ": there is no such host; check mqtt.host"),
    (TimeoutError, " does not answer; is the machine on?"),
    (ConnectionRefusedError, ": nothing listens there; is the broker running?"),
)
