"""One mechanism for strain and heat, seen from outside: a service of fakes whose stages stall, hang and fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from appliance import events
from appliance.apology import SENTENCES
from appliance.audio.frame import Frame
from appliance.events import Event, Listener
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.service import LOCAL, Service
from appliance.strain import Strain
from appliance.telemetry.strain import StrainSettings
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis
from appliance.voice.breaker import BreakerSettings
from appliance.voice.endpoint import SilenceEndpoint
from appliance.voice.guards import GuardedRecogniser, GuardedSynthesiser, GuardedThinker
from appliance.voice.limits import TimeLimits
from appliance.voice.loop import Phase
from appliance.voice.meter import Metered
from appliance.voice.parts import Player, Runner, SessionParts
from appliance.voice.relief import LIGHT_RECOGNISER, LIGHT_VOICE, NO_GUESSES, Relief
from appliance.voice.session import Session
from appliance.voice.vad import VoiceActivity
from tests.fakes import FakePlayer, FakeRecogniser, FakeSynthesiser, FakeThinker, FakeVadEngine, frames, silence, speech

LIMITS = TimeLimits(
    recognition_s=0.3, recognition_factor=0.0, intent_s=0.3, home_s=0.3, commit_s=0.3, piece_s=0.3, playback_s=0.3
)
WAIT_S = 20.0
T = TypeVar("T", bound=Event)


class Clock:
    """Seconds, set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _strain(clock: Clock, told: list[Event]) -> Strain:
    strain = Strain({LIGHT_VOICE}, settings=StrainSettings(calm_s=10.0), clock=clock)
    strain.emit = told.append
    return strain


def test_a_step_is_an_event_a_sentence_and_a_count_and_so_is_its_end() -> None:
    clock, told = Clock(), []  # type: tuple[Clock, list[Event]]
    strain = _strain(clock, told)
    assert strain.degraded == ()
    strain.report("synthesis", 2.0, 1.0, 0.0)
    (change,) = told
    assert isinstance(change, events.StrainChanged)
    assert (change.steps, change.because) == (("whole-replies",), "synthesis")
    assert strain.relief().whole_replies
    (sentence,) = strain.degraded
    assert "begins to speak when the whole reply is made" in sentence
    assert "speech is not made in time" in sentence
    clock.now_s += 60.0
    assert strain.degraded == (), "it recovers though nobody reports"
    assert isinstance(told[-1], events.StrainChanged)
    assert told[-1].steps == ()
    assert (strain.state().stepped_down, strain.state().stepped_up) == (1, 1)


def test_heat_lowers_the_same_share_and_lets_go_of_it() -> None:
    clock, told = Clock(), []  # type: tuple[Clock, list[Event]]
    strain = _strain(clock, told)
    strain.floor("heat", NO_GUESSES)
    assert strain.share("local") == 0.0
    assert "hot" in strain.degraded[0]
    strain.report("recognition", 1.0, 1.0, 0.0)
    strain.floor("heat", None)
    assert strain.share("local") == 0.3, "strain holds what heat lets go of"
    clock.now_s += 60.0
    strain.tick()
    assert strain.share("local") == 1.0


def test_what_is_not_installed_is_left_out_and_known() -> None:
    strain = Strain(())
    assert "light-voice" not in [step.name for step in strain.steps]
    assert [step.name for step in strain.skipped] == ["light-recogniser", "light-voice"]


def test_what_holds_is_told_at_every_change_and_at_no_other_time() -> None:
    held: list[Relief] = []
    strain = Strain({LIGHT_RECOGNISER}, changed=held.append)
    strain.floor("test", LIGHT_RECOGNISER)
    strain.report("recognition", 0.1, 1.0, 0.0)
    strain.floor("test", None)
    assert [relief.light_recogniser for relief in held] == [True, False]


def test_of_two_changes_at_once_the_later_one_is_told_last() -> None:
    held: list[bool] = []
    begun = threading.Event()

    def changed(relief: Relief) -> None:
        if relief.light_recogniser:
            begun.set()
            undoing.join(0.2)  # it may come now, if it can
        held.append(relief.light_recogniser)

    def undo() -> None:
        begun.wait(10.0)
        strain.floor("test", None)

    strain = Strain({LIGHT_RECOGNISER}, changed=changed)
    undoing = threading.Thread(target=undo)
    undoing.start()
    strain.floor("test", LIGHT_RECOGNISER)
    undoing.join()
    assert held == [True, False]


def test_of_two_conversations_one_works_ahead() -> None:
    strain = Strain(())
    for name in ("browser", LOCAL):
        strain(events.ListeningStarted(1.0, name, "u", None))
    assert (strain.share("browser"), strain.share(LOCAL)) == (0.0, 1.0)
    strain(events.UtteranceEnded(1.0, LOCAL, "u", "answered"))
    assert strain.share("browser") == 1.0


def test_a_report_costs_next_to_nothing() -> None:
    """As CPU time, and generously bounded: it is some 10 µs, ten a second at the most."""
    strain = Strain(())
    begun_s = time.thread_time()
    for _ in range(2000):
        strain.report("vad", 0.01, 0.5, 0.0)
    assert (time.thread_time() - begun_s) / 2000 < 1e-3


# ---- whole sessions


class FakeStallingRecogniser(FakeRecogniser):
    """Takes its time."""

    stall_s = 0.0

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        time.sleep(self.stall_s)
        return super().hypothesise(until_sample, bias, cancel)


class FakeStallingThinker(FakeThinker):
    """Takes its time to act."""

    stall_s = 0.0

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        time.sleep(self.stall_s)
        return super().commit(understanding, key)


class FakeWren:
    """Guarded sessions of fakes."""

    area = "Kitchen"

    def __init__(self, limits: TimeLimits) -> None:
        self.strain = Strain(
            (), limits=limits, settings=StrainSettings(settle_s=0.0), breakers=BreakerSettings(failures=3, open_s=0.4)
        )
        self.recogniser, self.thinker, self.voice = FakeStallingRecogniser(), FakeStallingThinker(), FakeSynthesiser()
        self.vad = VoiceActivity(FakeVadEngine())

    def session(
        self, name: str, runner: Runner, player: Player, emit: Listener, *, wake: bool = True, **_: object
    ) -> Session:
        assert runner.meter is not None
        guard = self.strain.guard(name, runner.meter)
        parts = SessionParts(
            wake=None,
            vad=Metered("vad", self.vad, runner.meter),
            recogniser=GuardedRecogniser(lambda: self.recogniser, guard),
            endpoint=SilenceEndpoint(),
            thinker=GuardedThinker(self.thinker, guard),
            synthesiser=GuardedSynthesiser(lambda: self.voice, guard, kept=lambda _: False),
            player=player,
            share=lambda: 0.0,
        )
        return Session(name, parts, runner, emit)


class House:
    """A service of fakes, and all that it told."""

    def __init__(self, player: type[FakePlayer] = FakePlayer, limits: TimeLimits = LIMITS) -> None:
        self.wren = FakeWren(limits)
        self.told: list[Event] = []
        self.service = Service(self.wren)  # type: ignore[arg-type]
        self.service.hub.subscribe(self.told.append)
        self.runner = self.service.open_session("browser", player, wake=False)
        self._frames = 0

    def say(self) -> events.UtteranceEnded:
        """One utterance, from the button to its end."""
        before = len(self.kind(events.UtteranceEnded))
        self.runner.call(self.runner.session.listen)
        self.until(lambda: self.runner.session.phase is Phase.LISTENING)
        begun_s = time.monotonic()
        for number, frame in enumerate(frames(silence(0.1), speech(0.5), silence(1.6))):
            # Faster than it is spoken: its own times count.
            self.runner.push(Frame(frame.samples, begun_s + number / 100, self._frames))
            self._frames += 1
            time.sleep(0.0005)
        self.until(lambda: len(self.kind(events.UtteranceEnded)) > before)
        return self.kind(events.UtteranceEnded)[before]

    def kind(self, kind: type[T]) -> list[T]:
        return [event for event in list(self.told) if isinstance(event, kind)]

    def until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline_s, self.told
            time.sleep(0.005)

    def idle(self) -> None:
        self.until(lambda: self.runner.session.phase is Phase.IDLE)


@pytest.fixture
def house() -> Iterator[House]:
    made = House()
    yield made
    made.service.close()


def test_a_recogniser_that_hangs_costs_one_utterance_which_is_apologised_for(house: House) -> None:
    house.wren.recogniser.stall_s = 2.0
    assert house.say().outcome == "failed"
    (fault,) = house.kind(events.SessionFault)
    assert (fault.stage, fault.code) == ("recognise", "voice.timeout")
    house.until(lambda: house.kind(events.Announcing))
    assert house.kind(events.Announcing)[0].text == SENTENCES["recognise"]
    house.idle()
    house.wren.recogniser.stall_s = 0.0
    assert house.say().outcome == "answered"


def test_a_home_that_hangs_is_named_and_the_next_command_is_heard(house: House) -> None:
    house.wren.thinker.stall_s = 1.0
    assert house.say().outcome == "failed"
    house.until(lambda: house.kind(events.Announcing))
    assert house.kind(events.Announcing)[0].text == SENTENCES["commit"]
    house.idle()
    house.wren.thinker.stall_s = 0.0
    assert house.say().outcome == "answered"


def test_a_voice_that_fails_again_and_again_rests_is_shown_and_comes_back(house: House) -> None:
    house.wren.voice.fail = True
    for _ in range(3):
        assert house.say().outcome == "failed"
        house.idle()
    (change,) = house.kind(events.BreakerChanged)
    assert (change.stage, change.state) == ("synthesis", "open")
    assert any("the fake synthesiser was told to fail" in sentence for sentence in house.wren.strain.degraded)
    assert house.kind(events.Announcing) == [], "what cannot speak is not asked to apologise"
    house.wren.voice.fail = False
    time.sleep(0.5)
    assert house.say().outcome == "answered"
    assert [event.state for event in house.kind(events.BreakerChanged)] == ["open", "half-open", "closed"]
    assert house.wren.strain.degraded == ()


class FakeDeafPlayer(FakePlayer):
    silent = True


@pytest.mark.slow
def test_a_speaker_that_never_says_that_it_has_played_ends_the_utterance_all_the_same() -> None:
    house = House(FakeDeafPlayer)
    try:
        assert house.say().outcome == "failed"
        (fault,) = house.kind(events.SessionFault)
        assert (fault.stage, fault.code) == ("play", "voice.timeout")
        house.idle()
    finally:
        house.service.close()


def test_a_recogniser_that_is_slow_takes_the_steps_that_help_it_and_no_others() -> None:
    house = House(limits=replace(LIMITS, recognition_s=10.0))
    try:
        house.wren.recogniser.stall_s = 1.5
        for _ in range(2):
            assert house.say().outcome == "answered"
            house.idle()
        steps = house.wren.strain.state().steps
        assert [step.name for step in steps][:1] == ["fewer-partials"]
        assert all("recognition" in step.relieves for step in steps)
    finally:
        house.service.close()


def test_a_detector_that_breaks_ends_the_utterance_lets_sound_pass_and_is_tried_again(house: House) -> None:
    broken, asked = threading.Event(), []
    inner = house.wren.vad.push

    def push(frame: Frame) -> object:
        asked.append(frame)
        if broken.is_set():
            raise RuntimeError("the fake detector is broken")
        return inner(frame)

    house.wren.vad.push = push  # type: ignore[method-assign, assignment]
    broken.set()
    for frame in frames(silence(1.0)):
        house.runner.push(frame)
    house.until(lambda: house.runner.deaf_frames >= 90)
    assert len(asked) == 3
    assert house.runner.session.phase is Phase.IDLE
