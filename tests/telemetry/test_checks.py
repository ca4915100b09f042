"""What `wren doctor` says of the settings file, and of what Wren can fall back to."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.settings import Settings
from appliance.telemetry.checks import check_settings


def test_a_settings_file_that_cannot_be_used_fails_a_check_and_the_defaults_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wren.toml"
    file.write_text('[mqtt]\nport = "many"\n')
    monkeypatch.setenv("WREN_CONFIG", str(file))
    settings, (check,) = check_settings()
    assert settings == Settings()
    assert (check.name, check.status) == ("settings", "fail")
    assert "line 2" in check.detail
    assert check.fix is not None


def test_a_setting_that_nobody_knows_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "wren.toml"
    file.write_text("[voice]\nlenght_scale = 1.1\n")
    monkeypatch.setenv("WREN_CONFIG", str(file))
    _, checks = check_settings()
    assert [check.status for check in checks] == ["warn"]
    assert "length_scale" in checks[0].detail


def test_without_a_file_the_defaults_are_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "none.toml"))
    settings, (check,) = check_settings()
    assert settings == Settings()
    assert check.status == "ok"
