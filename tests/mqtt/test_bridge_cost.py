"""What the bridge publishes while nothing happens that is told over MQTT: nothing, and it loses no event meanwhile."""

from __future__ import annotations

import time

import pytest

from appliance import events
from appliance.mqtt import bridge
from appliance.mqtt.bridge import Bridge, BridgeSettings
from appliance.mqtt.discovery import DeviceInfo
from tests.mqtt.bridge_fakes import FakeControls, FakeLink, FakeService


def test_events_that_nobody_sees_over_mqtt_publish_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "SETTLE_S", 0.05)
    link, service = FakeLink(), FakeService()
    running = Bridge(link, service, FakeControls(), BridgeSettings(DeviceInfo("Wren", "PC", "0.1.0")))  # type: ignore[arg-type]
    running.start()
    link.connect()
    time.sleep(0.3)
    before = len(link.sent)
    for number in range(200):
        service.hub.emit(events.PartialText(number / 10, "local", "u", f"word {number}"))
    time.sleep(0.3)
    assert running.dropped == 0
    running.close()
    assert len(link.sent) == before
