"""All of Wren in a real Home Assistant: what is set there is set here, what is said there is heard, what is said here
is shown there. Wren, its sound (in a room of virtual devices), the broker and Home Assistant are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from appliance.app import Wren
from appliance.cli import main
from appliance.mqtt.discovery import Mode
from appliance.settings import load_settings
from tests.peers.home_assistant import HomeAssistant
from tests.peers.mosquitto import Mosquitto, at, until
from tests.peers.mqtt_house import House, started, use_broker, virtual_sound
from tests.peers.pulse import PulseServer, Recording
from tests.voice.conftest import say

pytestmark = [pytest.mark.models, pytest.mark.slow, pytest.mark.timeout(2400)]

HEARD = 0.02
"""Largest sample from which on something is heard."""
SOUND_S = 30.0


@pytest.fixture(scope="module")
def broker(lasting_broker: Mosquitto) -> Mosquitto:
    return lasting_broker


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Mosquitto) -> Iterator[Path]:
    monkeypatch.setenv("WREN_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("WREN_CONFIG", str(tmp_path / "wren.toml"))
    use_broker(broker, tmp_path / "wren.toml")
    yield tmp_path / "wren.toml"
    main(["mqtt", "remove"])  # where the test failed before that: its device must not be in the way of the next one


def test_the_whole_of_wren_from_its_first_appearance_to_its_removal(
    wren: Wren, installation: tuple[HomeAssistant, Mode], broker: Mosquitto, pulse: PulseServer, file: Path
) -> None:
    home, mode = installation
    with started(wren, at(broker, discovery=mode), file, virtual_sound) as house:
        house.hear()
        home.wait_state("number.wren_volume", "100")
        home.wait_state("update.wren_model_packs", "off")
        _what_is_said_here_is_shown_there(wren, home, pulse)
        _what_is_set_there_is_set_here(home, house, file)
        with pulse.record() as recording:
            _what_is_asked_there_is_heard(home, recording, mode)
        home.call("button.press", "button.wren_restart")
        until(lambda: house.restarts == [True], "a restart is asked for")
        assert "unavailable" not in home.states("wren_").values()
    home.wait_state("number.wren_volume", "unavailable")
    assert main(["mqtt", "remove"]) == 0
    home.wait(lambda: not home.states("wren_"), "no entity is left")


def _what_is_said_here_is_shown_there(wren: Wren, home: HomeAssistant, pulse: PulseServer) -> None:
    def intent() -> object:
        return (home.state("event.wren_intent") or {}).get("attributes", {}).get("intent")

    quiet = (1e-4 * np.random.default_rng(4).standard_normal(8000)).astype(np.float32)
    command = np.concatenate((quiet, say(wren, "okay nabu, switch on the kitchen lights"), quiet))

    def told() -> bool:
        # Home Assistant gathers its subscriptions for some seconds before it makes them; events do not wait for that.
        pulse.say(command)
        try:
            home.wait(lambda: intent() == "HassTurnOn", "the intent is shown", 10.0)
        except AssertionError:
            return False
        return True

    assert told() or told()
    attributes = (home.state("event.wren_intent") or {})["attributes"]
    assert (attributes["event_type"], "kitchen" in str(attributes["slots"]).lower()) == ("understood", True)
    home.wait_state("sensor.wren_last_intent", "HassTurnOn")
    home.wait(lambda: home.states("wren_last_r")["sensor.wren_last_response_time"] != "unknown", "how long it took")
    home.wait_state("sensor.wren_state", "idle")


def _what_is_set_there_is_set_here(home: HomeAssistant, house: House, file: Path) -> None:
    local = house.local
    home.call("number.set_value", "number.wren_volume", value=70)
    home.wait_state("number.wren_volume", "70")
    assert local.volume == 70.0
    home.call("switch.turn_on", "switch.wren_mute")
    home.wait_state("switch.wren_mute", "on")
    assert local.state().microphone == "muted"
    home.call("switch.turn_off", "switch.wren_mute")
    home.wait_state("switch.wren_mute", "off")
    until(lambda: local.state().microphone == "live", "it hears again", SOUND_S)
    home.call("number.set_value", "number.wren_wake_word_sensitivity", value=60)
    home.wait_state("number.wren_wake_word_sensitivity", "60")
    home.call("select.select_option", "select.wren_wake_word", option="hey_jarvis")
    home.wait_state("select.wren_wake_word", "hey_jarvis")
    kept = load_settings(file).settings
    assert (kept.audio.volume_percent, kept.wake.words, kept.wake.threshold) == (70, ("hey_jarvis",), 0.4)
    for entity in ("select.wren_voice", "select.wren_language"):
        (only,) = (home.state(entity) or {})["attributes"]["options"]
        home.call("select.select_option", entity, option=only)
        home.wait_state(entity, only)


def _what_is_asked_there_is_heard(home: HomeAssistant, recording: Recording, mode: Mode) -> None:
    def loud(since: int) -> bool:
        return bool(np.abs(recording.samples[since:]).max(initial=0.0) > HEARD)

    def heard(what: str) -> None:
        since = recording.samples.size
        until(lambda: loud(since), f"{what} is heard", SOUND_S)
        home.wait_state("sensor.wren_state", "idle")
        until(lambda: not loud(recording.samples.size - 8000), f"{what} has ended", SOUND_S)

    home.call("button.press", "button.wren_test_sound")
    heard("the test sound")
    home.call("text.set_value", "text.wren_say", value="Dinner is ready")
    heard("what is to be said")
    home.call("text.set_value", "text.wren_announce", value="The door is open")
    heard("what is announced")
    if mode == "device":
        home.call("notify.send_message", "notify.wren_announce", message="The washing is done")
        heard("the notification")
    home.call("siren.turn_on", "siren.wren_alarm", duration=60)
    home.wait_state("siren.wren_alarm", "on")
    since = recording.samples.size
    until(lambda: loud(since), "the alarm is heard", SOUND_S)
    home.call("siren.turn_off", "siren.wren_alarm")
    home.wait_state("siren.wren_alarm", "off")
    until(lambda: not loud(recording.samples.size - 16000), "the alarm has ended", SOUND_S)
