"""What Home Assistant takes over MQTT, written down from its published documentation; raises AssertionError.

Facts from the pages "MQTT", "MQTT discovery" and those of each platform: required and allowed keys of a discovery
payload, where topics may stand, which values are enumerated. Keys that are allowed but that Wren does not use are left
out on purpose: a key that is not here is a mistake of ours until somebody has looked it up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ID = re.compile(r"[A-Za-z0-9_-]+")

COMMON = {
    "name", "unique_id", "entity_category", "icon", "json_attributes_topic",
}  # fmt: skip
REQUIRED: Mapping[str, set[str]] = {
    "binary_sensor": {"state_topic"},
    "button": {"command_topic"},
    "event": {"state_topic", "event_types"},
    "notify": {"command_topic"},
    "number": {"command_topic"},
    "select": {"command_topic", "options"},
    "sensor": {"state_topic"},
    "siren": {"command_topic"},
    "switch": {"command_topic"},
    "text": {"command_topic"},
    "update": {"state_topic"},
}
ALLOWED: Mapping[str, set[str]] = {
    "binary_sensor": {"state_topic", "device_class", "value_template"},
    "button": {"command_topic", "device_class"},
    "event": {"state_topic", "event_types", "device_class"},
    "notify": {"command_topic"},
    "number": {"state_topic", "command_topic", "min", "max", "step", "mode", "unit_of_measurement", "device_class"},
    "select": {"state_topic", "command_topic", "options"},
    "sensor": {
        "state_topic", "device_class", "options", "unit_of_measurement", "state_class", "value_template",
        "suggested_display_precision",
    },
    "siren": {"state_topic", "command_topic", "support_duration", "support_volume_set", "available_tones"},
    "switch": {"state_topic", "command_topic", "device_class"},
    "text": {"state_topic", "command_topic", "min", "max", "mode", "pattern"},
    "update": {"state_topic", "command_topic", "payload_install", "device_class"},
}  # fmt: skip
CATEGORIES = {"config", "diagnostic"}
CLASSES: Mapping[str, set[str]] = {
    "binary_sensor": {"problem"},
    "button": {"restart", "identify", "update"},
    "sensor": {"enum", "duration", "temperature"},
}
UNITS = {"duration": {"ms", "s", "min", "h", "d"}, "temperature": {"°C", "°F", "K"}}
DEVICE_KEYS = {
    "ids", "cns", "name", "mf", "mdl", "mdl_id", "sw", "hw", "sn", "sa", "cu", "via_device",
}  # fmt: skip
ORIGIN_KEYS = {"name", "sw", "url"}
ROOT_KEYS = {"dev", "o", "cmps", "availability_topic", "state_topic", "command_topic", "qos", "encoding"}
UPDATE_KEYS = {
    "installed_version", "latest_version", "title", "release_summary", "release_url", "entity_picture", "in_progress",
    "update_percentage",
}  # fmt: skip


def check_topic(topic: str) -> None:
    """A topic that can be published to."""
    assert isinstance(topic, str)
    assert topic
    assert len(topic.encode()) <= 65535
    assert not set("+#\0") & set(topic), topic


def check_about(payload: Mapping[str, Any]) -> None:
    """Device and origin."""
    device, origin = payload["dev"], payload["o"]
    assert set(device) <= DEVICE_KEYS, device
    assert device.get("ids") or device.get("cns"), "a device needs an identifier or a connection"
    assert all(isinstance(value, str) for key, value in device.items() if key not in {"ids", "cns"})
    assert set(origin) <= ORIGIN_KEYS, origin
    assert isinstance(origin["name"], str)
    assert origin["name"]


def check_component(platform: str, told: Mapping[str, Any]) -> None:
    """One entity, without what belongs to the device."""
    missing = REQUIRED[platform] - set(told)
    assert not missing, f"{platform} lacks {missing}"
    unknown = set(told) - ALLOWED[platform] - COMMON
    assert not unknown, f"{platform} does not know {unknown}"
    assert told["name"]
    assert told["unique_id"]
    assert told.get("entity_category", "config") in CATEGORIES
    assert "icon" not in told or told["icon"].startswith("mdi:")
    for key, value in told.items():
        if key.endswith("_topic"):
            check_topic(value)
    device_class = told.get("device_class")
    if device_class is not None:
        assert device_class in CLASSES[platform]
        assert device_class not in UNITS or told["unit_of_measurement"] in UNITS[device_class]
        assert (device_class == "enum") == ("options" in told)
        assert device_class != "enum" or not {"unit_of_measurement", "state_class"} & set(told)
    if platform == "select":
        assert told["options"] == list(dict.fromkeys(told["options"]))
        assert all(isinstance(option, str) for option in told["options"])
    if platform == "number":
        assert told["min"] < told["max"]
    if platform == "text":
        assert 0 <= told["min"] <= told["max"] <= 255


def check_device_message(topic: str, payload: bytes, prefix: str = "homeassistant") -> Mapping[str, Any]:
    """The message for a whole device: `<prefix>/device/[<node>/]<id>/config`; gives it back read."""
    assert topic.startswith(f"{prefix}/device/")
    parts = topic.removeprefix(f"{prefix}/device/").split("/")
    assert len(parts) in {2, 3}
    assert parts[-1] == "config"
    assert all(ID.fullmatch(part) for part in parts[:-1]), topic
    told: dict[str, Any] = json.loads(payload)
    assert set(told) <= ROOT_KEYS, set(told) - ROOT_KEYS
    check_about(told)
    check_topic(told["availability_topic"])
    assert told["cmps"]
    for key, component in told["cmps"].items():
        assert ID.fullmatch(key), key
        rest = {name: value for name, value in component.items() if name != "p"}
        assert component["p"] in REQUIRED
        if rest:  # with the platform alone it is removed
            check_component(component["p"], rest)
    named = [component["unique_id"] for component in told["cmps"].values() if "unique_id" in component]
    assert len(set(named)) == len(named)
    return told


def check_component_message(topic: str, payload: bytes, prefix: str = "homeassistant") -> Mapping[str, Any]:
    """The message for one entity: `<prefix>/<platform>/<node>/<object>/config`."""
    assert topic.startswith(f"{prefix}/")
    platform, node, key, last = topic.removeprefix(f"{prefix}/").split("/")
    assert last == "config"
    assert ID.fullmatch(node)
    assert ID.fullmatch(key)
    told: dict[str, Any] = json.loads(payload)
    check_about(told)
    check_topic(told["availability_topic"])
    own = {name: value for name, value in told.items() if name not in {"dev", "o", "availability_topic"}}
    check_component(platform, own)
    return told


def check_update_state(payload: bytes) -> None:
    """The JSON of an update entity: keys it does not know make Home Assistant refuse the whole message."""
    told = json.loads(payload)
    assert set(told) <= UPDATE_KEYS
    assert isinstance(told["in_progress"], bool)
    percent = told["update_percentage"]
    assert percent is None or 0 <= percent <= 100
    for key in ("installed_version", "latest_version", "title"):
        assert key not in told or isinstance(told[key], str)
