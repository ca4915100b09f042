"""What an entity is, to Home Assistant and to our topics; the rows themselves are in `entities_table.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.mqtt.controls import ControlsView
from appliance.mqtt.state_view import View

__all__ = ["UNKNOWN", "Config", "Entity", "Platform", "Topics", "component", "state_payloads"]

Config = Mapping[str, object]

UNKNOWN: Final = "None"
"""What Home Assistant's MQTT sensors, numbers, selects and switches take for "not known"."""


class Platform(StrEnum):
    """Home Assistant's names."""

    BINARY_SENSOR = "binary_sensor"
    BUTTON = "button"
    EVENT = "event"
    NOTIFY = "notify"
    NUMBER = "number"
    SELECT = "select"
    SENSOR = "sensor"
    SIREN = "siren"
    SWITCH = "switch"
    TEXT = "text"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics of one appliance, under one base that the connection gives."""

    base: str
    """`<prefix>/<id>`."""
    availability: str

    @property
    def device_id(self) -> str:
        """The last part of the base: letters, digits, `_` and `-`."""
        return self.base.rpartition("/")[2]

    @property
    def error(self) -> str:
        """Where a refused command is answered."""
        return f"{self.base}/error"

    @property
    def result(self) -> str:
        """Where a command that was carried out is answered."""
        return f"{self.base}/result"

    def state(self, key: str) -> str:
        """Retained."""
        return f"{self.base}/state/{key}"

    def event(self, key: str) -> str:
        """Not retained."""
        return f"{self.base}/event/{key}"

    def command(self, name: str) -> str:
        """Wren takes commands here; `+` for all."""
        return f"{self.base}/command/{name}"


@dataclass(frozen=True, slots=True)
class Entity:
    """One row: its key names its topics, its unique id and its place in the discovery message."""

    key: str
    platform: Platform
    name: str
    value: Callable[[View], object] | None = None
    """What its state topic holds: a text, a number, a mapping (sent as JSON) or None for "not known"; left out for an
    entity without a state."""
    command: str | None = None
    """Name of the command that it sends, a bare value as Home Assistant sends it."""
    commanded: Callable[[ControlsView], bool] = lambda _: True
    """False where the command could do nothing; the entity then only shows."""
    config: Config = field(default_factory=dict)
    """What else Home Assistant is told, in its own words."""
    varies: Callable[[ControlsView], Config] | None = None
    """The part of that which depends on the appliance: the options of a select."""
    category: str | None = None
    """`config` or `diagnostic`; None for what people look at."""
    icon: str | None = None
    present: Callable[[ControlsView], bool] = lambda _: True
    """False where this machine has no such thing; the entity is then not shown at all."""
    device_only: bool = False
    """Told only in the device-based message: versions that take nothing else do not know this platform."""
    attributes: bool = False
    """`value` gives a JSON object that is shown as the entity's attributes too."""


def component(entity: Entity, topics: Topics, controls: ControlsView) -> dict[str, object]:
    """What Home Assistant is told about an entity, without device, origin and availability."""
    told: dict[str, object] = {"name": entity.name, "unique_id": f"{topics.device_id}_{entity.key}"}
    if entity.platform is Platform.EVENT:
        told["state_topic"] = topics.event(entity.key)
    elif entity.value is not None:
        told["state_topic"] = topics.state(entity.key)
    if entity.attributes:
        told["json_attributes_topic"] = topics.state(entity.key)
    if entity.command is not None and entity.commanded(controls):
        told["command_topic"] = topics.command(entity.command)
    if entity.category is not None:
        told["entity_category"] = entity.category
    if entity.icon is not None:
        told["icon"] = entity.icon
    told |= entity.config
    if entity.varies is not None:
        told |= entity.varies(controls)
    return told


def state_payloads(table: Sequence[Entity], topics: Topics, view: View) -> dict[str, bytes]:
    """State topic -> payload of every entity that has a state here."""
    return {
        topics.state(entity.key): _encoded(entity.value(view))
        for entity in table
        if entity.value is not None and entity.present(view.controls)
    }


def _encoded(value: object) -> bytes:
    if value is None:
        return UNKNOWN.encode()
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
