"""Real peers that several modules talk to: a sound server, a broker with a watcher and a gate, Home Assistant.

The slow tests with them on the real clock may be run once more, for this machine may be busy with other things. Once,
and told in the summary (`-rR`): a test that fails twice has failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.mqtt.discovery import Mode
from tests.peers.home_assistant import INSTALLATIONS, HomeAssistant, home_assistant, python_of
from tests.peers.mosquitto import Gate, Mosquitto, Watcher, mosquitto
from tests.peers.pulse import PulseServer, pulse_server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulseServer]:
    """Sound devices of the tests' own, as this process's own sound."""
    with pulse_server(tmp_path_factory.mktemp("pulse")) as running:
        yield running


@pytest.fixture
def pulse(server: PulseServer) -> PulseServer:
    """The sound server, as it was at first."""
    server.ready()
    return server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder) as running:
        yield running


@pytest.fixture(scope="module")
def lasting_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """One for all tests of a module, which then take it as their `broker`."""
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as running:
        yield running


@pytest.fixture
def watcher(broker: Mosquitto) -> Iterator[Watcher]:
    """Sees all that the broker passes on under `wren/`."""
    watching = Watcher(broker, "wren/#")
    yield watching
    watching.close()


@pytest.fixture
def gate(broker: Mosquitto) -> Iterator[Gate]:
    """Between Wren and the broker."""
    standing = Gate(broker.port)
    yield standing
    standing.close()


@pytest.fixture(scope="module", params=INSTALLATIONS)
def installation(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lasting_broker: Mosquitto
) -> Iterator[tuple[HomeAssistant, Mode]]:
    """A Home Assistant that knows only components, and one that takes whole devices; at `lasting_broker`."""
    requirements, version, mode = request.param
    # The newer one needs a Python that Wren itself does not.
    python = python_of(requirements, version, required=mode == "components")
    with home_assistant(python, tmp_path_factory.mktemp("hass"), lasting_broker) as running:
        yield running, mode
