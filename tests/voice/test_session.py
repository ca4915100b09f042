"""A whole conversation with fakes at both ends: what listeners see, what is committed, what a fault does."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from appliance import events
from appliance.audio.frame import Frame, Samples
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner, SimulatedPlayer, SimulatedRunner
from appliance.voice.session import Session
from tests.fakes import frames, silence, speech
from tests.voice.conversation import Bench, hear


@pytest.fixture
def simulated() -> tuple[SimulatedRunner, Bench]:
    runner = SimulatedRunner()
    bench = Bench(runner, SimulatedPlayer(runner))
    runner.attach(bench.session)
    return runner, bench


def test_events_tell_the_whole_story_in_order(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(1.0), silence(2.0)))
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
    hear(runner, frames(speech(1.0), silence(2.0)))
    first, last = bench.one(events.FirstAudio).time_s, bench.one(events.PlaybackEnded).time_s
    assert last - first == pytest.approx(0.4, abs=0.05)


def test_a_pause_in_the_sentence_does_not_end_it(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    runner.call(bench.session.listen)
    hear(runner, frames(speech(0.6), silence(0.5), speech(0.6, 1), silence(2.0)))
    assert len(bench.thinker.committed) == 1
    assert bench.one(events.EndpointReached).time_s == pytest.approx(2.4, abs=0.1)
    assert len(bench.recogniser.asked) >= 2


def test_what_is_not_understood_gets_more_time(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    bench.recogniser.text = "gibberish"
    runner.call(bench.session.listen)
    hear(runner, frames(speech(0.6), silence(1.2), speech(0.6, 1), silence(3.0)))
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
    hear(runner, frames(silence(7.0)))
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
    hear(runner, sound)
    fault = bench.one(events.SessionFault)
    assert fault.code == "voice"
    assert "told to fail" in fault.message
    assert bench.told[-1].outcome == "failed"
    getattr(bench, stage).fail = False
    bench.told.clear()
    runner.call(bench.session.listen)
    hear(runner, [Frame(f.samples, f.time_s + 3.0, f.seq + 300) for f in sound])
    assert bench.told[-1].outcome == "answered"


def test_a_hole_in_the_sound_resets_what_listens_for_words(simulated: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = simulated
    resets: list[str] = []

    class FakeWake:
        words = ("fake",)

        def push(self, frame: Frame) -> tuple[()]:
            return ()

        def reset(self) -> None:
            resets.append("wake")

    object.__setattr__(bench.session._parts, "wake", FakeWake())
    bench.session.set_wake(FakeWake())
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
    hear(runner, frames(speech(1.0), silence(3.0)))
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
    hear(runner, frames(speech(0.6), silence(3.0)))
    assert bench.kinds().count("ListeningStarted") == 2
    assert bench.session.phase is Phase.LISTENING
    later = [Frame(f.samples, f.time_s + 3.6, f.seq + 360) for f in frames(silence(7.0))]
    hear(runner, later)
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


def test_what_cannot_even_be_stopped_does_not_end_the_sessions_thread() -> None:
    class FakeGoneSpeaker:
        """Was taken away in mid-reply."""

        def begin(self, generation: int, rate_hz: int) -> None:
            return None

        def write(self, samples: Samples) -> None:
            raise OSError("the fake speaker is gone")

        def finish(self) -> None:
            raise OSError("the fake speaker is gone")

        def stop(self) -> None:
            tried.set()
            raise OSError("the fake speaker is gone")

    said: list[bool] = []
    tried, heard = threading.Event(), threading.Event()
    runner = LiveRunner(lambda r: Bench(r, FakeGoneSpeaker()).session)  # type: ignore[arg-type]
    try:
        runner.call(lambda: said.append(runner.session.announce("dinner is ready")))
        assert tried.wait(20)
        runner.call(heard.set)
        assert heard.wait(20)
        assert runner.session.phase is Phase.IDLE
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
