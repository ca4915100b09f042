"""TLS to the broker: always with the certificate and the name checked."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from appliance.mqtt.backoff import Trouble
from appliance.mqtt.client_faults import LinkFault

if TYPE_CHECKING:
    from pathlib import Path

    from appliance.settings import MqttSettings

__all__ = ["tls_context"]


def tls_context(settings: MqttSettings) -> ssl.SSLContext | None:
    """What the settings ask for; None without TLS. Reads the files anew: they may have been renewed.

    Raises `LinkFault` where a file is missing or is not what it should be.
    """
    certificate, key = settings.client_certificate, settings.client_key
    if not settings.tls:
        if settings.ca_file is not None or certificate is not None:
            raise LinkFault(Trouble.CERTIFICATE, "certificates are set, but mqtt.tls is off; turn it on or remove them")
        return None
    if key is not None and certificate is None:
        raise LinkFault(Trouble.CERTIFICATE, "mqtt.client_key is set without mqtt.client_certificate; set both")
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("mqtt.ca_file", settings.ca_file, error) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            # Without a passphrase given, OpenSSL would ask for one on the terminal and wait for ever.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ssl.SSLError) as error:
            raise _unusable("mqtt.client_certificate or mqtt.client_key", certificate, error) from None
    return context


def _unusable(name: str, path: Path | None, error: OSError) -> LinkFault:
    why = error.strerror if not isinstance(error, ssl.SSLError) else error.reason or "not PEM"
    return LinkFault(Trouble.CERTIFICATE, f"{name} ({path}) cannot be used: {why}")
