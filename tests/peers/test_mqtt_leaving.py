"""Taking Wren away from a broker, and moving it: `wren mqtt`, as a person uses it; nothing of it is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.app import Wren
from appliance.cli import main
from appliance.mqtt import bridge
from tests.peers.mosquitto import Mosquitto, Watcher, at, until
from tests.peers.mqtt_house import House, latest, started, use_broker

pytestmark = [pytest.mark.models, pytest.mark.slow]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WREN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "wren.toml"))
    return tmp_path / "wren.toml"


def standing(broker: Mosquitto) -> dict[str, bytes]:
    """All that is retained at the broker."""
    watcher = Watcher(broker, "#")
    watcher.publish("other/last", b"1")
    until(lambda: watcher.payloads("other/last"), "all that stands has come")
    watcher.close()
    return {one.topic: one.payload for one in watcher.seen if one.retain}


def online(broker: Mosquitto, house: House) -> None:
    watcher = Watcher(broker, f"{house.base}/availability")
    until(lambda: latest(watcher, f"{house.base}/availability") == b"online", "online")
    watcher.close()


@pytest.mark.parametrize("discovery", ["components", "device", "both"])
def test_who_takes_wren_away_finds_nothing_left(
    wren: Wren, broker: Mosquitto, file: Path, capsys: pytest.CaptureFixture[str], discovery: str
) -> None:
    use_broker(broker, file)
    watcher = Watcher(broker)
    watcher.publish("wren/wren-00000000/state/state", b"idle", retain=True)
    watcher.publish("homeassistant/sensor/other/state/config", b"{}", retain=True)
    watcher.close()
    with started(wren, at(broker, discovery=discovery), file) as house:
        online(broker, house)
        assert main(["mqtt", "remove"]) == 1, "it would all come again"
        assert "stop it first" in capsys.readouterr().err
        until(lambda: latest_of(broker, house), "nothing was taken from the one that runs")
    before = standing(broker)
    assert main(["mqtt", "remove", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    others = {"wren/wren-00000000/state/state", "homeassistant/sensor/other/state/config"}
    assert set(told["removed"]) == set(before) - others
    assert told["left"] == []
    assert set(standing(broker)) == others
    assert main(["mqtt", "remove"]) == 0
    assert "Nothing" in capsys.readouterr().out
    assert main(["mqtt", "remove", "--id", "wren-00000000"]) == 0, "one that is gone, with its memory card"
    assert "1 topic " in capsys.readouterr().out


def latest_of(broker: Mosquitto, house: House) -> bool:
    return standing(broker).get(f"{house.base}/availability") == b"online"


def test_what_the_broker_does_not_let_go_is_told(
    wren: Wren, broker: Mosquitto, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(wren, at(broker), file) as house:
        online(broker, house)
    use_broker(broker, file, "reader")
    assert main(["mqtt", "remove"]) == 1
    assert "access list" in capsys.readouterr().err
    assert f"{house.base}/availability" in standing(broker)


def test_status_tells_what_stands(
    wren: Wren, broker: Mosquitto, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_broker(broker, file)
    assert main(["mqtt", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["availability"] is None
    with started(wren, at(broker), file) as house:
        online(broker, house)
        assert main(["mqtt", "status", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["availability"], told["topics"], told["protocol"]) == ("online", f"{house.base}/#", "5")
        assert (told["states"]["volume"], told["states"]["last_intent"]) == (80, None)
        assert told["discovery"] == sum(topic.endswith("/config") for topic in standing(broker))
        assert house.link.state().reconnects == 0, "who looks puts nobody out"
    watcher = Watcher(broker)
    watcher.publish(f"{house.base}/state/odd", b"\x1b[31mred\xff", retain=True)
    watcher.close()
    assert main(["mqtt", "status"]) == 0
    told = capsys.readouterr().out
    assert "availability         offline" in told
    assert "odd                  ?[31mred" in told, "a terminal obeys no stranger"
    broker.stop()
    assert main(["mqtt", "status"]) == 1
    assert "nothing listens there" in capsys.readouterr().err


def test_prefixes_that_are_changed_leave_no_ghosts(
    wren: Wren, broker: Mosquitto, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "GHOSTS_S", 0.5)
    with started(wren, at(broker), file) as house:
        online(broker, house)
        number = len(standing(broker))
    for changes in ({"prefix": "house/wren"}, {"prefix": "house/wren", "discovery_prefix": "ha"}, {}):
        settings = at(broker, "home", **changes)
        with started(wren, settings, file) as house:
            online(broker, house)
            until(lambda: len(standing(broker)) == number, "what stood before is gone")
            prefixes = {topic.partition("/wren-")[0] for topic in standing(broker)}
            assert settings.prefix in prefixes
            assert all(one == settings.prefix or one.startswith(settings.discovery_prefix) for one in prefixes)
            noted = file.parent / "state" / "mqtt" / "places.json"
            until(lambda noted=noted: len(json.loads(noted.read_text())) == 1, "nothing to look for any more")  # type: ignore[misc]
