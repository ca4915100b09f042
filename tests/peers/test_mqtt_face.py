"""MQTT as `wren run` puts it together, over a real broker: commands reach what is really set, and are kept.

Broker, connection, bridge, controls, settings file and timers are real; the machine's own sound is fake.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from appliance.app import Wren
from appliance.audio.sounds import Sound
from appliance.settings import MqttSettings
from tests.peers.mosquitto import Mosquitto, Watcher, at, free_port, need_mosquitto, until
from tests.peers.mqtt_house import ask, latest, started

pytestmark = pytest.mark.models


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_STATE_DIR", str(tmp_path / "state"))


def test_what_is_set_over_mqtt_holds_at_once_and_after_a_restart(
    wren: Wren, broker: Mosquitto, watcher: Watcher, tmp_path: Path
) -> None:
    file = tmp_path / "wren.toml"
    with started(wren, at(broker), file) as house:
        base = house.base
        until(lambda: latest(watcher, f"{base}/availability") == b"online", "online")
        assert latest(watcher, f"{base}/state/volume") == b"80"
        for command, fields in [
            ("volume", {"percent": 35}),
            ("wake_word", {"name": "alexa"}),
            ("wake_sensitivity", {"percent": 60}),
            ("mute", {"muted": True}),
            ("test_sound", {}),
            ("restart", {}),
        ]:
            assert ask(house, watcher, command, **fields)["outcome"] == "done", command
        local = house.local
        assert (local.volume, local.muted, local.played) == (35.0, True, [Sound.TEST])
        assert local.wake is not None
        assert (local.wake.words, local.wake.threshold) == (("alexa",), 0.4)
        assert house.restarts == [True]
        until(lambda: latest(watcher, f"{base}/state/mute") == b"ON", "muted is shown")
    until(lambda: latest(watcher, f"{base}/availability") == b"offline", "the last word")
    with started(wren, at(broker), file) as house:
        assert house.base == base, "it stays the same device"
        until(lambda: latest(watcher, f"{base}/availability") == b"online", "online again")
        shown = {key: latest(watcher, f"{base}/state/{key}") for key in ("volume", "wake_word", "wake_sensitivity")}
        assert shown == {"volume": b"35", "wake_word": b"alexa", "wake_sensitivity": b"60"}
        assert latest(watcher, f"{base}/state/mute") == b"OFF", "nobody is left muted by a restart without knowing"


def test_what_cannot_be_done_is_answered_and_changes_nothing(
    wren: Wren, broker: Mosquitto, watcher: Watcher, tmp_path: Path
) -> None:
    file = tmp_path / "wren.toml"
    with started(wren, at(broker), file) as house:
        until(lambda: latest(watcher, f"{house.base}/availability") == b"online", "online")
        house.local.speaker = False
        assert ask(house, watcher, "test_sound")["code"] == "audio.no-device"
        assert ask(house, watcher, "voice", name="somebody else")["code"] == "mqtt.no_such"
        assert ask(house, watcher, "install_models")["code"] == "mqtt.nothing_new"
        assert ask(house, watcher, "listen")["code"] == "mqtt.no_microphone"
        file.mkdir()  # nothing can be kept any more
        assert ask(house, watcher, "volume", percent=10)["code"] == "appliance.settings"
        assert house.local.volume == 80.0
        assert latest(watcher, f"{house.base}/state/volume") == b"80"


def test_timers_are_those_that_are_spoken_of(wren: Wren, broker: Mosquitto, watcher: Watcher, tmp_path: Path) -> None:
    with started(wren, at(broker), tmp_path / "wren.toml") as house:
        until(lambda: latest(watcher, f"{house.base}/availability") == b"online", "online")
        timer = ask(house, watcher, "timer_start", seconds=300, name="pasta")["timer"]
        assert [found.name for found, _ in wren.assistant.timers()] == ["pasta"]
        assert "minutes left" in house.service.ask("how much time is left on my pasta timer").text
        house.service.ask("cancel my pasta timer")
        until(lambda: len(watcher.payloads(f"{house.base}/event/timer")) == 2, "told that it was cancelled")
        told = [json.loads(payload)["event_type"] for payload in watcher.payloads(f"{house.base}/event/timer")]
        assert told == ["started", "cancelled"]
        assert ask(house, watcher, "timer_cancel", timer=timer["id"])["code"] == "mqtt.no_timer"


def test_what_is_wrong_with_the_connection_is_told(
    wren: Wren, broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.mqtt.client.ECHO_TIMEOUT_S", 0.2)
    with started(wren, at(broker), tmp_path / "wren.toml") as house:
        until(lambda: house.mqtt.degraded == (), "all is well")
        broker.stop()
        until(lambda: "no connection to the MQTT broker" in str(house.mqtt.degraded), "the broker is gone")
    broker.start()
    with started(wren, at(broker, "limited"), tmp_path / "wren.toml") as house:
        until(lambda: "allow reading of wren/" in str(house.mqtt.degraded), "connected, and yet not right")


def test_what_was_lost_is_told(wren: Wren, broker: Mosquitto, watcher: Watcher, tmp_path: Path) -> None:
    with started(wren, at(broker), tmp_path / "wren.toml") as house:
        until(lambda: latest(watcher, f"{house.base}/availability") == b"online", "online")
        watcher.publish(f"{house.base}/command/say", b"x" * 10_000)
        until(lambda: "1 message was lost lately" in str(house.mqtt.degraded), "told on the page")
        until(lambda: b"lost lately" in (latest(watcher, f"{house.base}/state/problem") or b""), "and over MQTT")
        lost = json.loads(latest(watcher, f"{house.base}/state/messages_lost") or b"{}")
        assert (lost["count"], lost["in"]) == (1, 1)
        assert json.loads(watcher.payloads(f"{house.base}/error")[0])["code"] == "mqtt.too_large"


def test_a_broker_of_wrens_own_that_cannot_run_is_told_and_one_that_is_not_installed_is_not(
    wren: Wren, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_mosquitto()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started(wren, MqttSettings(port=port), tmp_path / "wren.toml") as house:
            until(lambda: f"port {port} is taken" in str(house.mqtt.degraded), "the port is taken")
    with started(wren, MqttSettings(port=free_port()), tmp_path / "wren.toml") as house:
        until(lambda: house.link.state().connected, "connected")
        until(lambda: house.mqtt.degraded == (), "all is well")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("appliance.mqtt.broker._SBIN", ())
    with started(wren, MqttSettings(port=free_port()), tmp_path / "wren.toml") as house:
        until(lambda: house.mqtt.broker.state().restarts, "tried")  # type: ignore[union-attr]
        assert house.mqtt.degraded == ()


def test_a_folder_that_cannot_be_written_costs_mqtt_alone(
    wren: Wren, broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WREN_STATE_DIR", str(tmp_path / "file"))
    with started(wren, at(broker), tmp_path / "wren.toml") as house:
        assert "no MQTT" in str(house.mqtt.degraded)
        assert "cannot be kept" in str(house.mqtt.degraded)
