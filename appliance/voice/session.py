"""One conversation: feeds frames to wake and voice activity, steps the loop, carries its effects out.

A session is single-threaded: `push` and `deliver` are called by its runner, one at a time. Long work goes to the
runner's worker and comes back as a message. A fault ends the utterance, never the session or the appliance.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import Final

from appliance import events
from appliance.audio.frame import Frame, level_dbfs
from appliance.audio.frontend.cleaning import EarFrames
from appliance.audio.ring import PreRoll
from appliance.events import Listener
from appliance.intent.types import UtteranceId
from appliance.voice import loop
from appliance.voice.asr.protocol import Hypothesis
from appliance.voice.budget import SpeculationBudget
from appliance.voice.doze import Dozing
from appliance.voice.ending import Ending
from appliance.voice.endpoint import Verdict
from appliance.voice.guesses import Ahead
from appliance.voice.hearing import Heard, Hearing
from appliance.voice.interruptions import BargeIns, Interruptions
from appliance.voice.loop import LoopState, Phase
from appliance.voice.meter import WakeListener
from appliance.voice.parts import (
    ChunkMade,
    Fault,
    Message,
    PartialJudged,
    Player,
    Post,
    RecognitionMade,
    Runner,
    SessionParts,
    SessionSettings,
    SpeechMade,
    StopJudged,
    Synthesiser,
    TakeFailed,
    Thinker,
    fault_of,
)
from appliance.voice.recognitions import Recognitions
from appliance.voice.reply import ReplyVoice
from appliance.voice.thinking import Thinking
from appliance.voice.vad import SpeechState
from appliance.voice.wake import OwnVoice, WakeHit

__all__ = [
    "Message",
    "Player",
    "Post",
    "Runner",
    "Session",
    "SessionParts",
    "SessionSettings",
    "Synthesiser",
    "Thinker",
]


_LOG = logging.getLogger(__name__)

_RING_S: Final = 2.0
_GAP_FRAMES: Final = 2
WAKE_REPLAYED_S: Final = 2.0
"""Of the sound before that the wake word detector hears when it is woken: with 1 s it missed 3 of 50, with this none
more than one that never sleeps."""


class Session:
    """See the module."""

    def __init__(
        self,
        name: str,
        parts: SessionParts,
        runner: Runner,
        emit: Listener,
        settings: SessionSettings | None = None,
    ) -> None:
        self.name = name
        self._parts = parts
        self._runner = runner
        self._emit = emit
        self._settings = settings or SessionSettings()
        self._ears = Hearing(parts.vad)
        self._ring = PreRoll(_RING_S)
        self._state = LoopState()
        self._utterance = UtteranceId("")
        self._hearing = False
        self._earliest_s = 0.0
        self._speaking = False
        self._heard: Heard | None = None
        self._next_seq = 0
        self._announced = False
        self._follow_up_due = False
        self._ending = Ending(self._settings.speculation.sure_s, self._may_guess)
        self._budget = SpeculationBudget(self._settings.speculation)
        self._recognitions = Recognitions(parts.recogniser, parts.bias, runner.submit, self._settings)
        self._thinking = Thinking(parts.thinker, self._settings.area, runner.submit)
        self._reply = ReplyVoice(
            parts.synthesiser,
            parts.player,
            runner.submit,
            # As a message: the transition that asked for the reply is still being carried out.
            lambda generation: runner.post(loop.Played(generation)),
            lambda: self._emit(events.FirstAudio(runner.now(), self.name, self._utterance)),
        )
        self._ahead = Ahead()
        self._own_voice = OwnVoice()
        self._wake_listener = _dozing(parts.wake)
        listener = None if parts.stop_listener is None else Interruptions(parts.stop_listener, runner.submit)
        self._barge_ins = BargeIns(listener, parts.alarm, self._settings.barge_in)

    @property
    def phase(self) -> Phase:
        """Where the loop is."""
        return self._state.phase

    @property
    def at_rest(self) -> bool:
        """Whether nothing goes on that a few hundredths of a second matter to."""
        alarm = self._parts.alarm
        return self._state.phase is Phase.IDLE and (alarm is None or not alarm.ringing)

    def set_wake(self, wake: WakeListener) -> None:
        """Listen for other words from now on; nothing where this session wakes by none."""
        if self._parts.wake is not None:
            self._parts = replace(self._parts, wake=wake)
            self._wake_listener = _dozing(wake)

    def listen(self) -> None:
        """Start an utterance without a wake word."""
        self._step(loop.Listen())

    def announce(self, text: str) -> bool:
        """Say a text outside any utterance, if idle; False where the session is busy (try again later)."""
        if self._state.phase is not Phase.IDLE or not text.strip():
            return False
        self._utterance = self._new_utterance()
        self._emit(events.Announcing(self._runner.now(), self.name, self._utterance, text))
        self._announced = True
        if self._runner.meter is not None:
            self._runner.meter.announced = text
        self._step(loop.Announce(text))
        return True

    def stop(self) -> None:
        """End whatever is going on, silently."""
        self._step(loop.Stop())

    def push(self, frame: Frame) -> None:
        """Hear 10 ms. A hole in the numbers (a microphone that was away) ends what was heard before it."""
        if frame.seq != self._next_seq:
            self._forget_sound()
        self._next_seq = frame.seq + 1
        ears = self._parts.ears
        sound = EarFrames.plain(frame) if ears is None else ears.push(frame)
        self._ring.push(sound.speech)
        if self._hearing:
            self._parts.recogniser.push(sound.speech)
        self._heard = self._ears.push(sound.speech, sound.voice, resting=self.at_rest)
        if self._state.phase is Phase.LISTENING:
            self._listen_to(self._heard)
        if self._barge_ins.push(self._heard, self._state.phase, self._ring.since):
            self._step(loop.Listen())
        if self._parts.wake is not None and self._wake_listener is not None:
            self._wake(self._parts.wake, self._wake_listener, sound)

    def deliver(self, message: Message) -> None:
        """Take a result of earlier work."""
        match message:
            case RecognitionMade():
                self._recognition_made(message)
            case PartialJudged():
                self._partial_judged(message)
            case ChunkMade():
                self._budget_for(message)
            case SpeechMade():
                self._reply.speech_made(message)
            case TakeFailed():
                generation = self._reply.failed(message)
                if generation is not None:
                    self._fail(fault_of(generation, "speak", message.error))
            case Fault():
                self._fail(message)
            case StopJudged():
                self._stop_judged(message)
            case _:
                self._report(message)
                self._step(message)
                if isinstance(message, loop.Matched) and self._heard is not None:
                    # Silence may have lasted long enough by now: the next frame would be 10 ms late.
                    self._decide(self._heard)

    # ---- hearing

    def _forget_sound(self) -> None:
        """The detectors' state is about sound that was not followed by this: left alone, they wake falsely here."""
        self._ring.clear()
        self._ears.forget()
        if self._wake_listener is not None:
            self._wake_listener.reset()

    def _wake(self, wake: WakeListener, listener: Dozing[WakeHit], sound: EarFrames) -> None:
        self._own_voice.push(sound.played, wake)
        for hit in listener.push(sound.wake, dozing=self._ears.dozing):
            if self._own_voice.said(hit):
                _LOG.info("session %s: %s was Wren's own voice", self.name, hit.name)
                continue
            self._emit(events.WakeHeard(hit.time_s, self.name, hit.name, hit.score))
            self._step(loop.Listen(hit.name))

    def _stop_judged(self, message: StopJudged) -> None:
        self._budget.spend(message.cost_s)
        if message.error is not None:
            _LOG.warning("session %s: what was said into a reply is not recognised: %s", self.name, message.error)
        if self._barge_ins.judged(message):
            self._step(loop.Stop())

    def _listen_to(self, heard: Heard) -> None:
        speech = heard.speech
        if speech.began:
            self._speech_began(speech)
        if self._speaking and not speech.speaking and speech.ended_s is not None:
            self._emit(events.SpeechEnded(speech.ended_s, self.name, self._utterance))
        self._speaking = speech.speaking
        guessed_s = self._recognitions.heard_until_s
        if guessed_s is not None and self._ears.goes_on(guessed_s, near=self._ending.near_only):
            # Voice activity takes long to say that speech began again, and says nothing where it had not let go.
            self._ending.went_on(heard.now_s)
            self._resumed()
        self._decide(heard)
        if speech.speaking and self._state.phase is Phase.LISTENING and (share := self._parts.share()):
            self._recognitions.partial(self._state.generation, self._runner.now(), heard.now_s, share)

    def _speech_began(self, speech: SpeechState) -> None:
        assert speech.started_s is not None
        if not self._hearing:
            self._emit(events.SpeechStarted(speech.started_s, self.name, self._utterance))
            self._hearing = True
            since_s = self._barge_ins.said_from_s
            if since_s is None:
                since_s = max(speech.started_s - self._settings.pre_roll_s, self._earliest_s)
            for frame in self._ring.since(since_s):
                self._parts.recogniser.push(frame)
            self._recognitions.speech_began(speech.started_s)
        self._resumed()

    def _resumed(self) -> None:
        guess = self._state.hypothesis
        if guess is not None and guess.text:
            # It was no end, but it is what was heard so far.
            self._emit(events.PartialText(self._runner.now(), self.name, self._utterance, guess.text))
        self._step(loop.SpeechResumed())

    def _decide(self, heard: Heard) -> None:
        if self._state.phase is not Phase.LISTENING:
            return
        state = self._state
        evidence = self._ending.evidence(heard, state.hypothesis, state.accepted, self._runner.now())
        decision = self._parts.endpoint.decide(evidence)
        if decision.verdict is Verdict.LIKELY:
            if self._ending.guess_due(heard, evidence.silence_s):
                self._step(loop.LikelyEnd())
        elif decision.verdict is Verdict.END:
            self._emit(events.EndpointReached(self._runner.now(), self.name, self._utterance, decision.reason))
            if self._speaking:
                # Decided before voice activity let go: the sound's own end is what counts.
                ended_s = self._ears.loud_s or heard.now_s
                self._emit(events.SpeechEnded(ended_s, self.name, self._utterance))
            self._step(loop.EndpointFound(decision.reason))

    def _may_guess(self) -> bool:
        return self._budget.allows(self._runner.now(), self._parts.share())

    def _recognition_made(self, message: RecognitionMade) -> None:
        self._budget.spend(message.cost_s)
        done = self._recognitions.made(message)
        if done is None or done.generation != self._state.generation:
            return
        if done.guess and done.error is not None:
            self._fail(fault_of(done.generation, "recognise", done.error))
        elif done.guess and done.hypothesis is not None and self._too_soon_for(done.hypothesis):
            self._step(loop.SpeechResumed())
        elif done.guess and done.hypothesis is not None:
            self.deliver(loop.Recognised(done.generation, done.hypothesis))
        # A partial that failed is no fault: what is wrong shows when the guess fails too.
        elif done.hypothesis is not None and done.hypothesis.text and self._state.phase is Phase.LISTENING:
            text = done.hypothesis.text
            self._emit(events.PartialText(self._runner.now(), self.name, self._utterance, text))
            self._thinking.judge_partial(done.generation, done.hypothesis)

    def _too_soon_for(self, hypothesis: Hypothesis) -> bool:
        """Whether nothing was read where it may yet be: then it is looked at again, once it is surely quiet."""
        if self._state.phase is not Phase.LISTENING or self._heard is None:
            return False
        return self._ending.too_soon_for(hypothesis, self._heard)

    def _partial_judged(self, message: PartialJudged) -> None:
        if message.generation == self._state.generation and self._state.phase is Phase.LISTENING:
            self._ending.judged(message.accepted, self._runner.now())

    def _budget_for(self, message: ChunkMade) -> None:
        if self._reply.chunk_made(message):
            self._budget.spend(message.cost_s)
            self._ahead.cost_s += message.cost_s

    # ---- effects

    def _step(self, signal: loop.Signal) -> None:
        self._state, effects = loop.step(self._state, signal)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: loop.Effect) -> None:
        match effect:
            case loop.Start():
                self._start(effect)
            case loop.Rearm():
                self._rearm()
            case loop.Recognise():
                self._recognise(effect)
            case loop.Match():
                self._thinking.match(effect.generation, effect.hypothesis)
            case loop.Commit():
                self._commit(effect)
            case loop.Synthesise():
                self._synthesise(effect)
            case loop.Play():
                self._ahead.hit = self._reply.play(effect.generation, effect.text) and not self._ahead.late
            case loop.Cancel():
                self._cancel(effect.generation)
            case loop.Finish():
                self._finish(effect)

    def _start(self, effect: loop.Start) -> None:
        self._utterance = self._new_utterance()
        following_up, self._follow_up_due = self._follow_up_due, False
        started_s = self._runner.now()
        self._ending.begin(started_s, self._settings.follow_up_s if following_up else None)
        # Without a wake word, what was said just before the button was pressed belongs to the utterance.
        self._earliest_s = started_s - self._settings.pre_roll_s
        if following_up:
            # Before this moment the reply sounded.
            self._earliest_s = started_s
        elif effect.wake is not None:
            self._earliest_s = _quietest_s(self._ring.last(self._settings.wake_overlap_s), started_s)
        self._recognitions.begin()
        self._ahead = Ahead()
        self._rearm()
        self._barge_ins.begin(started_s)
        self._parts.endpoint.reset()
        self._emit(events.ListeningStarted(started_s, self.name, self._utterance, effect.wake))

    def _new_utterance(self) -> UtteranceId:
        return UtteranceId(f"{self.name}-{uuid.uuid4().hex[:12]}")

    def _rearm(self) -> None:
        self._hearing = False
        self._speaking = False
        self._barge_ins.rearm()
        self._ending.rearm()
        self._ears.reset()
        self._recognitions.cancel()
        self._parts.recogniser.reset()

    def _recognise(self, effect: loop.Recognise) -> None:
        heard_until_s = self._ending.started_s if self._heard is None else self._heard.now_s
        now_s, loud_s = self._runner.now(), self._ears.loud_s
        known = self._recognitions.guess(effect.generation, now_s, heard_until_s, loud_s)
        if known is not None:
            too_soon = self._too_soon_for(known)
            self._runner.post(loop.SpeechResumed() if too_soon else loop.Recognised(effect.generation, known))

    def _commit(self, effect: loop.Commit) -> None:
        if self._barge_ins.was_all(effect.understanding.text):
            # As a message: the transition that leads here is still being carried out.
            self._runner.post(loop.Stop())
            return
        self._ahead.committed = True
        now_s = self._runner.now()
        self._emit(events.UtteranceUnderstood(now_s, self.name, self._utterance, effect.understanding))
        self._thinking.commit(effect.generation, effect.understanding, self._utterance)

    def _synthesise(self, effect: loop.Synthesise) -> None:
        if self._state.phase is Phase.SPEAKING:
            self._ahead.late = True
            self._reply.prepare(effect.generation, effect.text)
        elif self._may_guess():
            self._ahead.replies += self._reply.prepare(effect.generation, effect.text)

    def _cancel(self, generation: int) -> None:
        self._thinking.cancel(generation)
        self._recognitions.cancel()
        if self._reply.drop():
            self._barge_ins.cut_off(self._runner.now())
            self._emit(events.PlaybackEnded(self._runner.now(), self.name, self._utterance, stopped=True))

    def _finish(self, effect: loop.Finish) -> None:
        if self._reply.close():
            self._emit(events.PlaybackEnded(self._runner.now(), self.name, self._utterance, stopped=False))
        self._hearing = False
        self._recognitions.cancel()
        self._thinking.forget()
        announced, self._announced = self._announced, False
        if not announced:
            self._tell_of_guesses()
        self._emit(events.UtteranceEnded(self._runner.now(), self.name, self._utterance, effect.outcome))
        if effect.outcome == "answered" and self._settings.follow_up and not announced:
            # As a message: the transition that finished this utterance is still being carried out.
            self._follow_up_due = True
            self._runner.post(loop.Listen())

    def _tell_of_guesses(self) -> None:
        spent, ahead = self._recognitions.spent, self._ahead
        useful_s = spent.last_cost_s if ahead.committed else 0.0
        useful_s += ahead.cost_s if ahead.hit else 0.0
        spent_s = spent.cost_s + ahead.cost_s
        told = events.SpeculationEnded(
            self._runner.now(), self.name, self._utterance, spent.started, ahead.replies, ahead.hit, spent_s,
            max(0.0, spent_s - useful_s),
        )  # fmt: skip
        self._emit(told)

    def _fail(self, fault: Fault) -> None:
        if fault.generation == self._state.generation:
            told = (fault.stage, fault.code, fault.message)
            self._emit(events.SessionFault(self._runner.now(), self.name, self._utterance, *told))
            self._step(loop.Failed(fault.generation, fault.stage))

    def _report(self, signal: loop.Signal) -> None:
        """Tell listeners of results that still count, before the loop goes on from them."""
        now_s = self._runner.now()
        if isinstance(signal, loop.Recognised) and signal.generation == self._state.generation:
            hypothesis = signal.hypothesis
            self._emit(events.TextRecognised(now_s, self.name, self._utterance, hypothesis.text, hypothesis.logp))
        elif isinstance(signal, loop.Committed) and signal.generation == self._state.generation:
            self._emit(events.ReplyReady(now_s, self.name, self._utterance, signal.reply.text, signal.reply.ok))


def _dozing(wake: WakeListener | None) -> Dozing[WakeHit] | None:
    return None if wake is None else Dozing(wake, WAKE_REPLAYED_S, afresh=False)


def _quietest_s(frames: list[Frame], otherwise_s: float) -> float:
    """Start of the quietest 20 ms: the gap between the wake word and what follows it."""
    if len(frames) < _GAP_FRAMES:
        return otherwise_s
    levels = [level_dbfs(frame.samples) for frame in frames]
    pairs = [max(levels[i : i + _GAP_FRAMES]) for i in range(len(levels) - _GAP_FRAMES + 1)]
    return frames[pairs.index(min(pairs))].time_s
