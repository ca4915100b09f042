"""MQTT as `wren run` puts it together: service, sound, controls, link and bridge; commands and their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from appliance.app import Wren
from appliance.controls import HouseControls
from appliance.mqtt.client import MqttClient
from appliance.mqtt.face import Mqtt
from appliance.running import LocalAudio
from appliance.service import Service
from appliance.settings import AudioSettings, MqttSettings, Settings, change_settings, load_settings
from appliance.web import MachineState
from tests.mqtt.local_audio import FakeLocalAudio
from tests.peers.mosquitto import PASSWORDS, Mosquitto, Watcher, until
from tests.peers.pulse import MICROPHONE, SPEAKER

__all__ = ["House", "ask", "latest", "started", "use_broker", "virtual_sound"]

SOUND_S: Final = 30.0
"""For sound devices to open on a busy machine."""


class House:
    """One start of Wren, as far as MQTT sees it."""

    def __init__(self, wren: Wren, mqtt: MqttSettings, file: Path, sound: Callable[[Service, Settings], Any]) -> None:
        settings = load_settings(file).settings
        self.service = Service(wren)
        self.local = sound(self.service, settings)
        self.restarts: list[bool] = []
        self._mqtt: Mqtt | None = None
        controls = HouseControls(
            self.service, self.local, self._machine, settings, file, lambda: self.restarts.append(True)
        )
        self._mqtt = Mqtt(mqtt, self.service, controls, "Test machine")

    @property
    def mqtt(self) -> Mqtt:
        """The face."""
        assert self._mqtt is not None
        return self._mqtt

    @property
    def link(self) -> MqttClient:
        """Its connection."""
        assert self.mqtt.link is not None
        return self.mqtt.link

    @property
    def base(self) -> str:
        """Of all topics."""
        return self.link.availability_topic.rpartition("/")[0]

    def hear(self) -> None:
        """Open real sound devices, and wait until they run."""
        self.local.start()
        until(lambda: self.local.settled and self.local.state().microphone == "live", "it hears", SOUND_S)

    def close(self) -> None:
        """End it as `wren run` does."""
        self.mqtt.close()
        self.local.close()
        self.service.close()

    def _machine(self) -> MachineState:
        told = () if self._mqtt is None else self._mqtt.degraded
        return MachineState(self.local.state().microphone, told)


def use_broker(broker: Mosquitto, file: Path, user: str = "wren", **more: str) -> None:
    """Set this broker, as a person does, in the settings file that `wren` reads."""
    mine = {"host": "127.0.0.1", "port": broker.port, "username": user, "password": PASSWORDS[user], **more}
    change_settings(file, {f"mqtt.{name}": value for name, value in mine.items()})


@contextmanager
def started(
    wren: Wren,
    mqtt: MqttSettings,
    file: Path,
    sound: Callable[[Service, Settings], Any] = lambda _, settings: FakeLocalAudio(settings),
) -> Iterator[House]:
    """Wren, from its start to its end."""
    house = House(wren, mqtt, file, sound)
    try:
        yield house
    finally:
        house.close()


def virtual_sound(service: Service, settings: Settings) -> LocalAudio:
    """Real sound, for `started`, on the virtual devices of the fixture `pulse`."""
    audio = AudioSettings(microphone=MICROPHONE, speaker=SPEAKER, buffer_frames=480, volume_percent=100)
    return LocalAudio(service, settings.model_copy(update={"audio": audio}))


def latest(watcher: Watcher, topic: str) -> bytes | None:
    return next(reversed(watcher.payloads(topic)), None)


def ask(house: House, watcher: Watcher, command: str, **fields: object) -> dict[str, Any]:
    """Send a command, and wait for its answer on either topic."""
    number = f"n{len(watcher.seen)}"
    watcher.publish(f"{house.base}/command/{command}", json.dumps({**fields, "id": number}).encode())

    def answers() -> list[dict[str, Any]]:
        told = (*watcher.payloads(f"{house.base}/result"), *watcher.payloads(f"{house.base}/error"))
        return [answer for payload in told if (answer := json.loads(payload))["id"] == number]

    until(answers, f"{command} is answered")
    return answers()[0]
