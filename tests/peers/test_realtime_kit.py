"""RealtimeKit over a real D-Bus; the service behind it is a FAKE of this test, as the real one wants polkit."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from jeepney import HeaderFields, MessageType, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from appliance.audio import realtime
from appliance.audio.realtime import PRIORITY, RUN_LIMIT_US, raise_thread

KIT = "org.freedesktop.RealtimeKit1"
CONFIGURATION = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
<allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>
"""


class FakeKit:
    """FAKE RealtimeKit: notes what it is asked, and answers as it was told."""

    def __init__(self, connection: DBusConnection) -> None:
        self._connection = connection
        self.asked: list[tuple[str, tuple[int, int]]] = []
        self.refuses: str | None = None
        connection.send_and_get_reply(message_bus.RequestName(KIT))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                call = self._connection.receive()
            except OSError:  # the bus is gone: the test is over
                self._connection.close()
                return
            if call.header.message_type is not MessageType.method_call:
                continue
            self.asked.append((call.header.fields[HeaderFields.member], call.body))
            if self.refuses is None:
                self._connection.send(new_method_return(call))
            else:
                self._connection.send(new_error(call, "org.freedesktop.DBus.Error.AccessDenied", "s", (self.refuses,)))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKit]:
    if shutil.which("dbus-daemon") is None:
        message = "dbus-daemon missing: install what tools/test-packages.txt lists"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    socket, configuration = tmp_path / "bus", tmp_path / "bus.conf"
    configuration.write_text(CONFIGURATION.format(socket=socket), encoding="utf-8")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={socket}")

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    realtime._limit_runs.cache_clear()
    command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()  # it listens
            yield FakeKit(open_dbus_connection(bus="SYSTEM"))
        finally:
            daemon.kill()
            resource.setrlimit(resource.RLIMIT_RTTIME, before)
            realtime._limit_runs.cache_clear()


def test_who_may_not_asks_realtime_kit(kit: FakeKit) -> None:
    assert raise_thread(4711).how == "rtkit"
    assert kit.asked == [("MakeThreadRealtime", (4711, PRIORITY))]
    assert 0 < resource.getrlimit(resource.RLIMIT_RTTIME)[0] <= RUN_LIMIT_US, "it refuses whoever has no limit"


def test_its_refusal_is_passed_on(kit: FakeKit) -> None:
    kit.refuses = "not today"
    found = raise_thread(4711)
    assert found.how == "usual"
    assert "RealtimeKit refused: not today" in found.reason
