"""MQTT as a whole: the link to a broker (of our own, where none is set) and the bridge, started and ended as one."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import TYPE_CHECKING, Final

from appliance.errors import ApplianceError
from appliance.mqtt.bridge import Bridge, BridgeSettings
from appliance.mqtt.broker import EmbeddedBroker
from appliance.mqtt.client import MqttClient
from appliance.mqtt.client_id import kept_id, state_folder
from appliance.mqtt.discovery import DeviceInfo
from appliance.mqtt.places import Place, former_places, ghost_filters, keep_place
from appliance.telemetry.losses import RecentLosses

if TYPE_CHECKING:
    from appliance.mqtt.controls import Controls
    from appliance.service import Service
    from appliance.settings import MqttSettings

__all__ = ["Mqtt"]

_LOG = logging.getLogger(__name__)

NAME: Final = "Wren"


class Mqtt:
    """Begins to connect when it is made; what goes wrong is in `degraded`, and Wren goes on without it."""

    def __init__(self, settings: MqttSettings, service: Service, controls: Controls, machine: str | None) -> None:
        """`machine` is what the device is called in Home Assistant, as `Raspberry Pi 5`."""
        self.broker: EmbeddedBroker | None = None
        self.link: MqttClient | None = None
        self._bridge: Bridge | None = None
        self._trouble: str | None = None
        self._losses = RecentLosses()
        if settings.host is None and not settings.embedded:
            return
        try:
            self._open(settings, service, controls, machine)
        except ApplianceError as error:  # a folder that cannot be written: no MQTT, and all else as ever
            self._trouble = f"no MQTT: {error}"
            _LOG.warning("%s", self._trouble)

    def _open(self, settings: MqttSettings, service: Service, controls: Controls, machine: str | None) -> None:
        folder = state_folder()
        if settings.host is None:
            self.broker = EmbeddedBroker(folder, port=settings.port)
            settings = self.broker.settings(settings)
            self.broker.start()
        own = kept_id(folder)
        # The id at the broker may be set by hand; topics keep the one that was made, or entities would move.
        self.link = MqttClient(settings, client_id=own, availability_topic=f"{settings.prefix}/{own}/availability")
        device = DeviceInfo(NAME, machine or "Linux", metadata.version("wren"), service.wren.area)
        # A broker of our own keeps nothing.
        now = Place(settings.prefix, settings.discovery_prefix)
        former = () if self.broker is not None else former_places(folder, now)
        told = BridgeSettings(
            device,
            discovery_prefix=settings.discovery_prefix,
            discovery=settings.discovery,
            transcripts=settings.transcripts,
            models={task: choice.model for task, choice in service.wren.plan.tasks.items()},
            ghosts=ghost_filters(former, now, own),
            on_cleared=lambda: keep_place(folder, now),
        )
        self._bridge = Bridge(self.link, service, controls, told)
        self._bridge.start()
        self.link.start()

    @property
    def degraded(self) -> tuple[str, ...]:
        """What does not work, a sentence each. A broker of our own that is merely not installed is no trouble."""
        if self._trouble is not None:
            return (self._trouble,)
        if self.broker is not None and not (own := self.broker.state()).running:
            return (f"Wren's own MQTT broker does not run: {own.reason}",) if own.installed else ()
        if self.link is None or self._bridge is None:
            return ()
        state = self.link.state()
        told = []
        if state.reason:
            where = "MQTT" if state.connected else f"no connection to the MQTT broker {state.broker}"
            told.append(f"{where}: {state.reason}")
        if lost := self._losses.recent(state.dropped + state.refused + state.faults + self._bridge.dropped):
            told.append(
                f"MQTT: {lost} message{'s were' if lost > 1 else ' was'} lost lately: too much at once, or the broker "
                "was away for too long; see the sensor messages_lost"
            )
        return tuple(told)

    def close(self) -> None:
        """Say goodbye and end all threads; blocks for seconds at most."""
        if self._bridge is not None:
            self._bridge.close()
        if self.link is not None:
            self.link.close()
        if self.broker is not None:
            self.broker.close()
