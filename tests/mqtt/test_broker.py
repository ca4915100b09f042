"""Wren's own broker: only for those with the password, only on this machine, and back when it ended."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.mqtt.backoff import Backoff
from appliance.mqtt.broker import EmbeddedBroker
from appliance.mqtt.client import MqttClient
from appliance.mqtt.client_id import MqttFolderError, keep_secret, kept_id, state_folder
from appliance.mqtt.protocol import Kind
from appliance.settings import MqttSettings
from tests.peers.mosquitto import free_port, need_mosquitto, until

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    need_mosquitto()
    running = EmbeddedBroker(tmp_path / "mqtt", port=free_port(), backoff=Backoff(lambda: 1.0))
    running.start()
    yield running
    running.close()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _child(port: int) -> int:
    """The broker's process, found by its configuration."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"mosquitto") and f"listener {port} " in Path(command[2].decode()).read_text():
                return int(folder.name)
        except (OSError, IndexError):
            continue
    raise AssertionError(f"no mosquitto on {port}")


def _answer(port: int, user: str | None, password: str | None) -> str:
    """What the broker says to a CONNECT."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    said: list[str] = []
    client = Client(CallbackAPIVersion.VERSION2, client_id="stranger")
    if user is not None:
        client.username_pw_set(user, password)

    def connected(_client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        said.append(str(reason))

    client.on_connect = connected
    client.connect("127.0.0.1", port)
    client.loop_start()
    until(lambda: said, "an answer")
    client.disconnect()
    client.loop_stop()
    return said[0]


def test_it_takes_those_with_the_password_and_nobody_else(broker: EmbeddedBroker, tmp_path: Path) -> None:
    settings = broker.settings(MqttSettings())
    assert settings.password is not None
    assert settings.port is not None
    port, password = settings.port, settings.password.get_secret_value()
    until(lambda: _listens(port), "it listens")
    assert broker.state().running
    assert _answer(port, None, None) == "Not authorized"
    assert _answer(port, "wren", "wrong") == "Not authorized"
    assert _answer(port, "wren", password) == "Success"
    addresses = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert f"0100007F:{port:04X}" in addresses
    assert f"00000000:{port:04X}" not in addresses
    folder = tmp_path / "mqtt"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in (folder, folder / "client"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert {path.name for path in files if password in path.read_text()} == {
        "password",
        "mosquitto_sub",
        "mosquitto_pub",
    }
    command = Path(f"/proc/{_child(port)}/cmdline").read_text()
    assert password not in command + broker.state().subscribe + repr(settings)


def test_the_command_that_is_shown_works_and_shows_no_password(broker: EmbeddedBroker) -> None:
    settings = broker.settings(MqttSettings())
    assert settings.password is not None
    until(lambda: _listens(settings.port or 0), "it listens")
    client = MqttClient(settings, client_id="wren-1", availability_topic="wren/box/availability")
    client.start()
    try:
        until(lambda: client.state().connected, "connected")
        client.publish("wren/box/state", b"idle", kind=Kind.STATE, retain=True)
        until(lambda: client.state().queued == 0, "said")
        command = f"exec env {broker.state().subscribe} -C 4 -W 20"
        shown = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, text=True)
        arguments = Path(f"/proc/{shown.pid}/cmdline")
        until(lambda: b"mosquitto_sub" in arguments.read_bytes().split(b"\0")[0], "it runs")
        assert settings.password.get_secret_value() not in arguments.read_text()
        for _ in range(3):  # with the retained state and availability more than it waits for
            client.publish("wren/box/event", b"wake", kind=Kind.EVENT)
            time.sleep(0.2)
        told, _ = shown.communicate(timeout=30)
        assert "wren/box/state idle" in told
    finally:
        client.close()


def test_it_comes_back_when_it_was_killed_and_ends_with_us(broker: EmbeddedBroker) -> None:
    settings = broker.settings(MqttSettings())
    port = settings.port or 0
    until(lambda: _listens(port), "it listens")
    client = MqttClient(settings, client_id="wren-1", availability_topic="wren/box/availability")
    client.start()
    try:
        until(lambda: client.state().connected, "connected")
        first = _child(port)
        os.kill(first, signal.SIGKILL)
        until(lambda: broker.state().restarts == 1 and broker.state().running, "it runs again")
        until(lambda: client.state().reconnects == 1, "the client is back")
        second = _child(port)
        assert second != first
    finally:
        client.close()
    broker.close()
    until(lambda: not Path(f"/proc/{second}").exists(), "it has ended")
    assert not _listens(port)


ORPHANER = """
import sys, time
from pathlib import Path
from appliance.mqtt.broker import EmbeddedBroker
EmbeddedBroker(Path(sys.argv[1]), port=int(sys.argv[2])).start()
time.sleep(60)
"""


def test_it_does_not_outlive_a_wren_that_is_killed(tmp_path: Path) -> None:
    need_mosquitto()
    port = free_port()
    wren = subprocess.Popen([sys.executable, "-c", ORPHANER, str(tmp_path / "mqtt"), str(port)], cwd=REPOSITORY)
    try:
        until(lambda: _listens(port), "it listens")
    finally:
        wren.kill()
        wren.wait()
    until(lambda: not _listens(port), "it ends as well")


def test_a_port_that_is_taken_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    need_mosquitto()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = EmbeddedBroker(tmp_path / "mqtt", port=port)
        broker.start()
        until(lambda: broker.state().restarts >= 2, "it tries again")
        state = broker.state()
        broker.close()
    assert not state.running
    assert f"port {port} is taken by another program; set mqtt.port" in state.reason
    assert caplog.text.count("does not run") == 1


def test_without_mosquitto_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("appliance.mqtt.broker._SBIN", ())
    broker = EmbeddedBroker(tmp_path / "mqtt", port=free_port())
    broker.start()
    until(lambda: broker.state().restarts, "tried")
    broker.close()
    assert "apt install mosquitto" in broker.state().reason


def test_an_id_is_made_once_and_anew_where_the_file_was_meddled_with(tmp_path: Path) -> None:
    first = kept_id(tmp_path / "a")
    assert kept_id(tmp_path / "a") == first
    assert kept_id(tmp_path / "b") != first
    (tmp_path / "a" / "id").write_bytes(b"\xff\0")
    assert kept_id(tmp_path / "a") not in {first, ""}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["id"]


def test_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MqttFolderError, match="cannot be kept"):
        kept_id(tmp_path / "file")


def test_two_that_start_at_once_keep_one_word(tmp_path: Path) -> None:
    import re
    import threading

    made: list[str] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        made.append(keep_secret(tmp_path / "x" / "word", lambda: os.urandom(8).hex(), re.compile("[0-9a-f]{16}")))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1


def test_the_state_folder_is_not_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_folder({"WREN_STATE_DIR": str(tmp_path)}) == tmp_path / "mqtt"
    monkeypatch.setattr("appliance.mqtt.client_id.DEVICE_STATE", tmp_path)
    assert state_folder({}) == tmp_path / "mqtt"
    monkeypatch.setattr("appliance.mqtt.client_id.DEVICE_STATE", tmp_path / "absent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_folder({}) == tmp_path / "state" / "wren" / "mqtt"
