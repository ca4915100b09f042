"""Wren in a real Home Assistant: entities with right states, through restarts; commands act; removal leaves nothing.

Home Assistant, the broker and Wren's connection are real; what Wren is connected to (service, controls) is fake.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from appliance import events
from appliance.audio.sounds import Sound
from appliance.intent.types import Understanding
from appliance.mqtt.bridge import Bridge, BridgeSettings
from appliance.mqtt.client import MqttClient
from appliance.mqtt.controls import Versions
from appliance.mqtt.discovery import DeviceInfo, Mode
from appliance.mqtt.entities_table import ENTITIES
from hw.thermal import Reading
from tests.mqtt.bridge_fakes import FakeControls, FakeService
from tests.peers.home_assistant import HomeAssistant
from tests.peers.mosquitto import Mosquitto, Watcher, at, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

BASE: Final = "wren/box"
BACK_S: Final = 5.0
BIRTH_S: Final = 6.0
"""Home Assistant's birth, the longest random delay after it, and the time to take in what comes then."""


@dataclass
class Wren:
    """Wren's side, connected for real."""

    link: MqttClient
    bridge: Bridge
    service: FakeService
    controls: FakeControls

    def tell(self, *told: events.Event) -> None:
        for event in told:
            self.service.hub.emit(event)


@contextmanager
def connected(broker: Mosquitto, mode: Mode) -> Iterator[Wren]:
    """What `wren run` does about MQTT."""
    link = MqttClient(at(broker, discovery=mode), client_id="wren-box", availability_topic=f"{BASE}/availability")
    service, controls = FakeService(), FakeControls()
    told = BridgeSettings(DeviceInfo("Wren", "Test machine", "0.1.0", "Kitchen"), discovery=mode)
    bridge = Bridge(link, service, controls, told)  # type: ignore[arg-type]
    bridge.start()
    link.start()
    try:
        yield Wren(link, bridge, service, controls)
    finally:
        bridge.close()
        link.close()


@pytest.fixture(scope="module")
def broker(lasting_broker: Mosquitto) -> Mosquitto:
    return lasting_broker


@pytest.fixture
def home(installation: tuple[HomeAssistant, Mode]) -> HomeAssistant:
    return installation[0]


@pytest.fixture
def mode(installation: tuple[HomeAssistant, Mode]) -> Mode:
    return installation[1]


@pytest.fixture
def wren(installation: tuple[HomeAssistant, Mode], broker: Mosquitto) -> Iterator[Wren]:
    """Wren, known to Home Assistant; taken away again, so that every test begins without."""
    home, mode = installation
    with connected(broker, mode) as running:
        home.wait(lambda: len(home.states("wren_")) == shown(mode), "all entities are there")
        home.wait_state("update.wren_model_packs", "off")
        yield running
    with connected(broker, "off"):  # finds what stands, and takes it away
        home.wait(lambda: not home.states("wren_"), "Wren is gone")


def shown(mode: Mode) -> int:
    """Entities that this Home Assistant is told of."""
    whole = FakeControls().state
    return sum(row.present(whole) and (mode == "device" or not row.device_only) for row in ENTITIES)


FORMS: Final = {"device": {"device"}, "components": {"components"}, "both": {"device", "components"}}


def forms(broker: Mosquitto) -> set[str]:
    """In which forms discovery stands at the broker."""
    watcher = Watcher(broker, "homeassistant/#")
    time.sleep(0.2)
    topics = [one.topic for one in watcher.seen if one.retain]
    watcher.close()
    return {"device" if topic.startswith("homeassistant/device/") else "components" for topic in topics}


def test_all_entities_are_there_with_right_states(home: HomeAssistant, wren: Wren) -> None:
    wren.tell(
        events.SensorsRead(0.0, events.MACHINE, (Reading("cpu", 51.2, "C", "fake"),)),
        events.HeatChanged(0.0, events.MACHINE, "warm", "warm"),
    )
    home.wait_state("sensor.wren_temperature", "51.2")
    states = home.states("wren_")
    assert states["sensor.wren_throttling"] == "warm"
    assert states["switch.wren_mute"] == "off"
    assert states["number.wren_volume"] == "60"
    assert states["number.wren_wake_word_sensitivity"] == "unknown"
    assert states["select.wren_wake_word"] == "okay_nabu"
    assert states["select.wren_voice"] == "joe"
    assert states["select.wren_language"] == "en"
    assert states["sensor.wren_speech_recognition_engine"] == "ort-cpu int8"
    assert states["sensor.wren_last_response_time"] == "unknown"
    assert states["sensor.wren_timers"] == "0"
    assert states["binary_sensor.wren_problem"] == "off"
    assert states["siren.wren_alarm"] == "off"
    assert states["update.wren_wren"] == "unknown", "nobody has asked for a newer one"
    assert states["sensor.wren_messages_lost"] == "0"
    assert states["update.wren_model_packs"] == "off"
    assert states["event.wren_wake_word_heard"] == "unknown"
    assert states["button.wren_restart"] == "unknown", "never pressed, but available"
    assert "unavailable" not in states.values()
    update = home.state("update.wren_wren")
    assert update is not None
    assert update["attributes"]["installed_version"] == "0.1.0"
    assert home.template("{{ device_attr('sensor.wren_state', 'model') }}") == "Test machine"
    assert home.template("{{ area_name('sensor.wren_state') }}") == "Kitchen"
    assert len({home.template(f"{{{{ device_id('{entity}') }}}}") for entity in states}) == 1


def event_of(home: HomeAssistant, wren: Wren, entity: str, event: events.Event) -> dict[str, object]:
    """Attributes of an event entity once it has shown an event. Told again and again: it is no state that stands at the
    broker, and Home Assistant gathers its subscriptions for some seconds before it makes them."""
    found: dict[str, object] = {}

    def arrived() -> bool:
        wren.tell(event)
        time.sleep(0.3)
        found.update((home.state(entity) or {}).get("attributes", {}))
        return "event_type" in found

    home.wait(arrived, f"{entity} has shown an event")
    return found


def test_an_utterance_is_shown(home: HomeAssistant, wren: Wren) -> None:
    wren.service.open["local"] = "listening"
    wren.tell(events.ListeningStarted(0.0, "local", "u", "okay_nabu"))
    home.wait_state("sensor.wren_state", "listening")
    wren.service.times_s = [0.42]
    wren.tell(events.FirstAudio(1.2, "local", "u"))
    home.wait_state("sensor.wren_state", "responding")
    wren.tell(events.UtteranceEnded(2.0, "local", "u", "answered"))
    home.wait_state("sensor.wren_last_response_time", "420")
    home.wait_state("sensor.wren_state", "idle")


def test_events_are_told(home: HomeAssistant, wren: Wren) -> None:
    woken = event_of(home, wren, "event.wren_wake_word_heard", events.WakeHeard(0.0, "local", "okay_nabu", 0.97))
    assert woken["event_type"] == "wake"
    assert woken["wake_word"] == "okay_nabu"
    heard = Understanding("turn on the kitchen light", "HassTurnOn", {"name": "Kitchen Light", "area": "Kitchen"})
    told = event_of(home, wren, "event.wren_intent", events.UtteranceUnderstood(1.0, "local", "u", heard))
    assert told["event_type"] == "understood"
    assert told["slots"] == {"name": "Kitchen Light", "area": "Kitchen"}
    assert "turn on the kitchen light" not in str(told)
    home.wait_state("sensor.wren_last_intent", "HassTurnOn")


def test_commands_act_and_are_shown(home: HomeAssistant, wren: Wren) -> None:
    home.wait_state("switch.wren_mute", "off")
    home.call("switch.turn_on", "switch.wren_mute")
    home.wait_state("switch.wren_mute", "on")
    assert wren.controls.state.microphone == "muted"
    home.call("switch.turn_off", "switch.wren_mute")
    home.wait_state("switch.wren_mute", "off")
    home.call("number.set_value", "number.wren_volume", value=35)
    home.wait_state("number.wren_volume", "35")
    home.call("number.set_value", "number.wren_wake_word_sensitivity", value=70)
    home.wait_state("number.wren_wake_word_sensitivity", "70")
    home.call("select.select_option", "select.wren_wake_word", option="alexa")
    home.wait_state("select.wren_wake_word", "alexa")
    home.call("button.press", "button.wren_test_sound")
    until(lambda: ("play", Sound.TEST) in wren.controls.asked, "the test sound is played")
    home.call("button.press", "button.wren_restart")
    until(lambda: ("restart", None) in wren.controls.asked, "Wren is restarted")
    home.call("siren.turn_on", "siren.wren_alarm", duration=60)
    home.wait_state("siren.wren_alarm", "on")
    home.call("siren.turn_off", "siren.wren_alarm")
    home.wait_state("siren.wren_alarm", "off")
    home.call("text.set_value", "text.wren_say", value="Dinner is ready")
    until(lambda: bool(wren.service.said), "it is said")
    assert wren.service.said[0][0] == "Dinner is ready"
    wren.service.said.pop()[1]("answered")
    home.call("text.set_value", "text.wren_announce", value="The door is open")
    until(lambda: bool(wren.service.said), "it is announced")
    wren.service.said.pop()[1]("answered")


def test_new_model_packs_are_shown_installed_and_followed(home: HomeAssistant, wren: Wren, mode: Mode) -> None:
    controls = wren.controls
    older = Versions("catalogue 0a1b2c3d, without 1 of 3 packs", "catalogue 0a1b2c3d")
    controls.state = replace(controls.state, models=older, models_can_install=True)
    home.wait_state("update.wren_model_packs", "on")
    home.wait(lambda: _can_install(home), "it can be installed")
    home.call("update.install", "update.wren_model_packs")
    until(lambda: ("install", None) in controls.asked, "it is asked for")
    controls.state = replace(controls.state, models=replace(older, busy=True, percent=40.0))
    if mode == "device":  # the older one knows of no progress over MQTT
        home.wait(lambda: _packs(home).get("update_percentage") == 40, "it goes on")
    controls.state = replace(
        controls.state, models=Versions("catalogue 0a1b2c3d", "catalogue 0a1b2c3d"), models_can_install=False
    )
    home.wait_state("update.wren_model_packs", "off")
    home.wait(lambda: not _can_install(home), "there is nothing more to install")


def _packs(home: HomeAssistant) -> dict[str, Any]:
    found: dict[str, Any] = (home.state("update.wren_model_packs") or {}).get("attributes", {})
    return found


def _can_install(home: HomeAssistant) -> bool:
    return bool(_packs(home).get("supported_features", 0) & 1)


def test_a_notification_is_said_where_home_assistant_has_such_entities(
    home: HomeAssistant, wren: Wren, mode: Mode
) -> None:
    if mode == "components":
        assert not [entity for entity in home.states("wren_") if entity.startswith("notify.")]
        return
    home.call("notify.send_message", "notify.wren_say", message="Dinner is ready")
    until(lambda: bool(wren.service.said), "it is said")
    wren.service.said.pop()[1]("answered")


def test_home_assistant_is_told_all_again_after_its_restart(home: HomeAssistant, wren: Wren, mode: Mode) -> None:
    home.stop()
    wren.controls.set_volume(12)
    wren.tell(events.ListeningStarted(0.0, "local", "u", None))
    wren.service.open["local"] = "listening"
    home.start()
    home.wait_state("number.wren_volume", "12", BIRTH_S + 10.0)
    home.wait_state("sensor.wren_state", "listening")
    states = home.states("wren_")
    assert len(states) == shown(mode)
    assert "unavailable" not in states.values()


def test_availability_is_right_when_wren_goes_and_comes(home: HomeAssistant, broker: Mosquitto, wren: Wren) -> None:
    home.wait_state("number.wren_volume", "60")
    wren.bridge.close()
    wren.link.close()
    home.wait_state("number.wren_volume", "unavailable")
    assert set(home.states("wren_").values()) == {"unavailable"}
    watcher = Watcher(broker, "wren/#")
    watcher.publish(f"{BASE}/availability", b"online", retain=True)
    home.wait_state("number.wren_volume", "60")
    watcher.close()


def test_a_broker_that_comes_back_empty_is_told_all_within_five_seconds(
    home: HomeAssistant, broker: Mosquitto, wren: Wren
) -> None:
    broker.kill()
    home.wait_state("number.wren_volume", "unavailable")
    (broker.folder / "mosquitto.db").unlink(missing_ok=True)
    wren.controls.set_volume(21)
    broker.start()
    until(lambda: wren.link.state().connected, "Wren is back")
    watcher = Watcher(broker, "wren/#")
    until(lambda: b"21" in watcher.payloads(f"{BASE}/state/volume"), "the state is right", BACK_S)
    watcher.close()
    home.wait_state("number.wren_volume", "21")


def test_removal_leaves_nothing(home: HomeAssistant, broker: Mosquitto, wren: Wren) -> None:
    wren.bridge.close()
    wren.link.close()
    broker.forget(BASE, "box")
    home.wait(lambda: not home.states("wren_"), "no entity is left")
    watcher = Watcher(broker, "wren/#", "homeassistant/#")
    time.sleep(0.5)
    left = [one.topic for one in watcher.seen if one.retain]
    watcher.close()
    assert left == []


@pytest.mark.parametrize("other", ["both", "components", "device"])
def test_changing_the_form_of_discovery_keeps_entities_and_leaves_no_ghosts(
    home: HomeAssistant, broker: Mosquitto, mode: Mode, other: Mode
) -> None:
    if mode == "components" and other == "device":
        pytest.skip("this Home Assistant takes no device messages: there is nothing to change to")
    with connected(broker, mode) as before:
        home.wait(lambda: len(home.states("wren_")) == shown(mode), "all entities are there")
        identity = home.template("{{ device_id('sensor.wren_state') }}")
        before.controls.set_volume(11)
        home.wait_state("number.wren_volume", "11")
    for chosen, volume in ((other, 22), (mode, 33)):
        with connected(broker, chosen) as after:
            after.controls.state = replace(after.controls.state, volume_percent=volume)
            home.wait_state("number.wren_volume", str(volume))
            count = shown("device" if mode == "device" and chosen != "components" else "components")
            until(lambda chosen=chosen: forms(broker) == FORMS[chosen], "only the wanted form stands at the broker")
            home.wait(lambda count=count: len(home.states("wren_")) == count, f"{count} entities are there")
            home.wait(lambda: "unavailable" not in home.states("wren_").values(), "there is no ghost")
            assert home.template("{{ device_id('sensor.wren_state') }}") == identity
    with connected(broker, "off"):
        home.wait(lambda: not home.states("wren_"), "switched off, Wren is gone")


def test_home_assistant_has_nothing_to_complain_of(home: HomeAssistant, wren: Wren) -> None:
    before = len(home.log())
    wren.bridge._tell_all()
    wren.service.open["local"] = "listening"
    wren.tell(events.ListeningStarted(0.0, "local", "u", None))
    home.wait_state("sensor.wren_state", "listening")
    complaints = [
        line
        for line in home.log()[before:].splitlines()
        if "wren" in line.lower() and ("WARNING" in line or "ERROR" in line)
    ]
    assert complaints == []
