"""A broker of Wren's own, where the home has none: mosquitto as a child, on loopback, with a password made here.

mosquitto and not a Python broker inside Wren: see docs/dependencies.md. It is a separate program, speaks MQTT 5, takes
a flood without taking Wren's interpreter from the sound, and Debian keeps it.
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from appliance.errors import ProgramMissingError
from appliance.mqtt.backoff import Backoff, Trouble
from appliance.mqtt.client_id import MqttFolderError, keep_secret

if TYPE_CHECKING:
    from appliance.settings import MqttSettings

__all__ = ["EMBEDDED_PORT", "BrokerState", "EmbeddedBroker", "find_mosquitto"]

_LOG = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
EMBEDDED_PORT: Final = 10388
"""Beside Wren's page; 1883 is where Debian's own mosquitto sits once it is installed."""
USER: Final = "wren"
STOP_TIMEOUT_S: Final = 3.0
_PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{32}")
_SBIN: Final = ("/usr/sbin", "/usr/local/sbin")


@dataclass(frozen=True, slots=True)
class BrokerState:
    """How it stands."""

    running: bool
    installed: bool
    """False where mosquitto was looked for and is not on this machine."""
    reason: str
    """Why it does not run, with what to do; empty while it does."""
    port: int
    restarts: int
    """Times it ended by itself since the start."""
    subscribe: str
    """A command that shows what goes over it. Neither it nor the process it starts shows the password."""


class EmbeddedBroker:
    """Use: `start`, `settings` for the client, `close`. What goes wrong is logged, counted and tried again; Wren goes
    on without it meanwhile."""

    def __init__(self, folder: Path, *, port: int | None = None, backoff: Backoff | None = None) -> None:
        """`folder` is Wren's own (see `state_folder`): password, its hash and the configuration lie there (0600)."""
        self._folder = folder.absolute()
        self._port = port or EMBEDDED_PORT
        self._backoff = backoff or Backoff()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._reason = "not started yet"
        self._installed = True
        self._restarts = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqtt-broker", daemon=True)

    def start(self) -> None:
        """Begin to run it; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        with self._lock:
            if self._process is not None:
                self._process.terminate()
        if self._thread.is_alive():
            self._thread.join(2 * STOP_TIMEOUT_S)

    def settings(self, settings: MqttSettings) -> MqttSettings:
        """The same, leading to this broker. Raises `MqttFolderError`."""
        own = {"host": HOST, "port": self._port, "username": USER, "password": SecretStr(self._password())}
        return settings.model_copy(update={**own, "tls": False, "ca_file": None, "client_certificate": None})

    def state(self) -> BrokerState:
        """How it stands just now."""
        with self._lock:
            running = self._process is not None and self._process.poll() is None
            reason = "" if running else self._reason
            return BrokerState(running, self._installed, reason, self._port, self._restarts, self._subscribe())

    def _subscribe(self) -> str:
        return f"XDG_CONFIG_HOME={shlex.quote(str(self._folder / 'client'))} mosquitto_sub -t '#' -v"

    def _password(self) -> str:
        return keep_secret(self._folder / "password", lambda: secrets.token_urlsafe(24), _PASSWORD)

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s, told, installed = time.monotonic(), "", True
            try:
                told = self._serve()
            except ProgramMissingError as error:
                told, installed = str(error), False
            except MqttFolderError as error:
                told = str(error)
            except (OSError, subprocess.SubprocessError) as error:
                told = f"mosquitto cannot be run ({error})"
            if self._stop.is_set():
                return
            trouble = self._backoff.ended(Trouble.NETWORK, time.monotonic() - began_s)
            with self._lock:
                news = told != self._reason
                self._reason, self._installed = told, installed
                self._restarts += 1
            if news:
                _LOG.error("Wren's own MQTT broker does not run: %s", told)
            self._stop.wait(self._backoff.failed(trouble))

    def _serve(self) -> str:
        """Run it until it ends; gives its last words."""
        configuration = self._configure()
        command = [_program("mosquitto"), "-c", str(configuration)]
        if (guard := shutil.which("setpriv")) is not None:
            # It must not outlive Wren, however Wren ends: the next start would find its port taken.
            command = [guard, "--pdeathsig", "TERM", *command]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        with self._lock:
            self._process = process
            if self._stop.is_set():
                process.terminate()
        words = "it ended without a word"
        assert process.stderr is not None
        try:
            for line in process.stderr:
                words = line.strip().partition(": ")[2] or line.strip()
                _LOG.info("mosquitto: %s", words)
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _LOG.warning("Wren's own MQTT broker does not end; it is killed")
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        if "in use" in words:
            words = f"port {self._port} is taken by another program; set mqtt.port to a free one"
        return f"{words} (mosquitto, exit code {process.returncode})"

    def _configure(self) -> Path:
        """Write what it reads, all of it private. Raises `MqttFolderError`, `ProgramMissingError`, `OSError`."""
        password = self._password()
        hashed, configuration = self._folder / "broker.users", self._folder / "broker.conf"
        _write(hashed, f"{USER}:{password}\n")
        # In place, so that the password is in no command line, which everybody on the machine can read.
        subprocess.run([_program("mosquitto_passwd"), "-U", str(hashed)], check=True, capture_output=True)
        client = self._folder / "client"
        client.mkdir(mode=0o700, exist_ok=True)
        for name in ("mosquitto_sub", "mosquitto_pub"):  # what these read of themselves
            _write(client / name, f"-h {HOST}\n-p {self._port}\n-u {USER}\n-P {password}\n")
        _write(
            configuration,
            "# Written by Wren at every start; changes are lost. To use a broker of your own, set mqtt.host.\n"
            f"user {getpass.getuser()}\n"  # without it, one started as root would become another and read nothing
            f"listener {self._port} {HOST}\n"
            "allow_anonymous false\n"
            f"password_file {hashed}\n"
            "persistence false\n"  # Wren says everything anew at each connection; flash cards wear out
            "max_connections 50\n"
            "max_packet_size 1048576\n"
            "log_dest stderr\nlog_type error\nlog_type warning\n",
        )
        return configuration


def find_mosquitto(name: str = "mosquitto") -> str | None:
    """Path of the program; None where it is not installed."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))  # Debian keeps it where users do not look
    return shutil.which(name, path=path)


def _program(name: str) -> str:
    found = find_mosquitto(name)
    if found is None:
        raise ProgramMissingError(
            f"{name} is not installed; install it (apt install mosquitto), or set mqtt.host to a broker of your own"
        )
    return found


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
