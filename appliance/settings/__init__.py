"""Settings: one TOML file that a person may edit, read once at start, changed one key at a time."""

from __future__ import annotations

from appliance.settings.file import (
    LoadedSettings,
    SettingRefusedError,
    change_settings,
    ensure_web_token,
    load_settings,
    settings_path,
)
from appliance.settings.keys import SettingKey, parse_value, setting_keys
from appliance.settings.model import (
    AudioSettings,
    EngineSettings,
    ListeningSettings,
    ModelSettings,
    MqttSettings,
    Settings,
    VoiceSettings,
    WakeWordSettings,
    WebSettings,
)

__all__ = [
    "AudioSettings",
    "EngineSettings",
    "ListeningSettings",
    "LoadedSettings",
    "ModelSettings",
    "MqttSettings",
    "SettingKey",
    "SettingRefusedError",
    "Settings",
    "VoiceSettings",
    "WakeWordSettings",
    "WebSettings",
    "change_settings",
    "ensure_web_token",
    "load_settings",
    "parse_value",
    "setting_keys",
    "settings_path",
]
