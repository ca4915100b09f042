"""The entities: one table from which discovery, state topics and command topics are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from appliance.mqtt.controls import ControlsView, Versions
from appliance.mqtt.entities import Config, Entity, Platform
from appliance.mqtt.state_view import PHASES, View, percentile

__all__ = ["ENTITIES"]

HEAT_LEVELS: Final = ("normal", "warm", "hot")
TASKS: Final[Mapping[str, str]] = {"asr": "Speech recognition", "tts": "Speech synthesis"}
MAX_TEXT: Final = 255
"""Characters that Home Assistant's text entities take at most."""
_TIME_MS: Final[Config] = {
    "unit_of_measurement": "ms",
    "device_class": "duration",
    "state_class": "measurement",
    "suggested_display_precision": 0,
}


def _heard(controls: ControlsView) -> bool:
    """This machine's own microphone is in use."""
    return controls.microphone is not None


def _speaks(controls: ControlsView) -> bool:
    """This machine's own speaker is in use."""
    return controls.volume_percent is not None


def _muted(view: View) -> str | None:
    microphone = view.controls.microphone
    return None if microphone is None else "ON" if microphone == "muted" else "OFF"


def _latest_response(view: View) -> int | None:
    return view.response_ms[-1] if view.response_ms else None


def _wake_words(controls: ControlsView) -> str | None:
    return " + ".join(controls.wake_words) or None


def _wake_word_options(controls: ControlsView) -> Config:
    """What is in use is always among them: several words at once can be shown, though not chosen here."""
    used = _wake_words(controls)
    return {"options": list(dict.fromkeys((*controls.wake_word_options, *([used] if used else []))))}


def _versions(versions: Versions, title: str) -> dict[str, object]:
    """Home Assistant's JSON for an update. Where nobody has asked for a newer one, the newest is left out: it then
    shows "unknown", and not "up-to-date", which would be a promise."""
    known = {"installed_version": versions.installed, "latest_version": versions.latest}
    told: dict[str, object] = {name: version for name, version in known.items() if version is not None}
    return {**told, "title": title, "in_progress": versions.busy, "update_percentage": versions.percent}


def _timers(view: View) -> dict[str, object]:
    rows = [
        {
            "id": timer.id,
            "name": timer.name,
            "total_s": timer.total_s,
            "state": "active" if timer.active else "paused",
        }
        for timer in view.timers
    ]
    return {"count": len(rows), "timers": rows}


def _lost(view: View) -> dict[str, object]:
    """What too much at once, or a broker that was away too long, has cost since the start."""
    link = view.link
    if link is None:
        return {"count": None}  # which its template makes "unknown"
    return {
        "count": link.dropped + link.refused + view.untold,
        "out": link.dropped,
        "in": link.refused,
        "untold": view.untold,
        "faults": link.faults,
        "reconnects": link.reconnects,
    }


def _engine(task: str) -> Entity:
    return Entity(
        f"engine_{task}",
        Platform.SENSOR,
        f"{TASKS[task]} engine",
        value=lambda view: {"engine": view.engines.get(task), "model": view.models.get(task)},
        config={"value_template": "{{ value_json.engine }}"},
        attributes=True,
        category="diagnostic",
        icon="mdi:chip",
    )


ENTITIES: Final[tuple[Entity, ...]] = (
    # ---- what it does
    Entity(
        "state",
        Platform.SENSOR,
        "State",
        value=lambda view: view.phase,
        config={"device_class": "enum", "options": list(PHASES)},
        icon="mdi:account-voice",
    ),
    Entity(
        "last_intent",
        Platform.SENSOR,
        "Last intent",
        value=lambda view: view.last_intent,
        icon="mdi:head-lightbulb-outline",
    ),
    Entity("response_time", Platform.SENSOR, "Last response time", value=_latest_response, config=_TIME_MS),
    Entity(
        "response_time_p50",
        Platform.SENSOR,
        "Median response time",
        value=lambda view: percentile(view.response_ms, 50),
        config=_TIME_MS,
        category="diagnostic",
    ),
    Entity(
        "response_time_p95",
        Platform.SENSOR,
        "Response time, 95th percentile",
        value=lambda view: percentile(view.response_ms, 95),
        config=_TIME_MS,
        category="diagnostic",
    ),
    Entity(
        "timers",
        Platform.SENSOR,
        "Timers",
        value=_timers,
        config={"value_template": "{{ value_json.count }}", "state_class": "measurement"},
        attributes=True,
        icon="mdi:timer-outline",
    ),
    # ---- the machine
    Entity(
        "temperature",
        Platform.SENSOR,
        "Temperature",
        value=lambda view: None if view.temperature_c is None else round(view.temperature_c, 1),
        config={"device_class": "temperature", "unit_of_measurement": "°C", "state_class": "measurement"},
        category="diagnostic",
    ),
    Entity(
        "throttling",
        Platform.SENSOR,
        "Throttling",
        value=lambda view: view.heat,
        config={"device_class": "enum", "options": list(HEAT_LEVELS)},
        category="diagnostic",
        icon="mdi:thermometer-alert",
    ),
    Entity(
        "problem",
        Platform.BINARY_SENSOR,
        "Problem",
        value=lambda view: {
            "problem": "ON" if view.controls.degraded else "OFF",
            "reasons": list(view.controls.degraded),
        },
        config={"device_class": "problem", "value_template": "{{ value_json.problem }}"},
        attributes=True,
        category="diagnostic",
    ),
    Entity(
        "messages_lost",
        Platform.SENSOR,
        "Messages lost",
        value=_lost,
        config={"value_template": "{{ value_json.count }}", "state_class": "total_increasing"},
        attributes=True,
        category="diagnostic",
        icon="mdi:email-off-outline",
    ),
    *(_engine(task) for task in TASKS),
    # ---- what can be set
    Entity("mute", Platform.SWITCH, "Mute", value=_muted, command="mute", icon="mdi:microphone-off", present=_heard),
    Entity(
        "volume",
        Platform.NUMBER,
        "Volume",
        value=lambda view: view.controls.volume_percent,
        command="volume",
        config={"min": 0, "max": 100, "step": 1, "mode": "slider", "unit_of_measurement": "%"},
        icon="mdi:volume-high",
        present=_speaks,
    ),
    Entity(
        "wake_sensitivity",
        Platform.NUMBER,
        "Wake word sensitivity",
        value=lambda view: view.controls.wake_sensitivity,
        command="wake_sensitivity",
        config={"min": 1, "max": 99, "step": 1, "mode": "slider", "unit_of_measurement": "%"},
        category="config",
        icon="mdi:ear-hearing",
        present=_heard,
    ),
    Entity(
        "wake_word",
        Platform.SELECT,
        "Wake word",
        value=lambda view: _wake_words(view.controls),
        command="wake_word",
        varies=_wake_word_options,
        category="config",
        icon="mdi:microphone-message",
        present=_heard,
    ),
    Entity(
        "voice",
        Platform.SELECT,
        "Voice",
        value=lambda view: view.controls.voice,
        command="voice",
        varies=lambda controls: {"options": list(controls.voices)},
        category="config",
        icon="mdi:account-tie-voice",
        present=lambda controls: bool(controls.voices),
    ),
    Entity(
        "language",
        Platform.SELECT,
        "Language",
        value=lambda view: view.controls.language,
        command="language",
        varies=lambda controls: {"options": list(controls.languages)},
        category="config",
        icon="mdi:translate",
        present=lambda controls: bool(controls.languages),
    ),
    # ---- what happened
    Entity("wake", Platform.EVENT, "Wake word heard", config={"event_types": ["wake"]}, icon="mdi:bullhorn"),
    Entity(
        "intent",
        Platform.EVENT,
        "Intent",
        config={"event_types": ["understood", "not_understood"]},
        icon="mdi:comment-check-outline",
    ),
    Entity(
        "timer",
        Platform.EVENT,
        "Timer",
        config={"event_types": ["started", "changed", "cancelled", "finished"]},
        icon="mdi:timer-alert-outline",
    ),
    # ---- what can be asked for
    Entity("listen", Platform.BUTTON, "Listen", command="listen", icon="mdi:microphone", present=_heard),
    Entity("stop", Platform.BUTTON, "Stop", command="stop", icon="mdi:stop"),
    Entity(
        "restart",
        Platform.BUTTON,
        "Restart",
        command="restart",
        config={"device_class": "restart"},
        category="config",
    ),
    Entity(
        "test_sound",
        Platform.BUTTON,
        "Test sound",
        command="test_sound",
        category="diagnostic",
        icon="mdi:bell-ring-outline",
        present=_speaks,
    ),
    Entity("say", Platform.TEXT, "Say", command="say", config={"max": MAX_TEXT, "min": 1}, icon="mdi:message-text"),
    Entity(
        "announce",
        Platform.TEXT,
        "Announce",
        command="announce",
        config={"max": MAX_TEXT, "min": 1},
        icon="mdi:bullhorn-outline",
    ),
    Entity("notify_say", Platform.NOTIFY, "Say", command="say", device_only=True),
    Entity("notify_announce", Platform.NOTIFY, "Announce", command="announce", device_only=True),
    Entity(
        "alarm",
        Platform.SIREN,
        "Alarm",
        value=lambda view: "ON" if view.controls.ringing else "OFF",
        command="alarm",
        config={"support_duration": True, "support_volume_set": False},
        icon="mdi:alarm-light-outline",
        present=_speaks,
    ),
    # ---- versions
    Entity(
        "update_system",
        Platform.UPDATE,
        "Wren",
        value=lambda view: _versions(view.controls.system, "Wren"),
        category="config",
        present=lambda controls: controls.system.installed is not None,
    ),
    Entity(
        "update_models",
        Platform.UPDATE,
        "Model packs",
        value=lambda view: _versions(view.controls.models, "Model packs"),
        command="install_models",
        commanded=lambda controls: controls.models_can_install,
        config={"payload_install": "INSTALL"},
        category="config",
        present=lambda controls: controls.models.latest is not None,
    ),
)
