"""The bridge with a fake connection: what is told when, what commands do, and that it never stops telling."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from appliance import events
from appliance.events import Event
from appliance.intent.types import Understanding
from appliance.mqtt import bridge
from appliance.mqtt.bridge import MAX_QUEUED, Bridge, BridgeSettings
from appliance.mqtt.commands import MAX_COMMAND_BYTES
from appliance.mqtt.controls import ControlsView, TimerView
from appliance.mqtt.discovery import DeviceInfo, Mode
from appliance.mqtt.protocol import Kind
from tests.mqtt.bridge_fakes import BASE, FakeControls, FakeLink, FakeService
from tests.mqtt.schema import check_device_message

CONFIG = "homeassistant/device/wren-ab12/config"


LOOK_S = 0.1


@pytest.fixture(autouse=True)
def _quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "LOOK_S", LOOK_S)
    monkeypatch.setattr(bridge, "SETTLE_S", 0.05)
    monkeypatch.setattr(bridge, "STEP_S", 0.05)


class Stage:
    """A bridge and what is around it."""

    def __init__(self, mode: Mode = "device", *, transcripts: bool = False, link: FakeLink | None = None) -> None:
        self.link, self.service, self.controls = link or FakeLink(), FakeService(), FakeControls()
        settings = BridgeSettings(DeviceInfo("Wren", "PC", "0.1.0"), discovery=mode, transcripts=transcripts)
        self.bridge = Bridge(self.link, self.service, self.controls, settings, birth_delay_s=lambda: 0.05)  # type: ignore[arg-type]
        self.bridge.start()

    def tell(self, *told: Event) -> None:
        for event in told:
            self.service.hub.emit(event)

    def command(self, name: str, payload: str, *, retain: bool = False) -> None:
        self.link.receive(f"{BASE}/command/{name}", payload.encode(), retain=retain)

    def stands(self, key: str, payload: str) -> None:
        self.until(lambda: self.link.retained.get(f"{BASE}/state/{key}") == payload.encode())

    def answer(self, where: str) -> dict[str, Any]:
        self.until(lambda: bool(self.link.on(f"{BASE}/{where}")))
        answer: dict[str, Any] = json.loads(self.link.on(f"{BASE}/{where}")[-1])
        return answer

    def held(self, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """The bridge takes nothing until the event is set."""
        gate, busy = threading.Event(), threading.Event()

        def look() -> ControlsView:
            busy.set()
            assert gate.wait(10.0)
            return self.controls.state

        monkeypatch.setattr(self.controls, "view", look)
        assert busy.wait(10.0)
        return gate

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < deadline_s, self.link.retained
            time.sleep(0.005)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.link.connect()
    yield made
    made.bridge.close()


def test_on_a_connection_discovery_then_states_are_told_before_online(stage: Stage) -> None:
    # `connect` has returned, and the link says `online` only then.
    topics = [topic for topic, _, _ in stage.link.sent]
    check_device_message(CONFIG, stage.link.retained[CONFIG])
    assert topics.index(CONFIG) < min(i for i, topic in enumerate(topics) if topic.startswith(f"{BASE}/state/"))
    assert stage.link.retained[f"{BASE}/state/state"] == b"idle"
    assert stage.link.retained[f"{BASE}/state/engine_asr"].startswith(b'{"engine":"ort-cpu int8"')


def test_every_state_topic_that_home_assistant_is_told_of_holds_something(stage: Stage) -> None:
    told = json.loads(stage.link.retained[CONFIG])["cmps"]
    for key, component in told.items():
        if "state_topic" in component and component["p"] != "event":
            assert component["state_topic"] in stage.link.retained, key


def test_nothing_is_sent_again_while_nothing_changes(stage: Stage) -> None:
    time.sleep(4 * LOOK_S)  # a look, and the mending of what stood
    count = len(stage.link.sent)
    time.sleep(4 * LOOK_S)
    assert len(stage.link.sent) == count


def test_a_conversation_is_shown(stage: Stage) -> None:
    stage.service.open["local"] = "listening"
    stage.tell(
        events.WakeHeard(0.0, "local", "okay_nabu", 0.9), events.ListeningStarted(0.0, "local", "u", "okay_nabu")
    )
    stage.stands("state", "listening")
    stage.service.times_s = [0.4, 0.9]
    heard = Understanding("turn on the light", "HassTurnOn", {"name": "light"})
    stage.tell(events.UtteranceUnderstood(1.0, "local", "u", heard), events.FirstAudio(1.2, "local", "u"))
    stage.stands("state", "responding")
    stage.tell(events.UtteranceEnded(2.0, "local", "u", "answered"))
    stage.stands("state", "idle")
    stage.stands("response_time", "900")
    stage.stands("response_time_p50", "400")
    stage.stands("last_intent", "HassTurnOn")
    assert json.loads(stage.link.on(f"{BASE}/event/wake")[0])["wake_word"] == "okay_nabu"
    assert json.loads(stage.link.on(f"{BASE}/event/intent")[0])["slots"] == {"name": "light"}
    assert all(kind is Kind.EVENT for topic, _, kind in stage.link.sent if topic.startswith(f"{BASE}/event/"))


def test_no_word_that_was_said_goes_out() -> None:
    stage = Stage()
    stage.link.connect()
    stage.tell(
        events.PartialText(0.0, "local", "u", "my secret"),
        events.TextRecognised(0.0, "local", "u", "my secret", -1.0),
        events.UtteranceUnderstood(0.0, "local", "u", Understanding("my secret", None)),
        events.ReplyReady(0.0, "local", "u", "my secret", True),
    )
    stage.command("say", "my secret")
    stage.until(lambda: bool(stage.service.said))
    stage.service.said[0][1]("answered")
    stage.answer("result")
    stage.bridge.close()
    assert not any(b"secret" in payload for _, payload, _ in stage.link.sent)


def test_with_the_setting_what_was_said_is_told() -> None:
    stage = Stage(transcripts=True)
    stage.link.connect()
    stage.tell(events.UtteranceUnderstood(0.0, "local", "u", Understanding("hello", None)))
    stage.until(lambda: bool(stage.link.on(f"{BASE}/event/intent")))
    stage.bridge.close()
    assert json.loads(stage.link.on(f"{BASE}/event/intent")[0])["text"] == "hello"


def test_a_command_acts_is_answered_and_shown_at_once(stage: Stage) -> None:
    stage.command("volume", '{"percent": 35, "id": "v"}')
    assert stage.answer("result") == {"command": "volume", "id": "v", "outcome": "done"}
    stage.stands("volume", "35")
    stage.command("mute", "ON")
    stage.stands("mute", "ON")


def test_what_is_changed_elsewhere_is_shown(stage: Stage) -> None:
    stage.controls.state = replace(stage.controls.state, volume_percent=5, degraded=("it is hot",))
    stage.stands("volume", "5")
    stage.stands("problem", '{"problem":"ON","reasons":["it is hot"]}')


def test_a_bad_command_is_answered_on_the_error_topic(stage: Stage) -> None:
    stage.command("volume", '{"percent": 300, "id": "v"}')
    answer = stage.answer("error")
    assert (answer["command"], answer["id"], answer["code"]) == ("volume", "v", "mqtt.payload")
    assert not stage.controls.asked


def test_a_retained_command_is_ignored_and_said(stage: Stage) -> None:
    stage.command("restart", "PRESS", retain=True)
    assert stage.answer("error")["code"] == "mqtt.retained"
    assert not stage.controls.asked


def test_too_large_a_command_is_answered_although_it_never_comes_here(stage: Stage) -> None:
    stage.command("say", "x" * (MAX_COMMAND_BYTES + 1))
    answer = stage.answer("error")
    assert (answer["command"], answer["code"]) == ("say", "mqtt.too_large")


def test_a_flood_of_commands_leaves_the_bridge_at_work(stage: Stage) -> None:
    for number in range(5000):
        stage.command("volume", str(number % 100))
    stage.tell(events.ListeningStarted(0.0, "local", "u", None))
    time.sleep(1.0)
    stage.service.open["local"] = "listening"
    stage.tell(events.ListeningStarted(0.0, "local", "v", None))
    stage.stands("state", "listening")
    assert len(stage.controls.asked) < 60
    assert 0 < len(stage.link.on(f"{BASE}/error")) < 100, "a flood must not come back as one"


def test_a_flood_of_commands_costs_no_event_and_no_state(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = stage.held(monkeypatch)
    for number in range(2 * MAX_QUEUED):
        stage.command("volume", str(number % 100))
    for number in range(50):
        stage.tell(events.WakeHeard(0.0, "local", f"word-{number}", 0.9))
    stage.link.retained.clear()
    connecting = threading.Thread(target=stage.link.connect)
    connecting.start()
    gate.set()
    connecting.join()
    stage.until(lambda: len(stage.link.on(f"{BASE}/event/wake")) == 50)
    assert stage.bridge.dropped == 0
    assert CONFIG in stage.link.retained
    assert f"{BASE}/state/volume" in stage.link.retained


def test_a_connection_that_comes_while_too_much_waits_is_told_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = stage.held(monkeypatch)
    for number in range(2 * MAX_QUEUED):
        stage.tell(events.WakeHeard(0.0, "local", f"word-{number}", 0.9))
    stage.link.retained.clear()
    connecting = threading.Thread(target=stage.link.connect)
    connecting.start()
    gate.set()
    connecting.join()
    stage.until(lambda: f"{BASE}/state/volume" in stage.link.retained)
    assert CONFIG in stage.link.retained
    assert stage.bridge.dropped > 0
    stage.until(lambda: json.loads(stage.link.retained[f"{BASE}/state/messages_lost"])["count"] > 0)


def test_timers_tell_of_themselves(stage: Stage) -> None:
    stage.controls.running.append(TimerView(1, "pasta", 300, 300.0, True))
    stage.until(lambda: len(stage.link.on(f"{BASE}/event/timer")) == 1)
    stage.controls.running[0] = replace(stage.controls.running[0], left_s=0.5)
    time.sleep(4 * LOOK_S)
    stage.controls.running.clear()
    stage.until(lambda: len(stage.link.on(f"{BASE}/event/timer")) == 2)
    happened = [json.loads(payload)["event_type"] for payload in stage.link.on(f"{BASE}/event/timer")]
    assert happened == ["started", "finished"]


def test_a_page_that_goes_in_mid_sentence_leaves_no_phase_behind(stage: Stage) -> None:
    stage.service.open["page"] = "listening"
    stage.tell(events.ListeningStarted(0.0, "page", "u", None))
    stage.stands("state", "listening")
    stage.service.open.clear()
    stage.stands("state", "idle")


def test_home_assistants_birth_is_answered_with_all_of_it(stage: Stage) -> None:
    stage.link.sent.clear()
    stage.link.receive("homeassistant/status", b"online")
    stage.until(lambda: bool(stage.link.on(f"{BASE}/state/volume")))
    topics = [topic for topic, _, _ in stage.link.sent]
    assert topics[0] == CONFIG
    assert f"{BASE}/state/mute" in topics


@pytest.mark.parametrize("payload", [b"offline", b"", b"\xff"])
def test_other_news_of_home_assistant_change_nothing(stage: Stage, payload: bytes) -> None:
    time.sleep(4 * LOOK_S)
    stage.link.sent.clear()
    stage.link.receive("homeassistant/status", payload)
    time.sleep(0.3)
    assert not stage.link.sent


def test_a_broker_that_has_forgotten_all_is_told_all_again(stage: Stage) -> None:
    before = dict(stage.link.retained)
    stage.link.retained.clear()
    stage.link.connect()
    assert stage.link.retained == before


@pytest.mark.parametrize("before", ["components", "both", "device"])
@pytest.mark.parametrize("after", ["components", "both", "device", "off"])
def test_another_setting_leaves_no_discovery_of_the_one_before(before: Mode, after: Mode) -> None:
    old = Stage(before)
    old.link.connect()
    old.bridge.close()
    fresh = Stage(after)
    fresh.link.connect()
    fresh.bridge.close()
    new = Stage(after, link=old.link)
    new.link.connect()

    def discovery(link: FakeLink) -> dict[str, bytes]:
        return {topic: payload for topic, payload in link.retained.items() if topic.startswith("homeassistant/")}

    new.until(lambda: discovery(new.link) == discovery(fresh.link))
    new.bridge.close()


def test_the_steps_of_a_change_are_not_told_together() -> None:
    """The link keeps of two retained messages on one topic only the later."""
    old = Stage("components")
    old.link.connect()
    old.bridge.close()
    new = Stage("device", link=old.link)
    before = len(new.link.sent)
    new.link.connect()
    mute = "homeassistant/switch/wren-ab12/mute/config"
    new.until(lambda: mute not in new.link.retained)
    new.bridge.close()
    told = [(topic, payload, kind) for topic, payload, kind in new.link.sent[before:] if topic in {mute, CONFIG}]
    assert [(topic, kind) for topic, _, kind in told] == [
        (CONFIG, Kind.STATE),
        (mute, Kind.EVENT),
        (CONFIG, Kind.STATE),
        (mute, Kind.STATE),
    ]
    assert told[1][1] == b'{"migrate_discovery":true}'
    assert told[3][1] == b""


def test_what_was_waiting_is_answered_when_the_bridge_ends() -> None:
    stage = Stage()
    stage.link.connect()
    stage.service.free = False
    stage.command("say", '{"text": "hello", "id": "s"}')
    time.sleep(0.2)
    stage.bridge.close()
    assert json.loads(stage.link.on(f"{BASE}/result")[0]) == {"command": "say", "id": "s", "outcome": "dropped"}


def test_controls_that_fail_are_logged_once_and_end_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from appliance.errors import DeviceFaultError

    def fail() -> object:
        raise DeviceFaultError("the fake device does not answer")

    monkeypatch.setattr(stage.controls, "view", fail)
    time.sleep(6 * LOOK_S)
    stage.service.open["local"] = "listening"
    stage.tell(events.ListeningStarted(0.0, "local", "u", None))
    stage.stands("state", "listening")
    assert caplog.text.count("cannot be looked at") == 1


def test_what_stands_is_mended_only_once_the_link_is_ready() -> None:
    old = Stage("components")
    old.link.connect()
    old.bridge.close()
    standing = dict(old.link.retained)
    early = Stage("components")
    for topic, payload in standing.items():
        early.link.receive(topic, payload, retain=True)
    time.sleep(4 * LOOK_S)
    assert not early.link.sent, "not ready: nobody knows yet what is wanted"
    early.link.connect()
    early.bridge.close()
    assert early.link.retained == standing
