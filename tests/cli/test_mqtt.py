"""`wren mqtt` without a broker; what it does at one is shown in tests/peers/test_mqtt_leaving.py."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.settings import change_settings


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "wren.toml"))
    monkeypatch.setenv("WREN_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "wren.toml"


@pytest.fixture
def port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number: int = taken.getsockname()[1]
    return number


def test_a_broker_that_does_not_answer_is_told_without_its_password(
    file: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    change_settings(
        file, {"mqtt.host": "127.0.0.1", "mqtt.port": port, "mqtt.username": "me", "mqtt.password": "hunter2-hunter2"}
    )
    for action in ("status", "remove"):
        assert main(["mqtt", action]) == 1
        told = capsys.readouterr()
        assert "nothing listens there" in told.err
        assert len(told.err.splitlines()) == 1
        assert "hunter2" not in told.out + told.err


def test_a_broker_of_wrens_own_runs_while_wren_does_and_keeps_nothing(
    file: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    change_settings(file, {"mqtt.port": port})
    assert main(["mqtt", "status"]) == 1
    assert "runs while `wren run` does" in capsys.readouterr().err
    assert main(["mqtt", "remove"]) == 0
    assert "keeps nothing" in capsys.readouterr().out
    assert main(["mqtt", "remove", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": [], "left": []}


@pytest.mark.parametrize("wrong", ["box", "wren-", "wren-4F2A9C01", "#", "wren-4f2a9c01/#", ""])
def test_an_id_that_is_none_is_wrong_use(file: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    assert main(["mqtt", "remove", "--id", wrong]) == 2
    assert "looks like wren-4f2a9c01" in capsys.readouterr().err


def test_without_any_broker_it_says_how_to_set_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_settings(file, {"mqtt.embedded": False})
    assert main(["mqtt", "status"]) == 2
    assert "wren config set mqtt.host" in capsys.readouterr().err
