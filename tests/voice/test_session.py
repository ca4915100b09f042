"""A whole conversation with fakes at both ends: what listeners see, what is committed, what a fault does."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from appliance import events
from appliance.audio.frame import Frame
from appliance.voice.asr.protocol import Cancel, Extension, Hypothesis, Reach
from appliance.voice.budget import SpeculationSettings
from appliance.voice.endpoint import EndpointStrategy, MeaningEndpoint, SilenceEndpoint, SilenceSettings
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner, SimulatedPlayer, SimulatedRunner
from appliance.voice.session import Runner, Session, SessionParts, SessionSettings
from appliance.voice.vad import VoiceActivity
from tests.fakes import FakeRecogniser, FakeSynthesiser, FakeThinker, FakeVadEngine, frames, silence, speech


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
    ) -> None:
        self.recogniser, self.thinker, self.synthesiser = FakeRecogniser(), FakeThinker(), FakeSynthesiser()
        self.told: list[events.Event] = []
        self.player = player
        parts = SessionParts(
            wake=None,
            vad=VoiceActivity(FakeVadEngine()),
            recogniser=self.recogniser,
            endpoint=endpoint or SilenceEndpoint(SilenceSettings()),
            thinker=self.thinker,
            synthesiser=self.synthesiser,
            player=player,  # type: ignore[arg-type]
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


@pytest.fixture
def simulated() -> tuple[SimulatedRunner, Bench]:
    runner = SimulatedRunner()
    bench = Bench(runner, SimulatedPlayer(runner))
    runner.attach(bench.session)
    return runner, bench


@pytest.fixture
def quick() -> tuple[SimulatedRunner, Bench]:
    """With the endpoint that weighs what was said."""
    runner = SimulatedRunner()
    bench = Bench(runner, SimulatedPlayer(runner), endpoint=MeaningEndpoint())
    bench.recogniser.reach, bench.recogniser.text = WHOLE, "Turn on the lights."
    runner.attach(bench.session)
    return runner, bench


WHOLE = Reach(True, True, Extension.NONE)


def _hear(runner: SimulatedRunner, sound: list[Frame]) -> None:
    for frame in sound:
        runner.push(frame)
    runner.drain()


def test_events_tell_the_whole_story_in_order(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(1.0), silence(2.0)))
    kinds = [kind for kind in bench.kinds() if kind != "PartialText"]
    assert kinds == [
        "ListeningStarted", "SpeechStarted", "SpeechEnded", "TextRecognised", "EndpointReached", "UtteranceUnderstood",
        "ReplyReady", "FirstAudio", "PlaybackEnded", "SpeculationEnded", "UtteranceEnded",
    ]  # fmt: skip
    assert bench.kinds().count("PartialText") >= 1
    assert bench.one(events.SpeechStarted).time_s == pytest.approx(0.5, abs=0.05)
    assert bench.one(events.SpeechEnded).time_s == pytest.approx(1.5, abs=0.05)
    assert bench.one(events.EndpointReached).time_s == pytest.approx(2.2, abs=0.1)
    assert len(bench.thinker.committed) == 1
    assert {event.session for event in bench.told} == {"test"}


def test_partials_go_on_while_somebody_speaks_and_stop_for_long_ones(
    simulated: tuple[SimulatedRunner, Bench],
) -> None:
    runner, bench = simulated
    for _ in range(2):
        bench.told.clear()
        runner.call(bench.session.listen)
        start_s = runner.now()
        sound = frames(speech(16.0), silence(2.0))
        for frame in sound:
            runner.push(Frame(frame.samples, frame.time_s + start_s, frame.seq))
        runner.drain()
        partials = [e.time_s - start_s for e in bench.told if isinstance(e, events.PartialText)]
        assert 20 <= len(partials) <= 42
        assert max(partials) < 13.0


def test_playback_ends_when_the_last_sample_is_out(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    bench.thinker.reply = "one two three four"
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(1.0), silence(2.0)))
    first, last = bench.one(events.FirstAudio).time_s, bench.one(events.PlaybackEnded).time_s
    assert last - first == pytest.approx(0.4, abs=0.05)


def test_a_pause_in_the_sentence_does_not_end_it(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(0.6), silence(0.5), speech(0.6, 1), silence(2.0)))
    assert len(bench.thinker.committed) == 1
    assert bench.one(events.EndpointReached).time_s == pytest.approx(2.4, abs=0.1)
    assert len(bench.recogniser.asked) >= 2


def test_what_is_not_understood_gets_more_time(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    bench.recogniser.text = "gibberish"
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(0.6), silence(1.2), speech(0.6, 1), silence(3.0)))
    assert bench.one(events.EndpointReached).reason == "silence-not-understood"
    assert bench.one(events.EndpointReached).time_s == pytest.approx(3.9, abs=0.1)


def test_the_recogniser_hears_the_sound_before_the_detector_was_sure(
    simulated: tuple[SimulatedRunner, Bench],
) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    sound = frames(silence(1.0), speech(0.5), silence(0.1))
    for frame in sound:
        runner.push(frame)
    heard = np.concatenate(bench.recogniser.sound)
    said = np.concatenate([f.samples for f in sound])
    assert np.array_equal(heard, said[said.size - heard.size :])
    assert 0.9 < heard.size / 16_000 < 1.15


def test_nobody_speaks_and_listening_ends_without_a_reply(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(7.0)))
    assert bench.one(events.UtteranceEnded).outcome == "nothing-heard"
    assert bench.thinker.matched == []


def test_a_sound_without_a_word_does_not_end_listening(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    bench.recogniser.text = ""
    runner.call(bench.session.listen)
    for frame in frames(speech(0.3), silence(1.0)):
        runner.push(frame)
    assert bench.session.phase is Phase.LISTENING
    bench.recogniser.text = "turn on the lights"
    for frame in [Frame(f.samples, f.time_s + 1.3, f.seq + 130) for f in frames(speech(0.6), silence(2.0))]:
        runner.push(frame)
    runner.drain()
    assert len(bench.thinker.committed) == 1


@pytest.mark.parametrize("stage", ["recogniser", "synthesiser"])
def test_a_fault_ends_the_utterance_and_the_next_one_works(
    simulated: tuple[SimulatedRunner, Bench], stage: str
) -> None:
    runner, bench = simulated
    getattr(bench, stage).fail = True
    runner.call(bench.session.listen)
    sound = frames(speech(0.6), silence(2.0))
    _hear(runner, sound)
    fault = bench.one(events.SessionFault)
    assert fault.code == "voice"
    assert "told to fail" in fault.message
    assert bench.told[-1].outcome == "failed"
    getattr(bench, stage).fail = False
    bench.told.clear()
    runner.call(bench.session.listen)
    _hear(runner, [Frame(f.samples, f.time_s + 3.0, f.seq + 300) for f in sound])
    assert bench.told[-1].outcome == "answered"


def test_a_hole_in_the_sound_resets_what_listens_for_words(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    resets: list[str] = []

    class FakeWake:
        def push(self, frame: Frame) -> tuple[()]:
            return ()

        def reset(self) -> None:
            resets.append("wake")

    object.__setattr__(bench.session._parts, "wake", FakeWake())
    sound = frames(silence(0.5))
    for frame in sound:
        runner.push(frame)
    assert resets == []
    for frame in sound:
        runner.push(Frame(frame.samples, frame.time_s + 5.0, frame.seq + 500))
    assert resets == ["wake"]


def test_stop_silences_a_reply_at_once(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    bench.thinker.reply = "word " * 50
    runner.call(bench.session.listen)
    sound = frames(speech(0.6), silence(3.0))
    for frame in sound[:200]:
        runner.push(frame)
    assert bench.session.phase is Phase.SPEAKING
    runner.call(bench.session.stop)
    runner.drain()
    assert bench.one(events.PlaybackEnded).stopped
    assert bench.one(events.UtteranceEnded).outcome == "stopped"
    assert bench.session.phase is Phase.IDLE


def test_slow_compute_delays_results_but_loses_nothing(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    real = bench.recogniser.hypothesise

    def slow(*arguments: object) -> object:
        time.sleep(0.3)
        return real(*arguments)  # type: ignore[arg-type]

    bench.recogniser.hypothesise = slow  # type: ignore[method-assign, assignment]
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(1.0), silence(3.0)))
    recognised = [e for e in bench.told if isinstance(e, events.TextRecognised)]
    assert recognised[-1].time_s - 1.2 > 0.28
    assert bench.told[-1].outcome == "answered"


def test_an_announcement_is_said_when_idle_and_refused_when_busy(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    said: list[bool] = []
    runner.call(lambda: said.append(bench.session.announce("the pizza timer is done")))
    runner.call(lambda: said.append(bench.session.announce("another one")))
    runner.drain()
    assert said == [True, False]
    assert bench.kinds() == ["Announcing", "FirstAudio", "PlaybackEnded", "UtteranceEnded"]
    assert bench.session.phase is Phase.IDLE
    runner.call(lambda: said.append(bench.session.announce("  ")))
    assert said[-1] is False


def test_a_follow_up_is_listened_for_once_and_not_after_an_announcement() -> None:
    runner = SimulatedRunner()
    bench = Bench(runner, SimulatedPlayer(runner), follow_up=True)
    runner.attach(bench.session)
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(0.6), silence(3.0)))
    assert bench.kinds().count("ListeningStarted") == 2
    assert bench.session.phase is Phase.LISTENING
    later = [Frame(f.samples, f.time_s + 3.6, f.seq + 360) for f in frames(silence(7.0))]
    _hear(runner, later)
    assert bench.told[-1].outcome == "nothing-heard"
    runner.call(lambda: bench.session.announce("dinner"))
    runner.drain()
    assert bench.kinds().count("ListeningStarted") == 2


def test_the_live_runner_does_the_same_on_threads() -> None:
    benches: list[Bench] = []
    done = threading.Event()

    def make(runner: LiveRunner) -> Session:
        benches.append(Bench(runner, SimulatedPlayer(runner)))  # type: ignore[arg-type]
        benches[0].told = _Told(done)
        benches[0].session._emit = benches[0].told.append
        return benches[0].session

    runner = LiveRunner(make)
    runner.post_at = lambda time_s, message: runner.post(message)  # type: ignore[attr-defined]
    try:
        runner.call(runner.session.listen)
        for frame in frames(silence(0.2), speech(0.8), silence(1.5)):
            runner.push(frame)
            time.sleep(0.001)
        assert done.wait(20)
        kinds = [type(e).__name__ for e in benches[0].told]
        assert kinds[0] == "ListeningStarted"
        assert kinds[-1] == "UtteranceEnded"
        assert benches[0].told[-1].outcome == "answered"
        assert len(benches[0].thinker.committed) == 1
        assert runner.dropped_frames == 0
    finally:
        runner.close()


class _Told(list):  # type: ignore[type-arg]
    """Events, and a flag for the last one."""

    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self._done = done

    def append(self, event: events.Event) -> None:
        super().append(event)
        if isinstance(event, events.UtteranceEnded):
            self._done.set()


def test_a_whole_sentence_is_answered_a_fifth_of_a_second_after_its_end(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(0.85), 0.3 * speech(0.15), silence(2.0)))
    assert bench.one(events.EndpointReached).reason == "whole"
    assert bench.one(events.EndpointReached).time_s == pytest.approx(1.66, abs=0.04)
    assert bench.one(events.SpeechEnded).time_s == pytest.approx(1.5, abs=0.03)
    assert bench.one(events.FirstAudio).time_s < 1.75
    told = bench.one(events.SpeculationEnded)
    assert isinstance(told, events.SpeculationEnded)
    assert told.hit
    assert 0.0 <= told.wasted_s <= told.spent_s


@pytest.mark.parametrize(
    ("extension", "end_s"), [(Extension.NONE, 1.66), (Extension.RARE, 1.66), (Extension.LIKELY, 2.1)]
)
def test_a_sentence_that_may_go_on_is_given_time(
    quick: tuple[SimulatedRunner, Bench], extension: Extension, end_s: float
) -> None:
    runner, bench = quick
    bench.recogniser.reach = Reach(True, True, extension)
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(0.85), 0.3 * speech(0.15), silence(2.0)))
    assert bench.one(events.EndpointReached).time_s == pytest.approx(end_s, abs=0.04)


def test_a_guess_about_half_a_sentence_is_dropped_without_a_trace(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    bench.recogniser.reach, bench.thinker.reply = Reach(True, True, Extension.LIKELY), "The first half."
    first = frames(silence(0.5), speech(0.6), silence(0.3))
    for frame in first:
        runner.push(frame)
    assert bench.synthesiser.spoken == ["The first half."]
    bench.recogniser.reach, bench.thinker.reply = WHOLE, "All of it."
    _hear(runner, [Frame(f.samples, f.time_s + 1.4, f.seq + 140) for f in frames(speech(0.6, 1), silence(2.0))])
    assert len(bench.thinker.committed) == 1
    assert bench.synthesiser.spoken == ["The first half.", "All of it."]
    reply = bench.one(events.ReplyReady)
    assert isinstance(reply, events.ReplyReady)
    assert reply.text == "All of it."
    assert len(bench.player.chunks) == 3


def test_nothing_is_heard_before_the_endpoint_however_much_is_ready(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.reach = Reach(True, True, Extension.LIKELY)
    runner.call(bench.session.listen)
    for frame in frames(silence(0.5), speech(0.6), silence(0.4)):
        runner.push(frame)
    assert bench.synthesiser.spoken == ["Done."]
    assert bench.player.chunks == []
    assert bench.thinker.committed == []
    runner.call(bench.session.stop)
    runner.drain()
    assert bench.player.chunks == []
    assert bench.thinker.committed == []
    assert bench.one(events.UtteranceEnded).outcome == "stopped"


def test_only_the_start_of_a_reply_is_made_ahead(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.reach, bench.thinker.reply = Reach(True, True, Extension.LIKELY), "word " * 20
    runner.call(bench.session.listen)
    sound = frames(silence(0.5), speech(0.6), silence(3.0))
    for frame in sound[:150]:
        runner.push(frame)
    assert bench.synthesiser.made == 1
    _hear(runner, sound[150:])
    assert bench.synthesiser.made == 20
    assert len(bench.player.chunks) == 20
    assert bench.player.underruns == 0


def test_a_reply_that_comes_out_otherwise_than_foreseen_is_made_anew(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    real = bench.thinker.commit

    def commit(*arguments: object) -> object:
        bench.thinker.reply = "The lamp does not answer."
        return real(*arguments)  # type: ignore[arg-type]

    bench.thinker.commit = commit  # type: ignore[method-assign, assignment]
    runner.call(bench.session.listen)
    _hear(runner, frames(speech(0.6), silence(2.0)))
    assert bench.synthesiser.spoken == ["Done.", "The lamp does not answer."]
    assert len(bench.player.chunks) == 5
    told = bench.one(events.SpeculationEnded)
    assert isinstance(told, events.SpeculationEnded)
    assert not told.hit


def test_a_reply_that_cannot_be_made_ahead_is_no_fault_until_it_is_wanted(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.reach, bench.synthesiser.fail = Reach(True, True, Extension.LIKELY), True
    runner.call(bench.session.listen)
    sound = frames(silence(0.5), speech(0.6), silence(3.0))
    for frame in sound[:150]:
        runner.push(frame)
    assert bench.synthesiser.spoken
    assert bench.session.phase is Phase.LISTENING
    bench.synthesiser.fail = False
    _hear(runner, sound[150:])
    assert bench.told[-1].outcome == "answered"


def test_a_text_that_was_known_before_the_end_is_not_recognised_again(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    real = bench.recogniser.hypothesise

    def slow(until: int, bias: object, cancel: Cancel) -> Hypothesis:
        time.sleep(0.12)
        return real(until, None, cancel)

    bench.recogniser.hypothesise = slow  # type: ignore[method-assign, assignment]
    runner.call(bench.session.listen)
    # The partial is due 0.3 s after the start of speech: it hears some of the quiet behind it.
    _hear(runner, frames(silence(0.512), speech(0.29), silence(2.0)))
    assert len(bench.recogniser.asked) == 1
    assert len(bench.thinker.committed) == 1


def test_without_a_budget_guessing_waits_for_a_likelier_end() -> None:
    asked = []
    for share in (0.5, 0.0):
        runner = SimulatedRunner()
        bench = Bench(runner, SimulatedPlayer(runner), endpoint=MeaningEndpoint(), share=share, partial_every_s=9.0)
        bench.recogniser.reach = WHOLE
        runner.attach(bench.session)
        runner.call(bench.session.listen)
        _hear(runner, frames(silence(0.5), speech(0.25), silence(0.12), speech(0.25, 1), silence(2.0)))
        asked.append(len(bench.recogniser.asked))
        assert bench.told[-1].outcome == "answered"
    assert asked == [2, 1]


def test_the_words_of_a_guess_that_was_no_end_are_shown(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.reach = Reach(True, True, Extension.LIKELY)
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(0.25), silence(0.3), speech(0.25, 1), silence(2.0)))
    partials = [e for e in bench.told if isinstance(e, events.PartialText)]
    assert any(e.time_s == pytest.approx(1.08, abs=0.05) for e in partials)


def test_a_television_behind_the_speaker_does_not_hold_the_answer_up(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(1.0), 0.15 * speech(4.0, 1)))
    assert bench.one(events.EndpointReached).reason == "whole"
    assert bench.one(events.EndpointReached).time_s == pytest.approx(2.26, abs=0.06)
    assert len(bench.thinker.committed) == 1


def test_a_television_as_loud_as_the_speaker_ends_when_the_sentence_stays_the_same(
    quick: tuple[SimulatedRunner, Bench],
) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(8.0)))
    assert bench.one(events.EndpointReached).reason == "steady"
    assert bench.one(events.EndpointReached).time_s < 4.0
    assert len(bench.thinker.committed) == 1


def test_a_single_short_word_is_heard(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.text = "Stop."
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(0.5), speech(0.12), 0.3 * speech(0.1), silence(2.0)))
    assert bench.one(events.EndpointReached).time_s < 1.0
    assert bench.thinker.matched[-1] == "Stop."
    assert len(bench.thinker.committed) == 1


def test_somebody_who_starts_late_is_waited_for(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    _hear(runner, frames(silence(4.5), speech(0.85), 0.3 * speech(0.15), silence(1.0)))
    assert bench.told[-1].outcome == "answered"
