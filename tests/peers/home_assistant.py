"""A real, headless Home Assistant of the test's own, on a free port of this machine: started, onboarded, asked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.peers.mosquitto import PASSWORDS, Mosquitto, free_port

__all__ = ["INSTALLATIONS", "HomeAssistant", "home_assistant", "python_of"]

REPOSITORY: Final = Path(__file__).resolve().parent.parent.parent
MAKER: Final = REPOSITORY / "tools" / "test-home-assistant"
INSTALLATIONS: Final = (
    pytest.param(("home_assistant_2024_3.txt", "3.11", "components"), id="2024.3"),
    pytest.param(("home_assistant_2025_4.txt", "3.13", "device"), id="2025.4"),
)
"""Requirements, the Python they need, and how Wren is made known: one that knows only components, and one that takes
whole devices."""
START_TIMEOUT_S: Final = 180.0
"""It takes ten seconds on a free machine; the tests' machine is seldom free."""
STATE_TIMEOUT_S: Final = 30.0
MAKE_TIMEOUT_S: Final = 1800.0
CANNOT_BE_MADE: Final = 3
"""Exit code of the maker where there is no Python, or no network, to make it with."""
CONFIGURATION: Final = """\
homeassistant:
  name: Test
  latitude: 50
  longitude: 10
  elevation: 0
  unit_system: metric
  time_zone: UTC
  country: GB
  language: en
http:
  server_host: 127.0.0.1
  server_port: {port}
frontend:
config:
logger:
  default: warning
  logs:
    homeassistant.components.mqtt: info
"""


def python_of(requirements: str, version: str, *, required: bool = True) -> Path:
    """The Python of an environment with a Home Assistant, made if need be with a Python of that version.

    Skips where it cannot be made, and in CI, which has an hour for everything, where it is not `required` and has not
    been made before (`PYTHON=… tools/test-home-assistant …` makes it).
    """
    if not required and os.environ.get("CI") and not _made(requirements):
        pytest.skip(f"the environment of {requirements} has not been made, and in CI only the first one is")
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"Python {version} is not here, which the Home Assistant of {requirements} needs")
    made = subprocess.run(
        [MAKER, Path(__file__).with_name(requirements)],
        capture_output=True,
        text=True,
        timeout=MAKE_TIMEOUT_S,
        check=False,
        env={**os.environ, "PYTHON": interpreter},
    )
    assert made.returncode in {0, CANNOT_BE_MADE}, made.stderr
    if made.returncode != 0:
        pytest.skip(f"{MAKER} failed, is there a network? {made.stderr.strip()[-500:]}")
    return Path(made.stdout.strip())


def _interpreter(version: str) -> str | None:
    """One that runs: a version manager's stand-in is found although it may lead nowhere."""
    name = f"python{version}"
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
    for candidate in filter(None, (shutil.which(name), *map(str, kept))):
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def _made(requirements: str) -> bool:
    digest = hashlib.sha256(Path(__file__).with_name(requirements).read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (cache / "wren" / "peers" / f"home-assistant-{digest}" / "complete").exists()


class HomeAssistant:
    """One installation; it can be stopped and started again with what it knows."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python, self._folder = python, folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._token: str | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "configuration.yaml").write_text(CONFIGURATION.format(port=self.port))

    # ---- the program

    def start(self) -> None:
        """Start, and wait until it runs; the first time an owner is made."""
        with (self._folder / "hass.out").open("ab") as out:
            self._process = subprocess.Popen(
                [self._python.with_name("hass"), "--config", self._folder, "--skip-pip"], stdout=out, stderr=out
            )
        if self._token is None:
            self._until(lambda: self._ask("GET", "/api/onboarding") is not None, "its page answers", START_TIMEOUT_S)
            self._token = self._onboard()
        self._until(lambda: self._ask("GET", "/api/config")["state"] == "RUNNING", "it runs", START_TIMEOUT_S)

    def stop(self) -> None:
        """End it as a system does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(START_TIMEOUT_S)

    def close(self) -> None:
        """End whatever runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10.0)

    def log(self) -> str:
        """What it has written."""
        return (self._folder / "hass.out").read_text(errors="replace")

    # ---- what it can be asked

    def add_mqtt(self, broker: Mosquitto) -> None:
        """Add the integration as a person would, through the page's own calls."""
        flow = self._ask("POST", "/api/config/config_entries/flow", {"handler": "mqtt"})
        data = {"broker": "127.0.0.1", "port": broker.port, "username": "home", "password": PASSWORDS["home"]}
        done = self._ask("POST", f"/api/config/config_entries/flow/{flow['flow_id']}", data)
        assert done["type"] == "create_entry", done

    def state(self, entity: str) -> dict[str, Any] | None:
        """An entity with its attributes; None where there is none."""
        try:
            found: dict[str, Any] = self._ask("GET", f"/api/states/{entity}")
        except urllib.error.HTTPError:
            return None
        return found

    def states(self, part: str) -> dict[str, str]:
        """Entity -> state of all whose name contains a part."""
        return {row["entity_id"]: row["state"] for row in self._ask("GET", "/api/states") if part in row["entity_id"]}

    def wait_state(self, entity: str, state: str, timeout_s: float = STATE_TIMEOUT_S) -> dict[str, Any]:
        """Wait until an entity has a state."""
        self._until(lambda: (self.state(entity) or {}).get("state") == state, f"{entity} is {state}", timeout_s)
        found = self.state(entity)
        assert found is not None
        return found

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Wait for anything else."""
        self._until(condition, what, timeout_s)

    def call(self, service: str, entity: str, **data: object) -> None:
        """`domain.service` on an entity."""
        domain, _, name = service.partition(".")
        self._ask("POST", f"/api/services/{domain}/{name}", {"entity_id": entity, **data})

    def template(self, text: str) -> str:
        """A template, rendered: the way to its device registry."""
        return str(self._ask("POST", "/api/template", {"template": text}, raw=True))

    # ---- inside

    def _onboard(self) -> str:
        client = f"http://127.0.0.1:{self.port}/"
        owner = {"client_id": client, "name": "Owner", "username": "o", "password": "p", "language": "en"}
        code = self._ask("POST", "/api/onboarding/users", owner)["auth_code"]
        form = {"client_id": client, "grant_type": "authorization_code", "code": code}
        request = urllib.request.Request(f"{client}auth/token", urllib.parse.urlencode(form).encode())
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            token: str = json.load(answer)["refresh_token"]
        self._refresh = token
        return self._access()

    def _access(self) -> str:
        """An access token lives half an hour: longer than these tests, but not than a debugger."""
        form = {"client_id": f"http://127.0.0.1:{self.port}/", "grant_type": "refresh_token"}
        form["refresh_token"] = self._refresh
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/auth/token", urllib.parse.urlencode(form).encode()
        )
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            token: str = json.load(answer)["access_token"]
        return token

    def _ask(self, method: str, path: str, data: object = None, *, raw: bool = False) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        if data is not None:
            request.data = json.dumps(data).encode()
            request.add_header("Content-Type", "application/json")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request, timeout=20.0) as answer:
            body = answer.read()
        return body.decode() if raw else json.loads(body)

    def _until(self, condition: Callable[[], object], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                if condition():
                    return
            except OSError:  # not listening yet, or an answer that is an error
                pass
            assert self._process is None or self._process.poll() is None, f"it has ended:\n{self.log()[-3000:]}"
            assert time.monotonic() < deadline_s, f"after {timeout_s:g} s still not: {what}\n{self.log()[-3000:]}"
            time.sleep(0.1)


@contextmanager
def home_assistant(python: Path, folder: Path, broker: Mosquitto) -> Iterator[HomeAssistant]:
    """A running one that knows the broker."""
    home = HomeAssistant(python, folder)
    try:
        home.start()
        home.add_mqtt(broker)
        yield home
    finally:
        home.close()
