"""Discovery: what Home Assistant is told about Wren, as retained messages. Pure.

Current versions take one message for the whole device, older ones one for every component. Both name the same
entities (`<id> <key>` is what Home Assistant knows them by), so one form can take over from the other. Formats are
those of Home Assistant's documentation of MQTT discovery.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from appliance.mqtt.controls import ControlsView
from appliance.mqtt.entities import Config, Entity, Topics, component

__all__ = [
    "REMOVED",
    "DeviceInfo",
    "Discovery",
    "Mode",
    "Outgoing",
    "discovery_filters",
    "discovery_messages",
    "transition",
]

Mode = Literal["device", "components", "both", "off"]

Outgoing = tuple[str, bytes]
"""Topic and payload, to be retained."""

REMOVED: Final = b""
"""On a discovery topic: forget it."""
_MIGRATE: Final = b'{"migrate_discovery":true}'
"""On a discovery topic: keep the entities and their settings, for they are about to be told in the other form."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What is said about the device itself."""

    name: str
    model: str
    """The machine, as `Raspberry Pi 5`."""
    sw_version: str
    area: str | None = None
    """Where Home Assistant puts it at first."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """Where discovery messages of one appliance go, and in which form."""

    topics: Topics
    device: DeviceInfo
    prefix: str = "homeassistant"
    mode: Mode = "device"

    @property
    def device_topic(self) -> str:
        """Of the message for the whole device."""
        return f"{self.prefix}/device/{self.topics.device_id}/config"

    def component_topic(self, entity: Entity) -> str:
        """Of one entity's own message."""
        return f"{self.prefix}/{entity.platform}/{self.topics.device_id}/{entity.key}/config"

    @property
    def filters(self) -> tuple[str, str]:
        """See `discovery_filters`."""
        return discovery_filters(self.prefix, self.topics.device_id)


def discovery_filters(prefix: str, device: str) -> tuple[str, str]:
    """Matches all topics that discovery messages of an appliance may stand on; the two do not overlap."""
    return f"{prefix}/device/{device}/config", f"{prefix}/+/{device}/+/config"


def discovery_messages(discovery: Discovery, table: Sequence[Entity], controls: ControlsView) -> dict[str, bytes]:
    """Topic -> payload of everything that is to stand at the broker."""
    present = [entity for entity in table if entity.present(controls)]
    messages: dict[str, bytes] = {}
    if discovery.mode in {"device", "both"}:
        messages[discovery.device_topic] = _json(_device_payload(discovery, present, controls))
    if discovery.mode in {"components", "both"}:
        for entity in present:
            if not entity.device_only:
                told = component(entity, discovery.topics, controls)
                payload = {**told, "availability_topic": discovery.topics.availability, **_about(discovery)}
                messages[discovery.component_topic(entity)] = _json(payload)
    return messages


def transition(
    discovery: Discovery, found: Mapping[str, bytes], wanted: Mapping[str, bytes]
) -> tuple[list[Outgoing], list[Outgoing], list[Outgoing]]:
    """Three steps that lead from what stands at the broker to what is wanted, and leave no ghosts.

    First farewells, which are not to be retained (who is not there to hear them has nothing to forget); then what is
    wanted; then the topics that are to be empty. Each must have arrived before the next: they are partly on the same
    topics, where of two messages that wait only the later may go out. `found`: topic -> payload as the broker gave it,
    only topics that match `Discovery.filters`.
    """
    found = {topic: payload for topic, payload in found.items() if payload}
    stale = [topic for topic in found if topic not in wanted]
    farewells: list[Outgoing] = []
    for topic in stale:
        if _taken_over(discovery, topic, wanted):
            farewells += [*_told_no_more(discovery, topic, found[topic], wanted), (topic, _MIGRATE)]
    changed = {topic: payload for topic, payload in wanted.items() if found.get(topic) != payload}
    if farewells:
        changed = dict(wanted)  # whatever was told before Home Assistant let go of the old form did not count
    if discovery.device_topic in changed and discovery.device_topic in found:
        farewell = _with_farewells(found[discovery.device_topic], wanted[discovery.device_topic])
        if farewell is not None:
            farewells.append((discovery.device_topic, farewell))
    return farewells, list(changed.items()), [(topic, REMOVED) for topic in stale]


def _device_payload(discovery: Discovery, present: Sequence[Entity], controls: ControlsView) -> Config:
    components = {
        entity.key: {"p": entity.platform.value, **component(entity, discovery.topics, controls)} for entity in present
    }
    return {**_about(discovery), "availability_topic": discovery.topics.availability, "cmps": components}


def _about(discovery: Discovery) -> Config:
    device = discovery.device
    told: dict[str, object] = {
        "ids": [discovery.topics.device_id],
        "name": device.name,
        "mf": "Wren",
        "mdl": device.model,
        "sw": device.sw_version,
    }
    if device.area is not None:
        told["sa"] = device.area
    return {"dev": told, "o": {"name": "Wren", "sw": device.sw_version}}


def _taken_over(discovery: Discovery, topic: str, wanted: Mapping[str, bytes]) -> bool:
    """Whether what a stale topic told is told in the other form from now on."""
    if topic == discovery.device_topic:
        return bool(wanted)
    if discovery.device_topic not in wanted:
        return False
    _, platform, _, key, _ = topic.rsplit("/", 4)
    return _platform(_components(wanted[discovery.device_topic]).get(key)) == platform


def _told_no_more(discovery: Discovery, topic: str, old: bytes, wanted: Mapping[str, bytes]) -> list[Outgoing]:
    """The old device message without what components of their own do not tell: migrated, that would stay for ever."""
    if topic != discovery.device_topic:
        return []
    told = {tuple(other.rsplit("/", 4)[1::2]) for other in wanted}
    kept = {key: row for key, row in _components(old).items() if (_platform(row), key) in told}
    if len(kept) == len(_components(old)):
        return []
    farewell = _with_farewells(old, _json({**json.loads(old), "cmps": kept}))
    return [] if farewell is None else [(topic, farewell)]


def _with_farewells(old: bytes, new: bytes) -> bytes | None:
    """The new device message, with the components that vanish named by their platform alone, which removes them."""
    message = json.loads(new)
    kept, gone = message["cmps"], {}
    for key, told in _components(old).items():
        platform = _platform(told)
        if platform is not None and (key not in kept or _platform(kept[key]) != platform):
            gone[key] = {"p": platform}
    if not gone:
        return None
    message["cmps"] = {**kept, **gone}
    return _json(message)


def _platform(told: object) -> str | None:
    """Of one component."""
    platform = told.get("p", told.get("platform")) if isinstance(told, dict) else None
    return platform if isinstance(platform, str) else None


def _components(payload: bytes) -> Mapping[str, object]:
    """Of a device message that anybody may have left at the broker."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    components = message.get("cmps", message.get("components")) if isinstance(message, dict) else None
    return components if isinstance(components, dict) else {}


def _json(message: Config) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
