"""A session between fakes, and all that it told: for tests of whole conversations."""

from __future__ import annotations

from appliance import events
from appliance.audio.frame import Frame
from appliance.voice.budget import SpeculationSettings
from appliance.voice.endpoint import EndpointStrategy, SilenceEndpoint, SilenceSettings
from appliance.voice.meter import WakeListener
from appliance.voice.parts import Alarm
from appliance.voice.runner import SimulatedPlayer, SimulatedRunner
from appliance.voice.session import Runner, Session, SessionParts, SessionSettings
from appliance.voice.vad import VoiceActivity
from tests.fakes import FakeRecogniser, FakeSynthesiser, FakeThinker, FakeVadEngine


class Bench:
    """A session, its fakes, and everything it told."""

    def __init__(
        self,
        runner: Runner,
        player: SimulatedPlayer | None = None,
        follow_up: bool = False,
        endpoint: EndpointStrategy | None = None,
        share: float = 0.5,
        partial_every_s: float = 0.3,
        wake: WakeListener | None = None,
        alarm: Alarm | None = None,
    ) -> None:
        self.recogniser, self.thinker, self.synthesiser = FakeRecogniser(), FakeThinker(), FakeSynthesiser()
        self.told: list[events.Event] = []
        self.player = player
        parts = SessionParts(
            wake=wake,
            vad=VoiceActivity(FakeVadEngine()),
            recogniser=self.recogniser,
            endpoint=endpoint or SilenceEndpoint(SilenceSettings()),
            thinker=self.thinker,
            synthesiser=self.synthesiser,
            player=player,  # type: ignore[arg-type]
            alarm=alarm,
        )
        settings = SessionSettings(
            partial_every_s=partial_every_s, follow_up=follow_up, speculation=SpeculationSettings(share=share)
        )
        self.session = Session("test", parts, runner, self.told.append, settings)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.told]

    def one(self, kind: type[events.Event]) -> events.Event:
        found = [event for event in self.told if isinstance(event, kind)]
        assert len(found) == 1, self.kinds()
        return found[0]


def hear(runner: SimulatedRunner, sound: list[Frame]) -> None:
    """Push all of it, and let everything that follows from it happen."""
    for frame in sound:
        runner.push(frame)
    runner.drain()
