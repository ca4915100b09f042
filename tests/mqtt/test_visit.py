"""A visit that comes to nothing; what it does at a broker is shown in tests/peers/test_mqtt_leaving.py."""

from __future__ import annotations

import socket

import pytest

from appliance.mqtt import client_session
from appliance.mqtt.client_faults import LinkFault
from appliance.mqtt.visit import Visit
from appliance.settings import MqttSettings


def test_who_is_not_let_in_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_session, "CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        visit = Visit(MqttSettings(host="127.0.0.1", port=listener.getsockname()[1]), "wren-4f2a9c01")
        with pytest.raises(LinkFault, match="says nothing"):
            visit.__enter__()
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5.0)
            while connection.recv(1024):  # CONNECT, and then the end
                pass
