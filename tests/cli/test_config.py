"""`wren config` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance.cli import main


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "conf" / "wren.toml"
    monkeypatch.setenv("WREN_CONFIG", str(path))
    return path


def test_set_then_show(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "wake.words", "hey_jarvis, okay_nabu"]) == 0
    assert main(["config", "set", "wake.threshold", "0.5"]) == 0
    capsys.readouterr()
    assert main(["config", "show", "wake.words"]) == 0
    assert capsys.readouterr().out == '["hey_jarvis", "okay_nabu"]\n'
    assert main(["config", "show", "wake", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"words": ["hey_jarvis", "okay_nabu"], "threshold": 0.5, "refractory_s": 1.5}
    assert main(["config", "show", "--json", "area"]) == 0
    assert capsys.readouterr().out == "null\n"


def test_show_tells_defaults_from_what_is_set(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "set", "audio.volume_percent", "80"])
    capsys.readouterr()
    assert main(["config", "show"]) == 0
    lines = {line.split(" = ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "# default:" in lines["wake.words"]
    assert "# default:" not in lines["audio.volume_percent"]


def test_a_secret_is_never_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "correct-horse-battery"
    assert main(["config", "set", "web.token", secret]) == 0
    assert main(["config", "show"]) == 0
    assert main(["config", "show", "web.token"]) == 0
    assert main(["config", "show", "--json"]) == 0
    assert main(["config", "set", "web.token", "horse battery staple"]) == 2
    assert main(["config", "check"]) == 0
    out, err = capsys.readouterr()
    assert secret in file.read_text()
    assert secret not in out + err
    assert "horse" not in out + err
    assert out.count("***") == 4


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("wake.thresold", "0.5", "did you mean wake.threshold?"),
        ("threshold", "0.5", "did you mean wake.threshold?"),
        ("wake", "x", "wake is a group; set one of wake.words"),
        ("nothing.like.it", "x", "`wren config show` lists them"),
        ("wake.threshold", "3", "wake.threshold = 3.0: should be less than 1; nothing was changed"),
        ("web.port", "http", "web.port takes a number, not 'http'"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], key: str, value: str, told: str
) -> None:
    assert main(["config", "set", key, value]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not file.exists()


def test_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert "defaults apply" in capsys.readouterr().out
    file.parent.mkdir()
    file.write_text("foo = 1\narea = 'hall'\n")
    assert main(["config", "check"]) == 0
    out, err = capsys.readouterr()
    assert "1 setting, all right" in out
    assert "line 1: unknown setting foo" in err
    file.write_text("[wake]\nthreshold = 3\n")
    assert main(["config", "check"]) == 1
    assert "line 2: wake.threshold = 3: should be less than 1; run: wren config set" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "file" / "wren.toml"))
    assert main(["config", "set", "area", "hall"]) == 1
    error = capsys.readouterr().err
    assert "cannot be" in error
    assert error.count("\n") == 1
