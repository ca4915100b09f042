"""The state machine: what leads to what, and above all what never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.intent.types import Reply, Understanding
from appliance.voice.asr.acceptance import Accepted
from appliance.voice.asr.protocol import Extension, Hypothesis
from appliance.voice.loop import (
    Announce,
    Cancel,
    Commit,
    Committed,
    Effect,
    EndpointFound,
    Failed,
    Finish,
    Foreseen,
    LikelyEnd,
    Listen,
    LoopState,
    Match,
    Matched,
    Phase,
    Play,
    Played,
    Rearm,
    Recognise,
    Recognised,
    Signal,
    SpeechResumed,
    Start,
    Stop,
    Synthesise,
    step,
)

HEARD = Hypothesis("turn on the lights", -1.0)


def taken(understanding: Understanding) -> Accepted:
    """A recognition taken for this."""
    whole = understanding.intent is not None
    return Accepted(understanding, understanding.text, "free", 0.0, whole, Extension.NONE)


MEANT = taken(Understanding("turn on the lights", "HassTurnOn"))
NOTHING = taken(Understanding("", None))
DONE = Reply("Turned on the lights", True, MEANT.understanding)


def run(*signals: Signal, state: LoopState | None = None) -> tuple[LoopState, list[Effect]]:
    """Step through signals; those with a generation of -1 get the present one."""
    state, effects = state or LoopState(), []
    for signal in signals:
        if getattr(signal, "generation", 0) == -1:
            signal = _with_generation(signal, state.generation)  # noqa: PLW2901 - the point of the helper
        state, more = step(state, signal)
        effects += more
    return state, effects


def _with_generation(signal: Signal, generation: int) -> Signal:
    values = {name: getattr(signal, name) for name in signal.__dataclass_fields__}
    return type(signal)(**{**values, "generation": generation})


def test_a_command_is_heard_acted_on_and_answered() -> None:
    state, effects = run(
        Listen("okay_nabu"), SpeechResumed(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT),
        EndpointFound("silence"), Committed(-1, DONE), Played(-1),
    )  # fmt: skip
    assert [type(e) for e in effects] == [Start, Recognise, Match, Commit, Synthesise, Play, Finish]
    assert effects[-1] == Finish(1, "answered")
    assert state.phase is Phase.IDLE


def test_guesses_have_no_consequence_until_the_endpoint() -> None:
    _, effects = run(Listen(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT), LikelyEnd(), LikelyEnd())
    assert [type(e) for e in effects] == [Start, Recognise, Match]


def test_the_reply_is_got_ready_before_the_end_and_played_after_it() -> None:
    state, ahead = run(
        Listen(),
        LikelyEnd(),
        Recognised(-1, HEARD),
        Matched(-1, MEANT),
        Foreseen(-1, DONE.text),
        Foreseen(-1, DONE.text),
    )
    assert [type(e) for e in ahead] == [Start, Recognise, Match, Synthesise]
    _, effects = run(EndpointFound("whole"), Committed(-1, DONE), state=state)
    assert effects == [Commit(1, MEANT.understanding), Play(1, DONE.text)]


@pytest.mark.parametrize("foreseen", ["Done", "", " "])
def test_a_reply_that_comes_out_otherwise_is_made_anew(foreseen: str) -> None:
    _, effects = run(
        Listen(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT), Foreseen(-1, foreseen),
        EndpointFound("whole"), Committed(-1, DONE),
    )  # fmt: skip
    assert effects[-2:] == [Synthesise(1, DONE.text), Play(1, DONE.text)]


def test_what_a_partial_foresaw_is_dropped_when_speech_goes_on() -> None:
    before, effects = run(Listen(), SpeechResumed(), Foreseen(-1, "Done"))
    assert effects[-1] == Synthesise(1, "Done")
    state, effects = run(SpeechResumed(), state=before)
    assert effects == [Cancel(1)]
    assert state.prepared is None
    assert step(state, Foreseen(1, "Done")) == (state, ())


@pytest.mark.parametrize(
    "late",
    [Recognised(1, HEARD), Matched(1, MEANT), Foreseen(1, "Done"), Committed(1, DONE), Played(1), Failed(1, "speak")],
)
@pytest.mark.parametrize(
    "since",
    [(LikelyEnd(),), (LikelyEnd(), Recognised(-1, HEARD)), (LikelyEnd(), EndpointFound("silence"))],
)
def test_a_result_of_an_earlier_guess_changes_nothing(late: Signal, since: tuple[Signal, ...]) -> None:
    state, _ = run(Listen(), LikelyEnd(), SpeechResumed(), *since)
    assert state.generation > 1
    assert step(state, late) == (state, ())


def test_nothing_is_guessed_any_more_once_the_command_is_being_carried_out() -> None:
    state, _ = run(Listen(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT), EndpointFound("silence"))
    for signal in (Foreseen(-1, "Done"), Recognised(-1, HEARD), Matched(-1, MEANT), SpeechResumed(), LikelyEnd()):
        assert run(signal, state=state) == (state, [])


def test_an_announcement_is_made_and_played() -> None:
    state, effects = run(Announce("dinner"))
    assert effects == [Synthesise(1, "dinner"), Play(1, "dinner")]
    assert state.phase is Phase.SPEAKING


def test_a_guess_is_dropped_when_speech_goes_on() -> None:
    before, _ = run(Listen(), LikelyEnd())
    state, effects = run(SpeechResumed(), state=before)
    assert effects == [Cancel(before.generation)]
    assert state.generation == before.generation + 1
    stale, nothing = step(state, Recognised(before.generation, HEARD))
    assert (stale, nothing) == (state, ())
    _, again = run(LikelyEnd(), state=state)
    assert again == [Recognise(state.generation)]


def test_the_endpoint_waits_for_a_recognition_in_flight() -> None:
    state, effects = run(Listen(), LikelyEnd(), EndpointFound("silence"))
    assert state.phase is Phase.THINKING
    _, more = run(Recognised(-1, HEARD), Matched(-1, MEANT), state=state)
    assert [type(e) for e in effects + more] == [Start, Recognise, Match, Commit]


def test_an_endpoint_without_any_guess_recognises_first() -> None:
    state, effects = run(Listen(), SpeechResumed(), EndpointFound("too-long"))
    assert effects[-1] == Recognise(state.generation)


def test_a_result_that_comes_twice_commits_once() -> None:
    state, effects = run(
        Listen(), EndpointFound("too-long"), Recognised(-1, HEARD), Matched(-1, MEANT), Matched(-1, MEANT)
    )
    assert sum(isinstance(e, Commit) for e in effects) == 1
    _, more = run(Recognised(-1, HEARD), Matched(-1, MEANT), state=state)
    assert more == []


def test_nobody_speaks() -> None:
    state, effects = run(Listen("alexa"), EndpointFound("no-speech"))
    assert effects[-1] == Finish(1, "nothing-heard")
    assert state.phase is Phase.IDLE


def test_a_sound_without_a_word_is_forgotten_and_listening_goes_on() -> None:
    state, effects = run(
        Listen("okay_nabu"), LikelyEnd(), Recognised(-1, Hypothesis("Nabu.", -1)), Matched(-1, NOTHING)
    )
    assert effects[-1] == Rearm(state.generation)
    assert state.phase is Phase.LISTENING
    assert state.hypothesis is None


def test_a_wordless_utterance_at_the_endpoint_is_not_answered() -> None:
    _, effects = run(Listen(), EndpointFound("silence"), Recognised(-1, Hypothesis("", 0)), Matched(-1, NOTHING))
    assert effects[-1] == Finish(1, "nothing-heard")
    assert not any(isinstance(e, Commit) for e in effects)


def test_an_empty_reply_is_not_spoken() -> None:
    _, effects = run(
        Listen(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT), EndpointFound("silence"),
        Committed(-1, Reply("", True, MEANT.understanding)),
    )  # fmt: skip
    assert effects[-1] == Finish(1, "silent")


def test_the_wake_word_interrupts_a_reply() -> None:
    speaking, _ = run(
        Listen(), LikelyEnd(), Recognised(-1, HEARD), Matched(-1, MEANT), EndpointFound("silence"), Committed(-1, DONE)
    )
    state, effects = run(Listen("okay_nabu"), state=speaking)
    assert [type(e) for e in effects] == [Cancel, Finish, Start]
    assert state.phase is Phase.LISTENING
    assert state.generation > speaking.generation


def test_stop_and_failure_end_in_idle_and_cancel_what_runs() -> None:
    for last in (Stop(), Failed(-1, "recognise")):
        state, effects = run(Listen(), LikelyEnd(), last)
        assert [type(e) for e in effects][-2:] == [Cancel, Finish]
        assert state.phase is Phase.IDLE
    assert run(Stop())[1] == []


SIGNALS = st.one_of(
    st.builds(Listen, st.sampled_from([None, "okay_nabu"])),
    st.just(Announce("dinner")),
    st.just(SpeechResumed()),
    st.just(LikelyEnd()),
    st.builds(EndpointFound, st.sampled_from(["silence", "no-speech", "too-long"])),
    st.builds(Recognised, st.integers(-1, 6), st.just(HEARD)),
    st.builds(Matched, st.integers(-1, 6), st.sampled_from([MEANT, NOTHING])),
    st.builds(Foreseen, st.integers(-1, 6), st.sampled_from(["", "Turned on the lights", "Done"])),
    st.builds(Committed, st.integers(-1, 6), st.just(DONE)),
    st.builds(Played, st.integers(-1, 6)),
    st.builds(Failed, st.integers(-1, 6), st.just("speak")),
    st.just(Stop()),
)


@given(st.lists(SIGNALS, max_size=40))
def test_whatever_happens_nothing_is_done_without_an_endpoint_nor_twice(signals: list[Signal]) -> None:
    state, committed, ended = LoopState(), set(), False
    generation = 0
    for signal in signals:
        given_signal = _with_generation(signal, state.generation) if getattr(signal, "generation", 0) == -1 else signal
        if isinstance(given_signal, Listen):
            ended = False
        if isinstance(given_signal, EndpointFound) and state.phase is Phase.LISTENING:
            ended = True
        state, effects = step(state, given_signal)
        assert state.generation >= generation
        generation = state.generation
        for effect in effects:
            if isinstance(effect, Commit):
                assert ended
                assert effect.generation not in committed
                committed.add(effect.generation)
            if isinstance(effect, Play) and not isinstance(given_signal, Announce):
                assert effect.generation in committed


@given(st.lists(SIGNALS, max_size=40))
def test_every_utterance_that_starts_is_finished_once(signals: list[Signal]) -> None:
    state, started, finished = LoopState(), 0, 0
    for signal in [*signals, Stop()]:
        given_signal = _with_generation(signal, state.generation) if getattr(signal, "generation", 0) == -1 else signal
        state, effects = step(state, given_signal)
        started += sum(isinstance(e, Start) for e in effects)
        started += isinstance(given_signal, Announce) and bool(effects)
        finished += sum(isinstance(e, Finish) for e in effects)
    assert started == finished
    assert state.phase is Phase.IDLE


@given(st.lists(SIGNALS, max_size=30), SIGNALS, st.integers(1, 5))
def test_whatever_came_before_an_old_result_changes_nothing(signals: list[Signal], late: Signal, behind: int) -> None:
    state, _ = run(*signals)
    if hasattr(late, "generation"):
        old = _with_generation(late, state.generation - behind)
        assert step(state, old) == (state, ())


@given(st.lists(SIGNALS, max_size=40))
def test_an_utterance_is_committed_at_most_once_and_plays_only_what_was_committed(signals: list[Signal]) -> None:
    state, commits, answered = LoopState(), 0, False
    for signal in signals:
        given_signal = _with_generation(signal, state.generation) if getattr(signal, "generation", 0) == -1 else signal
        announced = isinstance(given_signal, Announce)
        answered = answered or isinstance(given_signal, Committed)
        state, effects = step(state, given_signal)
        for effect in effects:
            if isinstance(effect, Start):
                commits, answered = 0, False
            commits += isinstance(effect, Commit)
            if isinstance(effect, Play) and not announced:
                assert commits == 1
                assert answered
                assert effect.text == DONE.text
        assert commits <= 1
