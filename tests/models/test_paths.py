"""Where the store is: chosen, on the device, or in the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.paths import store_root


def test_the_environment_decides_first(tmp_path: Path) -> None:
    assert store_root({"WREN_MODELS_DIR": str(tmp_path / "here")}, device_state=tmp_path) == tmp_path / "here"


def test_a_device_keeps_packs_with_its_state(tmp_path: Path) -> None:
    assert store_root({}, device_state=tmp_path) == tmp_path / "models"


def test_a_desktop_keeps_packs_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store_root({}, device_state=tmp_path / "absent") == tmp_path / "wren" / "models"


def test_a_tilde_means_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert store_root({"WREN_MODELS_DIR": "~/packs"}) == Path("/home/ada/packs")
