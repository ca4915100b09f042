"""Commands: what is taken, what is refused, and that what is refused changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.sounds import Sound
from appliance.mqtt.commands import COMMANDS, MAX_COMMAND_BYTES, CommandError, parse_command, request_id
from appliance.mqtt.commands_router import ALARM_S, BURST, Bucket, CommandRouter
from appliance.mqtt.commands_speech import BUSY_S, MAX_WAITING, PRE_ANNOUNCE, PRE_ANNOUNCE_S, STUCK_S
from tests.mqtt.bridge_fakes import FakeControls, FakeService


class Desk:
    """A router with fakes around it, and a clock of its own."""

    def __init__(self) -> None:
        self.service, self.controls = FakeService(), FakeControls()
        self.results: list[dict[str, object]] = []
        self.errors: list[dict[str, object]] = []
        self.now_s = 0.0
        self.router = CommandRouter(
            self.service,
            self.controls,
            lambda told: self.results.append(dict(told)),
            lambda told: self.errors.append(dict(told)),
        )

    def send(self, name: str, payload: str | bytes = "", *, retained: bool = False) -> bool:
        raw = payload.encode() if isinstance(payload, str) else payload
        return self.router.take(name, raw, retained=retained, now_s=self.now_s)

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            self.router.tick(self.now_s)

    @property
    def untouched(self) -> bool:
        """Nothing was done, nothing will be."""
        self.wait(1.0)
        idle = not self.service.said and not self.service.stops and not self.service.listens
        return idle and not self.controls.asked and not self.controls.running


@pytest.fixture
def desk() -> Desk:
    return Desk()


def code(desk: Desk) -> object:
    assert len(desk.errors) == 1
    return desk.errors[0]["code"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_is_one(name: str) -> None:
    assert isinstance(parse_command(name, COMMANDS[name].example.encode()), COMMANDS[name].kind)


@pytest.mark.parametrize(
    ("name", "payload", "asked"),
    [
        ("volume", "40", ("volume", 40)),
        ("volume", " 40.0 ", ("volume", 40)),
        ("volume", '{"percent": 0}', ("volume", 0)),
        ("mute", "ON", ("mute", True)),
        ("mute", '{"muted": false}', ("mute", False)),
        ("wake_word", "alexa", ("wake_word", "alexa")),
        ("wake_sensitivity", "99", ("wake_sensitivity", 99)),
        ("voice", "joe", ("voice", "joe")),
        ("language", "en", ("language", "en")),
        ("test_sound", "PRESS", ("play", Sound.TEST)),
        ("restart", "PRESS", ("restart", None)),
        ("timer_start", '{"seconds": 300, "name": "pasta"}', ("timer", (300, "pasta"))),
    ],
)
def test_a_command_is_carried_out_and_answered(desk: Desk, name: str, payload: str, asked: tuple[str, object]) -> None:
    assert desk.send(name, payload)
    assert desk.controls.asked == [asked]
    assert not desk.errors
    assert desk.results[0]["command"] == name
    assert desk.results[0]["outcome"] == "done"


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("volume", ""), ("volume", "101"), ("volume", "-1"), ("volume", "40.5"), ("volume", "٤٠"), ("volume", "1e2"),
        ("volume", "nan"), ("volume", '{"percent": "40"}'), ("volume", '{"percent": 40.5}'), ("volume", "{"),
        ("volume", '{"percent": 40, "more": 1}'), ("volume", '{"percent": true}'), ("volume", "[40]"),
        ("mute", "yes"), ("mute", '{"muted": 1}'), ("mute", "null"),
        ("say", ""), ("say", "   "), ("say", '{"text": ""}'), ("say", '{"text": 3}'), ("say", "x" * 1001),
        ("say", '{"text": "hello", "id": "two words"}'), ("say", b"\xff\xfe"), ("say", '{"text": "\\ud800"}'),
        ("announce", '{"text": "hello", "priority": "highest"}'),
        ("timer_start", "300"), ("timer_start", '{"seconds": 0}'), ("timer_start", '{"seconds": 1e99}'),
        ("timer_start", '{"seconds": 5, "name": "a\\u0000b"}'),
        ("timer_cancel", "1"), ("timer_cancel", '{"timer": -1}'),
        ("alarm", "MAYBE"), ("alarm", '{"state": "ON", "duration": 100000}'),
        ("listen", "now"), ("restart", "please"), ("stop", '{"why": 1}'), ("install_models", "yes"),
        ("wake_word", ""), ("wake_word", "x" * 101),
    ],
)  # fmt: skip
def test_a_bad_payload_is_answered_and_changes_nothing(desk: Desk, name: str, payload: str | bytes) -> None:
    assert not desk.send(name, payload)
    assert code(desk) == "mqtt.payload"
    assert "send " in str(desk.errors[0]["message"])
    assert not desk.results
    assert desk.untouched


@pytest.mark.parametrize(
    ("name", "payload", "expected"),
    [
        ("fly", "", "mqtt.unknown"),
        ("wake_word", "hey_wren", "mqtt.no_such"),
        ("voice", "amy", "mqtt.no_such"),
        ("language", "de", "mqtt.no_such"),
        ("timer_cancel", '{"timer": 7}', "mqtt.no_timer"),
        ("install_models", "INSTALL", "mqtt.nothing_new"),
    ],
)
def test_what_is_not_there_is_refused(desk: Desk, name: str, payload: str, expected: str) -> None:
    assert not desk.send(name, payload)
    assert code(desk) == expected
    assert desk.untouched


def test_a_command_that_stood_at_the_broker_is_ignored_and_said(desk: Desk) -> None:
    assert not desk.send("mute", "ON", retained=True)
    assert code(desk) == "mqtt.retained"
    assert desk.untouched


def test_too_large_a_payload_is_refused_unread(desk: Desk) -> None:
    assert not desk.send("say", b"x" * (MAX_COMMAND_BYTES + 1))
    assert code(desk) == "mqtt.too_large"


def test_a_flood_is_refused_and_answered_by_few_messages(desk: Desk) -> None:
    taken = sum(desk.send("volume", "10") for _ in range(1000))
    assert taken == BURST
    assert {error["code"] for error in desk.errors} == {"mqtt.rate"}
    assert len(desk.errors) <= BURST
    assert desk.router.unanswered == 1000 - taken - len(desk.errors)


def test_stop_and_mute_work_in_a_flood_of_something_else(desk: Desk) -> None:
    for _ in range(1000):
        desk.send("volume", "10")
    assert desk.send("stop")
    assert desk.send("mute", "ON")
    assert desk.service.stops == 1


def test_after_a_flood_commands_are_taken_again(desk: Desk) -> None:
    for _ in range(100):
        desk.send("volume", "10")
    desk.now_s += 1.0
    assert desk.send("volume", "20")


def test_what_the_machine_cannot_do_is_answered_with_its_own_words(desk: Desk) -> None:
    desk.controls.broken = True
    assert not desk.send("volume", '{"percent": 10, "id": "v1"}')
    assert desk.errors == [
        {"command": "volume", "id": "v1", "code": "audio.no-device", "message": "the fake speaker is unplugged"}
    ]


def test_a_fault_of_ours_is_told_and_ends_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.controls, "mute", lambda muted: 1 // 0)
    assert not desk.send("mute", "ON")
    assert code(desk) == "internal"
    assert desk.send("volume", "10")


def test_listening_needs_a_microphone(desk: Desk) -> None:
    assert desk.send("listen")
    desk.service.has_microphone = False
    assert not desk.send("listen")
    assert code(desk) == "mqtt.no_microphone"


@pytest.mark.parametrize("microphone", ["muted", "absent", None])
def test_a_microphone_that_gives_no_sound_is_not_listened_to_for_ever(desk: Desk, microphone: Any) -> None:
    desk.controls.state = replace(desk.controls.state, microphone=microphone)
    assert not desk.send("listen")
    assert code(desk) == "mqtt.no_microphone"
    assert not desk.service.listens


def test_timers_are_listed(desk: Desk) -> None:
    desk.send("timer_start", '{"seconds": 300, "name": "pasta"}')
    desk.send("timers", '{"id": "t"}')
    timer = {"id": 1, "name": "pasta", "total_s": 300, "left_s": 300.0, "active": True}
    assert desk.results[0]["timer"] == timer
    assert desk.results[1] == {"command": "timers", "id": "t", "outcome": "done", "timers": [timer]}
    assert desk.send("timer_cancel", '{"timer": 1}')
    assert not desk.controls.running


# ---- speech


def test_say_is_answered_when_the_last_sample_has_been_heard(desk: Desk) -> None:
    assert desk.send("say", '{"text": "hello", "id": "s1"}')
    desk.wait(0.1)
    ((text, ended),) = desk.service.said
    assert text == "hello"
    desk.wait(5.0)
    assert not desk.results, "not yet heard"
    ended("answered")
    desk.wait(0.1)
    assert desk.results == [{"command": "say", "id": "s1", "outcome": "done"}]
    assert not desk.router.busy


def test_an_announcement_has_a_sound_before_it(desk: Desk) -> None:
    desk.send("announce", "hello")
    desk.wait(0.1)
    assert desk.controls.asked == [("play", PRE_ANNOUNCE)]
    assert not desk.service.said
    desk.wait(PRE_ANNOUNCE_S)
    assert desk.service.said[0][0] == "hello"
    assert len(desk.controls.asked) == 1


def test_without_a_speaker_for_sounds_an_announcement_is_still_said(desk: Desk) -> None:
    desk.controls.broken = True
    desk.send("announce", "hello")
    desk.wait(PRE_ANNOUNCE_S + 0.2)
    assert desk.service.said[0][0] == "hello"


def test_messages_are_said_one_after_the_other_and_urgent_ones_first(desk: Desk) -> None:
    desk.service.free = False
    for text, more in (("one", ""), ("two", ""), ("fire", ', "priority": "high"'), ("flood", ', "priority": "high"')):
        desk.send("announce", f'{{"text": "{text}", "pre_announce": false, "id": "{text}"{more}}}')
    desk.service.free = True
    said = []
    for _ in range(4):
        desk.wait(0.2)
        text, ended = desk.service.said.pop()
        assert not desk.service.said
        said.append(text)
        ended("answered")
    desk.wait(0.1)
    assert said == ["fire", "flood", "one", "two"]
    assert [told["id"] for told in desk.results] == said


def test_an_urgent_message_ends_what_is_going_on(desk: Desk) -> None:
    desk.send("announce", '{"text": "tea"}')
    desk.wait(0.1)
    assert desk.service.stops == 0
    desk2 = Desk()
    desk2.send("announce", '{"text": "fire", "priority": "high"}')
    desk2.wait(0.1)
    assert desk2.service.stops == 1


def test_while_somebody_speaks_a_message_waits(desk: Desk) -> None:
    desk.service.free = False
    desk.send("announce", "hello")
    desk.wait(10.0)
    assert not desk.service.said
    assert not desk.controls.asked, "no sound into somebody's sentence"
    desk.service.free = True
    desk.wait(1.0)
    assert desk.service.said[0][0] == "hello"


def test_who_is_interrupted_in_the_last_moment_tries_again(desk: Desk) -> None:
    desk.send("say", "hello")
    desk.wait(0.1)
    desk.service.said.pop()[1]("busy")
    desk.wait(0.1)
    assert desk.service.said[0][0] == "hello"
    assert not desk.results


@pytest.mark.parametrize(("outcome", "told"), [("stopped", "stopped"), ("failed", "failed"), ("silent", "failed")])
def test_how_it_ended_is_told(desk: Desk, outcome: str, told: str) -> None:
    desk.send("say", "hello")
    desk.wait(0.1)
    desk.service.said[0][1](outcome)
    desk.wait(0.1)
    assert desk.results[0]["outcome"] == told


def test_no_quiet_moment_is_told_in_the_end(desk: Desk) -> None:
    desk.service.free = False
    desk.send("say", "hello")
    desk.wait(BUSY_S + 1.0)
    assert desk.results[0]["outcome"] == "busy"
    assert not desk.router.busy


def test_a_speech_that_never_ends_holds_up_nobody_for_ever(desk: Desk) -> None:
    desk.send("say", "hello")
    desk.wait(BUSY_S + STUCK_S + 1.0)
    assert desk.results[0]["outcome"] == "failed"


def test_more_messages_than_can_be_said_are_refused(desk: Desk) -> None:
    desk.service.free = False
    taken = []
    for number in range(MAX_WAITING + 2):
        desk.now_s += 1.0
        taken.append(desk.send("say", f"message {number}"))
    assert taken == [True] * MAX_WAITING + [False] * 2
    assert desk.errors[0]["code"] == "mqtt.busy"


def test_stop_drops_what_waits(desk: Desk) -> None:
    desk.send("say", '{"text": "one", "id": "1"}')
    desk.send("say", '{"text": "two", "id": "2"}')
    desk.wait(0.1)
    desk.send("stop")
    assert desk.service.stops == 1
    desk.service.said[0][1]("stopped")
    desk.wait(0.5)
    assert [(told["id"], told["outcome"]) for told in desk.results if told["command"] == "say"] == [
        ("2", "dropped"),
        ("1", "stopped"),
    ]
    assert len(desk.service.said) == 1


@pytest.mark.parametrize("name", ["say", "announce"])
def test_what_nobody_would_hear_is_refused_and_not_said_to_be_done(desk: Desk, name: str) -> None:
    desk.service.heard = False
    assert not desk.send(name, "Dinner is ready")
    assert code(desk) == "audio.no-device"


def test_what_was_said_to_a_speaker_that_has_gone_has_failed(desk: Desk) -> None:
    desk.send("say", "Dinner is ready")
    desk.wait(0.1)
    desk.service.heard = False
    desk.service.said[0][1]("answered")
    desk.wait(0.1)
    assert desk.results[0]["outcome"] == "failed"


# ---- the alarm


@pytest.mark.parametrize(
    ("payload", "length_s"), [('{"state": "ON", "duration": 5}', 5), ("ON", ALARM_S), ('{"state": "ON"}', ALARM_S)]
)
def test_the_alarm_rings_until_it_is_ended(desk: Desk, payload: str, length_s: float) -> None:
    assert desk.send("alarm", payload)
    assert desk.controls.asked == [("ring", length_s)]
    assert desk.controls.state.ringing
    assert desk.send("alarm", "OFF")
    assert not desk.controls.state.ringing


def test_stop_ends_the_alarm(desk: Desk) -> None:
    desk.send("alarm", "ON")
    desk.send("stop")
    assert not desk.controls.state.ringing


def test_an_alarm_that_cannot_sound_is_refused(desk: Desk) -> None:
    desk.controls.broken = True
    assert not desk.send("alarm", "ON")
    assert code(desk) == "audio.no-device"
    assert not desk.controls.state.ringing


# ---- hostile input

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
HOSTILE = (
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass"))
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.sampled_from(
        [b"{" * 4096, b'{"id":' * 600, b'{"text":"' + b"\\u0000" * 500 + b'"}', b"[" * 4096, b"\0", b"{}"]
    )
)


@settings(max_examples=300)
@given(st.sampled_from([*COMMANDS, "", "../x", "a" * 5000]), HOSTILE)
def test_a_payload_is_either_a_command_or_refused(name: str, payload: bytes) -> None:
    refused: CommandError | None = None
    try:
        assert isinstance(parse_command(name, payload), COMMANDS[name].kind)
    except CommandError as error:
        refused = error
    if refused is not None:
        assert refused.reason.startswith("mqtt.")
        assert len(str(refused)) < 600
        assert str(refused).isprintable()


@settings(max_examples=150)
@given(st.sampled_from([*COMMANDS, "fly"]), HOSTILE)
def test_what_is_refused_changes_nothing_and_is_answered(name: str, payload: bytes) -> None:
    desk = Desk()
    if not desk.send(name, payload):
        assert len(desk.errors) == 1
        assert not desk.results
        assert desk.untouched
        json.dumps(desk.errors[0]).encode()
    else:
        assert not desk.errors


@given(HOSTILE)
def test_an_id_is_found_or_not_but_never_fails(payload: bytes) -> None:
    found = request_id(payload)
    assert found is None or found.isascii()


@given(st.lists(st.floats(0.0, 2.0), max_size=200))
def test_a_bucket_lets_through_no_more_than_it_says(gaps: list[float]) -> None:
    bucket, now_s, passed = Bucket(5.0, 20.0), 0.0, 0
    for gap_s in gaps:
        now_s += gap_s
        passed += bucket.take(now_s)
    assert passed <= 20.0 + 5.0 * now_s + 1e-6
