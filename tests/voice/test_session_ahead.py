"""Conversations under the endpoint that weighs what was said: when they end, what is done ahead, what that may cost."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from appliance import events
from appliance.audio.frame import RATE_HZ, Frame
from appliance.voice.asr.protocol import Bias, Cancel, Extension, Hypothesis, Reach
from appliance.voice.endpoint import MeaningEndpoint
from appliance.voice.loop import Phase
from appliance.voice.runner import SimulatedPlayer, SimulatedRunner
from tests.fakes import frames, silence, speech
from tests.voice.conversation import Bench, hear

WHOLE = Reach(True, True, Extension.NONE)


@pytest.fixture
def quick() -> tuple[SimulatedRunner, Bench]:
    """With the endpoint that weighs what was said."""
    runner = SimulatedRunner()
    bench = Bench(runner, SimulatedPlayer(runner), endpoint=MeaningEndpoint())
    bench.recogniser.reach, bench.recogniser.text = WHOLE, "Turn on the lights."
    runner.attach(bench.session)
    return runner, bench


def test_a_whole_sentence_is_answered_a_fifth_of_a_second_after_its_end(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(0.85), 0.3 * speech(0.15), silence(2.0)))
    assert bench.one(events.EndpointReached).reason == "whole"
    assert bench.one(events.EndpointReached).time_s == pytest.approx(1.66, abs=0.04)
    assert bench.one(events.SpeechEnded).time_s == pytest.approx(1.5, abs=0.03)
    assert bench.one(events.FirstAudio).time_s < 1.75
    told = bench.one(events.SpeculationEnded)
    assert isinstance(told, events.SpeculationEnded)
    assert told.hit
    assert 0.0 <= told.wasted_s <= told.spent_s


@pytest.mark.parametrize(
    ("extension", "end_s"), [(Extension.NONE, 1.66), (Extension.RARE, 1.66), (Extension.LIKELY, 2.0)]
)
def test_a_sentence_that_may_go_on_is_given_time(
    quick: tuple[SimulatedRunner, Bench], extension: Extension, end_s: float
) -> None:
    runner, bench = quick
    bench.recogniser.reach = Reach(True, True, extension)
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(0.85), 0.3 * speech(0.15), silence(2.0)))
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
    hear(runner, [Frame(f.samples, f.time_s + 1.4, f.seq + 140) for f in frames(speech(0.6, 1), silence(2.0))])
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
    hear(runner, sound[150:])
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
    hear(runner, frames(speech(0.6), silence(2.0)))
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
    hear(runner, sound[150:])
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
    hear(runner, frames(silence(0.512), speech(0.29), silence(2.0)))
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
        hear(runner, frames(silence(0.5), speech(0.25), silence(0.12), speech(0.25, 1), silence(2.0)))
        asked.append(len(bench.recogniser.asked))
        assert bench.told[-1].outcome == "answered"
    assert asked == [2, 1]


def test_the_words_of_a_guess_that_was_no_end_are_shown(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.reach = Reach(True, True, Extension.LIKELY)
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(0.25), silence(0.3), speech(0.25, 1), silence(2.0)))
    partials = [e for e in bench.told if isinstance(e, events.PartialText)]
    assert any(e.time_s == pytest.approx(1.08, abs=0.05) for e in partials)


def test_a_television_behind_the_speaker_does_not_hold_the_answer_up(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(1.0), 0.15 * speech(4.0, 1)))
    assert bench.one(events.EndpointReached).reason == "whole"
    assert bench.one(events.EndpointReached).time_s == pytest.approx(2.26, abs=0.06)
    assert len(bench.thinker.committed) == 1


def test_a_television_as_loud_as_the_speaker_ends_when_the_sentence_stays_the_same(
    quick: tuple[SimulatedRunner, Bench],
) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(8.0)))
    assert bench.one(events.EndpointReached).reason == "steady"
    assert bench.one(events.EndpointReached).time_s < 4.0
    assert len(bench.thinker.committed) == 1


def test_a_single_short_word_is_heard(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    bench.recogniser.text = "Stop."
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(0.12), 0.3 * speech(0.1), silence(2.0)))
    assert bench.one(events.EndpointReached).time_s < 1.0
    assert bench.thinker.matched[-1] == "Stop."
    assert len(bench.thinker.committed) == 1


def test_somebody_who_starts_late_is_waited_for(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    runner.call(bench.session.listen)
    hear(runner, frames(silence(4.5), speech(0.85), 0.3 * speech(0.15), silence(1.0)))
    assert bench.told[-1].outcome == "answered"


def test_a_short_word_whose_end_was_not_heard_yet_is_looked_at_once_more(quick: tuple[SimulatedRunner, Bench]) -> None:
    runner, bench = quick
    read = bench.recogniser.hypothesise
    asked: list[int] = []

    def hypothesise(until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        asked.append(until_sample)
        heard = read(until_sample, bias, cancel)
        return heard if until_sample - asked[0] > 0.2 * RATE_HZ else replace(heard, text="")

    bench.recogniser.hypothesise = hypothesise  # type: ignore[method-assign]
    bench.recogniser.reach = WHOLE
    runner.call(bench.session.listen)
    hear(runner, frames(silence(0.5), speech(0.25), silence(2.0)))
    assert len(asked) == 2
    assert len(bench.thinker.committed) == 1
    assert bench.one(events.UtteranceEnded).outcome == "answered"
