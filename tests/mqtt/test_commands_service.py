"""What commands ask of the real `Service`: saying something and learning how it ended, listening, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from appliance.mqtt.controls import Speaker
from appliance.service import LOCAL, Service
from appliance.strain import Strain
from appliance.voice import loop
from appliance.voice.endpoint import SilenceEndpoint
from appliance.voice.parts import Player, Runner, SessionParts
from appliance.voice.runner import LiveRunner
from appliance.voice.session import Session
from appliance.voice.vad import VoiceActivity
from tests.fakes import FakeRecogniser, FakeSynthesiser, FakeThinker, FakeVadEngine


class FakeWren:
    """Sessions of fakes."""

    def __init__(self) -> None:
        self.strain = Strain()

    def session(self, name: str, runner: Runner, player: Player, emit: Callable[..., None], **_: object) -> Session:
        parts = SessionParts(
            wake=None,
            vad=VoiceActivity(FakeVadEngine()),
            recogniser=FakeRecogniser(),
            endpoint=SilenceEndpoint(),
            thinker=FakeThinker(),
            synthesiser=FakeSynthesiser(),
            player=player,
        )
        return Session(name, parts, runner, emit)


class FakeSlowPlayer:
    """Has the reply complete at once, and plays it until it is told that the last sample was heard."""

    def __init__(self, runner: LiveRunner) -> None:
        self._runner, self._generation = runner, 0
        self.complete = threading.Event()

    def begin(self, generation: int, rate_hz: int) -> None:
        self._generation = generation

    def write(self, samples: object) -> None:
        return None

    def finish(self) -> None:
        self.complete.set()

    def stop(self) -> None:
        return None

    def heard(self) -> None:
        self._runner.post(loop.Played(self._generation))


class Talk:
    """A service, its sessions' players, and how what was said ended."""

    def __init__(self) -> None:
        self.service = Service(FakeWren())  # type: ignore[arg-type]
        self.players: dict[str, FakeSlowPlayer] = {}
        self.ended: list[str] = []

    def open(self, kind: str) -> LiveRunner:
        def player(runner: LiveRunner) -> Player:
            self.players[kind] = FakeSlowPlayer(runner)
            return self.players[kind]

        return self.service.open_session(kind, player, wake=False)

    def say(self) -> bool:
        return self.service.say("hello", self.ended.append)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 10.0
        while not condition():
            assert time.monotonic() < deadline_s
            time.sleep(0.005)


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.service.close()


def test_the_service_is_what_commands_speak_to(talk: Talk) -> None:
    speaker: Speaker = talk.service
    assert speaker.busy(), "nobody is there"


def test_it_has_ended_when_the_last_sample_was_heard_and_not_before(talk: Talk) -> None:
    talk.open(LOCAL)
    assert talk.say()
    assert talk.players[LOCAL].complete.wait(10.0)
    assert talk.ended == []
    assert talk.service.busy()
    assert not talk.say(), "busy: try again"
    talk.players[LOCAL].heard()
    talk.until(lambda: talk.ended == ["answered"])
    assert not talk.service.busy()


def test_what_is_stopped_says_so(talk: Talk) -> None:
    talk.open(LOCAL)
    talk.say()
    assert talk.players[LOCAL].complete.wait(10.0)
    assert talk.service.stop()
    talk.until(lambda: talk.ended == ["stopped"])


def test_what_a_session_takes_with_it_has_failed(talk: Talk) -> None:
    runner = talk.open(LOCAL)
    talk.say()
    assert talk.players[LOCAL].complete.wait(10.0)
    talk.service.close_session(runner)
    assert talk.ended == ["failed"]


def test_who_asks_twice_at_once_is_told_that_it_was_busy(talk: Talk) -> None:
    runner = talk.open(LOCAL)
    gate = threading.Event()
    runner.call(lambda: gate.wait(10.0) and None)
    assert talk.say()
    assert talk.say(), "the first has not begun yet"
    gate.set()
    talk.until(lambda: talk.ended == ["busy"])
    assert talk.players[LOCAL].complete.wait(10.0)
    talk.players[LOCAL].heard()
    talk.until(lambda: talk.ended == ["busy", "answered"])


def test_without_a_speaker_of_its_own_every_page_says_it_and_the_last_one_counts(talk: Talk) -> None:
    talk.open("page")
    talk.open("other")
    assert talk.say()
    for player in talk.players.values():
        assert player.complete.wait(10.0)
    talk.players["page"].heard()
    time.sleep(0.05)
    assert talk.ended == []
    talk.players["other"].heard()
    talk.until(lambda: talk.ended == ["answered"])


def test_while_the_machines_own_speaker_is_unplugged_pages_are_spoken_to(talk: Talk) -> None:
    talk.open(LOCAL)
    open_now = [False]
    talk.service.speaker_open = lambda: open_now[0]
    assert not talk.service.audible()
    assert not talk.say(), "nobody would hear it"
    talk.open("page")
    assert talk.service.audible()
    assert talk.say()
    assert talk.players["page"].complete.wait(10.0)
    assert not talk.players[LOCAL].complete.is_set()
    open_now[0] = True
    assert talk.say()
    assert talk.players[LOCAL].complete.wait(10.0)


def test_listening_begins_at_the_machines_own_microphone(talk: Talk) -> None:
    talk.open("page")
    assert not talk.service.listen()
    talk.open(LOCAL)
    assert talk.service.listen()
    talk.until(lambda: talk.service.sessions()[LOCAL] == "listening")
    assert talk.service.sessions()["page"] == "idle"
    assert talk.service.stop()
    talk.until(lambda: talk.service.sessions()[LOCAL] == "idle")
