"""Settings as the plan and the store take them."""

from __future__ import annotations

import pytest

from appliance.overrides import engine_overrides, open_store
from appliance.settings import EngineSettings, ModelSettings
from hw.plan import Override, Overrides


def test_auto_leaves_everything_to_the_plan() -> None:
    assert engine_overrides(EngineSettings()) == Overrides()


def test_what_is_set_is_set_for_what_has_a_choice() -> None:
    wanted = engine_overrides(EngineSettings(precision="fp32", threads=2, memory_mb=900))
    assert wanted.tasks == {"asr": Override(None, "fp32", 2), "tts": Override(None, "fp32", 2)}
    assert wanted.memory_mb == 900


def test_the_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WREN_MODELS_MAX_BYTES", raising=False)
    assert open_store(ModelSettings(max_mb=700)).max_bytes == 700_000_000
    monkeypatch.setenv("WREN_MODELS_MAX_BYTES", "5")
    assert open_store(ModelSettings(max_mb=700)).max_bytes == 5
    assert open_store(ModelSettings()).max_bytes == 5
