"""The running appliance as its faces see it: the hub, sessions, announcements; the local devices with fakes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from appliance import events
from appliance.events import Event, Listener
from appliance.hub import Hub
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.service import LOCAL, MAX_SESSIONS, Service, SessionLimitError
from appliance.strain import Strain
from appliance.voice.endpoint import SilenceEndpoint
from appliance.voice.parts import Player, Runner, SessionParts
from appliance.voice.runner import LiveRunner
from appliance.voice.session import Session
from appliance.voice.vad import VoiceActivity
from tests.fakes import FakePlayer, FakeRecogniser, FakeSynthesiser, FakeThinker, FakeVadEngine


class FakeWren:
    """Sessions of fakes."""

    area = "Kitchen"

    def __init__(self) -> None:
        self.assistant = FakeThinker("Turned on the lights")
        self.strain = Strain()

    def session(self, name: str, runner: Runner, player: Player, emit: Listener, **_: object) -> Session:
        parts = SessionParts(
            wake=None,
            vad=VoiceActivity(FakeVadEngine()),
            recogniser=FakeRecogniser(),
            endpoint=SilenceEndpoint(),
            thinker=self.assistant,
            synthesiser=FakeSynthesiser(),
            player=player,
        )
        return Session(name, parts, runner, emit)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service(FakeWren())  # type: ignore[arg-type]
    yield made
    made.close()


def _wait(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _event() -> Event:
    return events.PlaybackEnded(1.0, "s", "u", False)


def test_every_listener_hears_every_event_and_one_that_fails_does_not_silence_the_others() -> None:
    hub, heard = Hub(), []

    def broken(event: Event) -> None:
        raise ValueError("broken")

    hub.subscribe(broken)
    leave = hub.subscribe(heard.append)
    hub.emit(_event())
    assert len(heard) == 1
    assert hub.faults == 1
    leave()
    hub.emit(_event())
    assert len(heard) == 1


def test_sessions_are_counted_named_apart_and_closed(service: Service) -> None:
    before = threading.active_count()
    runners = [service.open_session("browser", FakePlayer, wake=False) for _ in range(MAX_SESSIONS)]
    assert len(service.sessions()) == MAX_SESSIONS
    assert set(service.sessions().values()) == {"idle"}
    with pytest.raises(SessionLimitError, match="close one"):
        service.open_session("browser", FakePlayer, wake=False)
    service.close_session(runners[0])
    service.close_session(runners[0])
    service.open_session("browser", FakePlayer, wake=False)
    service.close()
    _wait(lambda: threading.active_count() <= before)
    assert service.sessions() == {}


def test_an_announcement_goes_to_the_machines_own_speaker_if_there_is_one(service: Service) -> None:
    said: list[tuple[str, str]] = []
    service.hub.subscribe(lambda e: said.append((e.session, e.text)) if isinstance(e, events.Announcing) else None)
    assert service.announce("nobody is there") is False
    service.open_session("browser", FakePlayer, wake=False)
    assert service.announce("to the page")
    _wait(lambda: len(said) == 1)
    service.open_session(LOCAL, FakePlayer, wake=True)
    _wait(lambda: set(service.sessions().values()) == {"idle"})
    assert service.announce("to the speaker")
    _wait(lambda: len(said) == 2)
    assert said == [("browser", "to the page"), (LOCAL, "to the speaker")]


def test_a_typed_text_is_understood_and_acted_on_once(service: Service) -> None:
    reply: Reply = service.ask("turn on the lights")
    assert reply.text == "Turned on the lights"
    thinker: FakeThinker = service.wren.assistant  # type: ignore[assignment]
    assert thinker.matched == ["turn on the lights"]
    assert len(thinker.committed) == 1


def test_traces_of_utterances_are_kept(service: Service) -> None:
    service.hub.emit(events.ListeningStarted(1.0, "s", UtteranceId("u1"), None))
    service.hub.emit(events.UtteranceUnderstood(2.0, "s", "u1", Understanding("x", None)))
    service.hub.emit(events.UtteranceEnded(3.0, "s", "u1", "answered"))
    assert [t.utterance for t in service.traces()] == ["u1"]


def test_a_session_that_cannot_keep_up_drops_the_oldest_sound_and_counts_it(service: Service) -> None:
    from tests.fakes import frames, speech

    runner = service.open_session("browser", FakePlayer, wake=False)
    hold, held = threading.Event(), threading.Event()

    def block() -> None:
        held.set()
        hold.wait(10)

    runner.call(block)
    assert held.wait(10)
    sound = frames(speech(0.5))
    for _ in range(8):
        for frame in sound:
            runner.push(frame)
    assert runner.dropped_frames == 8 * len(sound) - LiveRunner.MAX_FRAMES
    hold.set()
