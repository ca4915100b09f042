"""The loop: a pure state machine, (state, signal) to (state, effects). No clock, no I/O, no threads.

    idle ── wake, listen ──> listening ── endpoint ──> thinking ── reply ──> speaking ── played ──> idle
                             ^   speech goes on: the      (wake or listen starts over from any phase;
                             |   guess is dropped          stop ends everything)

While listening, recognition, matching and the reply's synthesis run on guesses ("speculation"): they have no
consequence, and each guess has a generation. When speech goes on the generation grows; late results carry the old one
and are dropped. Only `Commit` acts, only the endpoint leads to it, and only what was committed is played.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from appliance.intent.types import Reply, Understanding
from appliance.voice.asr.acceptance import Accepted
from appliance.voice.asr.protocol import Hypothesis

__all__ = [
    "Announce",
    "Cancel",
    "Commit",
    "Committed",
    "Effect",
    "EndpointFound",
    "Failed",
    "Finish",
    "Foreseen",
    "LikelyEnd",
    "Listen",
    "LoopState",
    "Match",
    "Matched",
    "Phase",
    "Play",
    "Played",
    "Rearm",
    "Recognise",
    "Recognised",
    "Signal",
    "SpeechResumed",
    "Start",
    "Stop",
    "Synthesise",
    "step",
]


class Phase(Enum):
    """Where a session is."""

    IDLE = "idle"
    LISTENING = "listening"
    THINKING = "thinking"
    SPEAKING = "speaking"


@dataclass(frozen=True, slots=True)
class LoopState:
    """All that the loop remembers."""

    phase: Phase = Phase.IDLE
    generation: int = 0
    """Grows whenever what is in flight stops being wanted; never shrinks."""
    recognising: bool = False
    """A recognition of this generation is in flight."""
    hypothesis: Hypothesis | None = None
    """What was said, as far as this generation knows."""
    accepted: Accepted | None = None
    """What it is taken for; None while not yet known."""
    prepared: str | None = None
    """The reply whose sound is being prepared; None where there is none."""
    committing: bool = False
    """The command is being carried out: from here on nothing is guessed any more, and nothing is done twice."""


# ---- signals: what happened


@dataclass(frozen=True, slots=True)
class Listen:
    """A wake word fired, a button was pressed, a follow-up is due."""

    wake: str | None = None


@dataclass(frozen=True, slots=True)
class Announce:
    """Something is to be said that nobody asked for just now: a timer, a message. Only when idle; else it changes
    nothing, and whoever announces tries again."""

    text: str


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech began, or went on after a pause."""


@dataclass(frozen=True, slots=True)
class LikelyEnd:
    """A silence that may be the end (given again and again while it lasts)."""


@dataclass(frozen=True, slots=True)
class EndpointFound:
    """The endpoint strategy decided."""

    reason: str


@dataclass(frozen=True, slots=True)
class Recognised:
    """A recognition is done."""

    generation: int
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Matched:
    """A hypothesis was matched against the home."""

    generation: int
    accepted: Accepted


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the reply will be if nothing more is said: worth having its sound ready."""

    generation: int
    text: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The command was carried out, or refused."""

    generation: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class Played:
    """The last sample of the reply was played."""

    generation: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A stage failed."""

    generation: int
    stage: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop whatever is going on, silently."""


Signal = (
    Listen
    | Announce
    | SpeechResumed
    | LikelyEnd
    | EndpointFound
    | Recognised
    | Matched
    | Foreseen
    | Committed
    | Played
    | Failed
    | Stop
)

# ---- effects: what is to be done


@dataclass(frozen=True, slots=True)
class Start:
    """Open an utterance: take the pre-roll, begin to hear."""

    generation: int
    wake: str | None


@dataclass(frozen=True, slots=True)
class Rearm:
    """What was heard so far held no word: forget it and go on listening as if nobody had spoken yet."""

    generation: int


@dataclass(frozen=True, slots=True)
class Recognise:
    """Recognise all that was heard so far. Speculative: no consequence."""

    generation: int


@dataclass(frozen=True, slots=True)
class Match:
    """Find out what was said means here, and what the reply would be. Speculative: no consequence."""

    generation: int
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Commit:
    """Carry it out. The only effect that changes the home; the session gives each utterance one key."""

    generation: int
    understanding: Understanding


@dataclass(frozen=True, slots=True)
class Synthesise:
    """Have the sound of a reply ready, in place of any other. Speculative: nothing is heard of it."""

    generation: int
    text: str


@dataclass(frozen=True, slots=True)
class Play:
    """Play a reply: what is ready of it at once, the rest as it is made."""

    generation: int
    text: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """What runs under this or an older generation is not wanted any more; a playback is stopped at once."""

    generation: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The utterance is over. `outcome`: answered | silent | nothing-heard | stopped | failed."""

    generation: int
    outcome: str


Effect = Start | Rearm | Recognise | Match | Synthesise | Commit | Play | Cancel | Finish

_Result = tuple[LoopState, tuple[Effect, ...]]
_NO_SPEECH: Final = "no-speech"
_RESULTS: Final = (Recognised, Matched, Foreseen, Committed, Played, Failed)


def step(state: LoopState, signal: Signal) -> _Result:  # noqa: PLR0912 - a case a transition
    """One transition. Signals that do not fit the phase, or carry an old generation, change nothing."""
    if isinstance(signal, _RESULTS) and signal.generation != state.generation:
        return state, ()
    result: _Result = (state, ())
    match state.phase, signal:
        case _, Listen() as listen:
            result = _listen(state, listen)
        case Phase.IDLE, Announce() as announce:
            result = _say(LoopState(Phase.THINKING, state.generation + 1), announce.text)
        case Phase.IDLE, _:
            pass
        case _, Stop():
            result = _over(state, "stopped", cancel=True)
        case _, Failed():
            result = _over(state, "failed", cancel=True)
        case Phase.LISTENING, SpeechResumed():
            result = _resumed(state)
        case Phase.LISTENING, LikelyEnd():
            result = _likely(state)
        case Phase.LISTENING, EndpointFound() as found:
            result = _endpoint(state, found)
        case ((Phase.LISTENING | Phase.THINKING), Recognised() as recognised) if not state.committing:
            result = _recognised(state, recognised)
        case ((Phase.LISTENING | Phase.THINKING), Matched() as matched) if not state.committing:
            result = _matched(state, matched)
        case ((Phase.LISTENING | Phase.THINKING), Foreseen() as foreseen) if not state.committing:
            result = _foreseen(state, foreseen)
        case Phase.THINKING, Committed() as committed if state.committing:
            result = _committed(state, committed)
        case Phase.SPEAKING, Played():
            result = _over(state, "answered")
    return result


def _listen(state: LoopState, signal: Listen) -> _Result:
    generation = state.generation + 1
    over: tuple[Effect, ...] = ()
    if state.phase is not Phase.IDLE:
        over = (Cancel(state.generation), Finish(state.generation, "stopped"))
    return LoopState(Phase.LISTENING, generation), (*over, Start(generation, signal.wake))


def _over(state: LoopState, outcome: str, *, cancel: bool = False) -> _Result:
    effects: tuple[Effect, ...] = (Finish(state.generation, outcome),)
    if cancel:
        effects = (Cancel(state.generation), *effects)
    return LoopState(Phase.IDLE, state.generation + 1), effects


def _resumed(state: LoopState) -> _Result:
    if not state.recognising and state.hypothesis is None and state.prepared is None:
        return state, ()
    # What was guessed was about a sentence that has now gone on.
    return LoopState(Phase.LISTENING, state.generation + 1), (Cancel(state.generation),)


def _likely(state: LoopState) -> _Result:
    if state.recognising or state.hypothesis is not None:
        return state, ()
    return replace(state, recognising=True), (Recognise(state.generation),)


def _endpoint(state: LoopState, signal: EndpointFound) -> _Result:
    if signal.reason == _NO_SPEECH:
        return _over(state, "nothing-heard")
    thinking = replace(state, phase=Phase.THINKING)
    if state.accepted is not None:
        return _decide(thinking)
    if state.recognising or state.hypothesis is not None:
        return thinking, ()
    return replace(thinking, recognising=True), (Recognise(state.generation),)


def _recognised(state: LoopState, signal: Recognised) -> _Result:
    known = replace(state, recognising=False, hypothesis=signal.hypothesis)
    return known, (Match(state.generation, signal.hypothesis),)


def _matched(state: LoopState, signal: Matched) -> _Result:
    known = replace(state, accepted=signal.accepted)
    if state.phase is Phase.THINKING:
        return _decide(known)
    if not signal.accepted.understanding.text:
        # No word in it: the wake word's own tail, a cough. The command is still to come.
        return LoopState(Phase.LISTENING, state.generation + 1), (Rearm(state.generation + 1),)
    return known, ()


def _decide(state: LoopState) -> _Result:
    """The endpoint is sure and the meaning is known."""
    assert state.accepted is not None
    understanding = state.accepted.understanding
    if not understanding.text:
        return _over(state, "nothing-heard")
    return replace(state, committing=True), (Commit(state.generation, understanding),)


def _foreseen(state: LoopState, signal: Foreseen) -> _Result:
    if not signal.text.strip() or signal.text == state.prepared:
        return state, ()
    return replace(state, prepared=signal.text), (Synthesise(state.generation, signal.text),)


def _committed(state: LoopState, signal: Committed) -> _Result:
    if not signal.reply.text.strip():
        return _over(state, "silent")
    return _say(state, signal.reply.text)


def _say(state: LoopState, text: str) -> _Result:
    speaking = replace(state, phase=Phase.SPEAKING, prepared=text)
    play = Play(state.generation, text)
    if text == state.prepared:
        return speaking, (play,)
    # Another text than was foreseen: what was prepared is dropped.
    return speaking, (Synthesise(state.generation, text), play)
