"""A mosquitto of the test's own: passwords, an access list, TLS with a client certificate; it can be stopped, killed
and made to hang. And another client, which sees what the broker passes on.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr

from appliance.settings import MqttSettings

__all__ = [
    "PASSWORDS",
    "Gate",
    "Mosquitto",
    "Seen",
    "Watcher",
    "at",
    "free_port",
    "mosquitto",
    "need_mosquitto",
    "until",
]

PASSWORDS: Final = {
    "wren": "wren-secret",
    "home": "home-secret",
    "limited": "limited-secret",
    "reader": "reader-secret",
}
ACCESS: Final = """\
user home
topic readwrite #
user wren
topic readwrite wren/#
topic readwrite homeassistant/#
topic read other/allowed/#
user limited
topic write wren/#
topic deny wren/box/secret
user reader
topic read #
"""
PROGRAMS: Final = ("mosquitto", "mosquitto_passwd", "mosquitto_sub", "openssl")
TIMEOUT_S: Final = 15.0


def need_mosquitto() -> None:
    """Skip where mosquitto is absent; fail in CI, where it must be there."""
    missing = [program for program in PROGRAMS if _which(program) is None]
    if not missing:
        return
    message = f"{', '.join(missing)} missing: install what tools/test-packages.txt lists"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(true: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> float:
    """Wait until something holds; gives the seconds it took."""
    start_s = time.monotonic()
    while not true():
        assert time.monotonic() - start_s < timeout_s, f"after {timeout_s:g} s still not: {what}"
        time.sleep(0.01)
    return time.monotonic() - start_s


class Mosquitto:
    """The broker. What it keeps between a stop and a start is what `persistence` says."""

    def __init__(self, folder: Path, *, persistence: bool = True, extra: str = "") -> None:
        self.folder = folder
        self.port, self.tls_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        passwords = folder / "passwords"
        passwords.write_text("".join(f"{name}:{password}\n" for name, password in PASSWORDS.items()))
        _run("mosquitto_passwd", "-U", str(passwords))
        (folder / "access").write_text(ACCESS)
        self._make_certificates()
        (folder / "mosquitto.conf").write_text(
            f"""user root
allow_anonymous false
password_file {passwords}
acl_file {folder}/access
persistence {str(persistence).lower()}
persistence_location {folder}/
log_dest file {folder}/mosquitto.log
listener {self.port} 127.0.0.1
listener {self.tls_port} 127.0.0.1
cafile {folder}/ca.pem
certfile {folder}/server.pem
keyfile {folder}/server.key
require_certificate true
{extra}
"""
        )
        for path in folder.iterdir():
            path.chmod(0o600)

    def start(self) -> None:
        """Start, and wait until it listens."""
        program = _which("mosquitto")
        assert program is not None
        self._process = subprocess.Popen(
            [program, "-c", str(self.folder / "mosquitto.conf")], stderr=subprocess.DEVNULL
        )
        until(self._listens, "mosquitto listens")

    def stop(self) -> None:
        """End it as a system does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word."""
        self._end(signal.SIGKILL)

    def forget(self, base: str, device: str) -> None:
        """Clear what a Wren has left, as docs/mqtt.md says."""
        program = _which("mosquitto_sub")
        assert program is not None
        filters = (f"{base}/#", f"homeassistant/device/{device}/config", f"homeassistant/+/{device}/+/config")
        subprocess.run(
            [
                *(program, "-h", "127.0.0.1", "-p", str(self.port), "-u", "home", "-P", PASSWORDS["home"]),
                *("-W", "2", "--remove-retained"),
                *(word for pattern in filters for word in ("-t", pattern)),
            ],
            check=False,  # it ends by the time that it is given, which it calls an error
            capture_output=True,
            timeout=TIMEOUT_S,
        )

    def hang(self, *, hanging: bool) -> None:
        """Stop it from answering while its connections stand, or let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if hanging else signal.SIGCONT)

    def log(self) -> str:
        """What it has written."""
        return (self.folder / "mosquitto.log").read_text(errors="replace")

    def close(self) -> None:
        """End whatever runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        except OSError:
            return False
        return True

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(TIMEOUT_S)

    def _make_certificates(self) -> None:
        folder = self.folder
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _certificate_authority(folder, "ca")
        _certificate_authority(folder, "stranger")
        for name in ("server", "client"):
            _run(
                *("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
                *("-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr"),
            )
            _run(
                *("openssl", "x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.pem"),
                *("-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2"),
                *("-extfile", f"{folder}/names", "-out", f"{folder}/{name}.pem"),
            )


def at(broker: Mosquitto, user: str = "wren", **changes: Any) -> MqttSettings:
    """Settings that lead there, with one of its accounts."""
    return MqttSettings(
        host="127.0.0.1", port=broker.port, username=user, password=SecretStr(PASSWORDS[user])
    ).model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that the broker passed on."""

    topic: str
    payload: bytes
    retain: bool


class Watcher:
    """Another client, which comes back by itself and notes what it is told."""

    def __init__(self, broker: Mosquitto, *filters: str, user: str = "home") -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.seen: list[Seen] = []
        self._ready = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"watcher-{os.urandom(4).hex()}")
        self._client.username_pw_set(user, PASSWORDS[user])
        self._client.reconnect_delay_set(1, 1)

        def connected(client: Any, *_: object) -> None:
            # With 0 the broker writes to us before it answers the sender: whoever kills it then cannot confuse us.
            client.subscribe([(one, 0) for one in filters] or [("nothing", 0)])

        self._client.on_connect = connected
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = lambda _client, _data, message: self.seen.append(
            Seen(message.topic, bytes(message.payload), bool(message.retain))
        )
        self._client.connect("127.0.0.1", broker.port, keepalive=60)
        self._client.loop_start()
        self.ready()

    def ready(self) -> None:
        """Wait until it is subscribed (again, after `absent`)."""
        assert self._ready.wait(TIMEOUT_S)

    def absent(self) -> None:
        """The broker is about to be restarted."""
        self._ready.clear()

    def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """Say something, and wait until the broker has it."""
        self._client.publish(topic, payload, qos, retain).wait_for_publish(TIMEOUT_S)

    def flood(self, messages: list[tuple[str, bytes]]) -> None:
        """Say all of this as fast as it goes."""
        sent = [self._client.publish(topic, payload, 0) for topic, payload in messages]
        sent[-1].wait_for_publish(TIMEOUT_S)

    def payloads(self, topic: str) -> list[bytes]:
        """What was seen on a topic, in order."""
        return [one.payload for one in list(self.seen) if one.topic == topic]

    def close(self) -> None:
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()


class Gate:
    """A TCP forwarder between Wren and the broker that can be shut, and that can swallow what passes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self._passing = threading.Event()
        self._passing.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def shut(self) -> None:
        """Let nobody through, and cut those who are."""
        self._open.clear()
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs.clear()

    def open(self) -> None:
        """Let everybody through."""
        self._open.set()

    def swallow(self, *, swallowing: bool) -> None:
        """Keep connections, but pass nothing on: the half-open link of a router that forgot us."""
        (self._passing.clear if swallowing else self._passing.set)()

    def close(self) -> None:
        """End it."""
        self._listener.close()
        self._passing.set()
        self.shut()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
                outer = socket.create_connection(("127.0.0.1", self._to)) if self._open.is_set() else None
            except OSError:
                if self._listener.fileno() < 0:
                    return
                outer = None
            if outer is None:
                inner.close()
                continue
            self._pairs.append((inner, outer))
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._forward, args=(source, sink), name="gate", daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self._passing.wait()
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


@contextmanager
def mosquitto(folder: Path, *, persistence: bool = True, extra: str = "") -> Iterator[Mosquitto]:
    """A running broker."""
    need_mosquitto()
    broker = Mosquitto(folder, persistence=persistence, extra=extra)
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


def _certificate_authority(folder: Path, name: str) -> None:
    _run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"),
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
