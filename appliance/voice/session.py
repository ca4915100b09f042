"""One conversation: feeds frames to wake and voice activity, steps the loop, carries its effects out.

A session is single-threaded: `push` and `deliver` are called by its runner, one at a time. Long work goes to the
runner's worker and comes back as a message. A fault ends the utterance, never the session or the appliance.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from appliance import events
from appliance.audio.frame import RATE_HZ, Frame, level_dbfs
from appliance.audio.ring import PreRoll
from appliance.errors import ApplianceError
from appliance.events import Listener
from appliance.intent.types import UtteranceId
from appliance.voice import loop
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.endpoint import Evidence, Verdict
from appliance.voice.loop import LoopState, Phase
from appliance.voice.parts import (
    ChunkMade,
    Fault,
    Message,
    PartialMade,
    Player,
    Post,
    Runner,
    SessionParts,
    SessionSettings,
    SpeechMade,
    Synthesiser,
    Thinker,
)
from appliance.voice.vad import SpeechGate, SpeechState, VadWindow
from models.errors import ModelsError

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


_RING_S: Final = 2.0
_GAP_FRAMES: Final = 2


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
        self._gate = SpeechGate()
        self._ring = PreRoll(_RING_S)
        self._state = LoopState()
        self._cancels: dict[int, list[Cancel]] = {}
        self._utterance = UtteranceId("")
        self._hearing = False
        self._started_s = 0.0
        self._earliest_s = 0.0
        self._speaking = False
        self._partial_cancel: Cancel | None = None
        self._next_partial_s = 0.0
        self._next_seq = 0
        self._playing = False
        self._announced = False
        self._follow_up_due = self._following_up = False

    @property
    def phase(self) -> Phase:
        """Where the loop is."""
        return self._state.phase

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
        self._ring.push(frame)
        if self._hearing:
            self._parts.recogniser.push(frame)
        windows = self._parts.vad.push(frame)
        for window in windows:
            self._judge(window)
        if self._parts.wake is not None:
            for hit in self._parts.wake.push(frame):
                self._emit(events.WakeHeard(hit.time_s, self.name, hit.name, hit.score))
                self._step(loop.Listen(hit.name))

    def deliver(self, message: Message) -> None:
        """Take a result of earlier work."""
        if isinstance(message, PartialMade):
            self._partial_made(message)
        elif isinstance(message, ChunkMade):
            self._play(message)
        elif isinstance(message, SpeechMade):
            if message.generation == self._state.generation:
                if self._playing:
                    self._parts.player.finish()
                else:
                    self._step(loop.Played(message.generation))
        elif isinstance(message, Fault):
            if message.generation == self._state.generation:
                fault = (message.stage, message.code, message.message)
                self._emit(events.SessionFault(self._runner.now(), self.name, self._utterance, *fault))
                self._step(loop.Failed(message.generation, message.stage))
        else:
            self._report(message)
            self._step(message)

    # ---- hearing

    def _forget_sound(self) -> None:
        """The detectors' state is about sound that was not followed by this: left alone, they wake falsely here."""
        self._ring.clear()
        self._parts.vad.reset()
        if self._parts.wake is not None:
            self._parts.wake.reset()

    def _judge(self, window: VadWindow) -> None:
        speech = self._gate.push(window)
        if self._state.phase is not Phase.LISTENING:
            return
        if speech.began:
            self._speech_began(speech)
        if self._speaking and not speech.speaking and speech.ended_s is not None:
            self._emit(events.SpeechEnded(speech.ended_s, self.name, self._utterance))
        self._speaking = speech.speaking
        self._decide(window, speech)
        if speech.speaking and self._state.phase is Phase.LISTENING:
            self._want_partial()

    def _speech_began(self, speech: SpeechState) -> None:
        assert speech.started_s is not None
        if not self._hearing:
            self._emit(events.SpeechStarted(speech.started_s, self.name, self._utterance))
            self._hearing = True
            since_s = max(speech.started_s - self._settings.pre_roll_s, self._earliest_s)
            for frame in self._ring.since(since_s):
                self._parts.recogniser.push(frame)
            self._next_partial_s = speech.started_s + self._settings.partial_every_s
        self._step(loop.SpeechResumed())

    def _decide(self, window: VadWindow, speech: SpeechState) -> None:
        understanding = self._state.understanding
        evidence = Evidence(
            probability=window.probability,
            listening_s=window.end_s - self._started_s,
            speech_s=speech.speech_s,
            silence_s=speech.silence_s,
            understood=None if understanding is None else understanding.intent is not None,
            no_speech_s=self._settings.follow_up_s if self._following_up else None,
        )
        decision = self._parts.endpoint.decide(evidence)
        if decision.verdict is Verdict.LIKELY:
            self._step(loop.LikelyEnd())
        elif decision.verdict is Verdict.END:
            self._emit(events.EndpointReached(self._runner.now(), self.name, self._utterance, decision.reason))
            if decision.reason == "too-long":
                self._emit(events.SpeechEnded(speech.ended_s or window.end_s, self.name, self._utterance))
            self._step(loop.EndpointFound(decision.reason))

    def _want_partial(self) -> None:
        now_s = self._runner.now()
        if self._state.recognising or self._partial_cancel is not None or now_s < self._next_partial_s:
            return
        generation, recogniser = self._state.generation, self._parts.recogniser
        if recogniser.samples > self._settings.partial_until_s * RATE_HZ:
            return
        until, cancel = recogniser.samples, Cancel()
        self._partial_cancel = cancel

        def work(post: Post) -> None:
            started_s = self._runner.now()
            text = ""
            try:
                text = recogniser.hypothesise(until, None, cancel).text
            except (Cancelled, ApplianceError, ModelsError):
                pass  # a partial is a courtesy: the recognition that counts will report the same fault
            finally:
                post(PartialMade(generation, text, started_s, self._runner.now() - started_s))

        self._runner.submit(work)

    def _partial_made(self, made: PartialMade) -> None:
        settings = self._settings
        self._partial_cancel = None
        self._next_partial_s = made.started_s + max(settings.partial_every_s, made.cost_s / settings.partial_share)
        if made.generation == self._state.generation and self._state.phase is Phase.LISTENING and made.text:
            self._emit(events.PartialText(self._runner.now(), self.name, self._utterance, made.text))

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
                self._match(effect)
            case loop.Commit():
                self._commit(effect)
            case loop.Speak():
                self._speak(effect)
            case loop.Cancel():
                self._cancel(effect.generation)
            case loop.Finish():
                self._finish(effect)

    def _start(self, effect: loop.Start) -> None:
        self._utterance = self._new_utterance()
        self._following_up, self._follow_up_due = self._follow_up_due, False
        self._started_s = self._runner.now()
        # Without a wake word, what was said just before the button was pressed belongs to the utterance.
        self._earliest_s = self._started_s - self._settings.pre_roll_s
        if effect.wake is not None:
            self._earliest_s = _quietest_s(self._ring.last(self._settings.wake_overlap_s), self._started_s)
        self._rearm()
        self._parts.endpoint.reset()
        self._emit(events.ListeningStarted(self._started_s, self.name, self._utterance, effect.wake))

    def _new_utterance(self) -> UtteranceId:
        return UtteranceId(f"{self.name}-{uuid.uuid4().hex[:12]}")

    def _rearm(self) -> None:
        self._hearing = False
        self._speaking = False
        self._gate.reset()
        self._parts.recogniser.reset()

    def _recognise(self, effect: loop.Recognise) -> None:
        if self._partial_cancel is not None:
            self._partial_cancel.cancel()
        recogniser, generation = self._parts.recogniser, effect.generation
        until = recogniser.samples

        def work(cancel: Cancel) -> Message:
            return loop.Recognised(generation, recogniser.hypothesise(until, None, cancel))

        self._submit("recognise", generation, work)

    def _match(self, effect: loop.Match) -> None:
        thinker, area = self._parts.thinker, self._settings.area

        def work(cancel: Cancel) -> Message:
            return loop.Matched(effect.generation, thinker.match(effect.text, area))

        self._submit("match", effect.generation, work)

    def _commit(self, effect: loop.Commit) -> None:
        thinker, key = self._parts.thinker, self._utterance

        def work(cancel: Cancel) -> Message:
            return loop.Committed(effect.generation, thinker.commit(effect.understanding, key))

        now_s = self._runner.now()
        self._emit(events.UtteranceUnderstood(now_s, self.name, self._utterance, effect.understanding))
        self._submit("commit", effect.generation, work)

    def _speak(self, effect: loop.Speak) -> None:
        synthesiser, generation = self._parts.synthesiser, effect.generation
        cancel = self._new_cancel(generation)

        def work(post: Post) -> None:
            with _faults(post, generation, "speak"):
                for chunk in synthesiser.stream(effect.text, cancel):
                    post(ChunkMade(generation, chunk))
                post(SpeechMade(generation))

        self._runner.submit(work)

    def _play(self, message: ChunkMade) -> None:
        if message.generation != self._state.generation or self._state.phase is not Phase.SPEAKING:
            return
        if not self._playing:
            self._playing = True
            self._parts.player.begin(message.generation, self._parts.synthesiser.rate_hz)
            self._parts.player.write(message.samples)
            self._emit(events.FirstAudio(self._runner.now(), self.name, self._utterance))
        else:
            self._parts.player.write(message.samples)

    def _cancel(self, generation: int) -> None:
        for old in [g for g in self._cancels if g <= generation]:
            for cancel in self._cancels.pop(old):
                cancel.cancel()
        if self._partial_cancel is not None:
            self._partial_cancel.cancel()
        if self._playing:
            self._playing = False
            self._parts.player.stop()
            self._emit(events.PlaybackEnded(self._runner.now(), self.name, self._utterance, stopped=True))

    def _finish(self, effect: loop.Finish) -> None:
        if self._playing:
            self._playing = False
            self._emit(events.PlaybackEnded(self._runner.now(), self.name, self._utterance, stopped=False))
        self._hearing = False
        self._cancels.clear()
        announced, self._announced = self._announced, False
        self._emit(events.UtteranceEnded(self._runner.now(), self.name, self._utterance, effect.outcome))
        if effect.outcome == "answered" and self._settings.follow_up and not announced:
            # As a message: the transition that finished this utterance is still being carried out.
            self._follow_up_due = True
            self._runner.post(loop.Listen())

    def _report(self, signal: loop.Signal) -> None:
        """Tell listeners of results that still count, before the loop goes on from them."""
        now_s = self._runner.now()
        if isinstance(signal, loop.Recognised) and signal.generation == self._state.generation:
            hypothesis = signal.hypothesis
            self._emit(events.TextRecognised(now_s, self.name, self._utterance, hypothesis.text, hypothesis.logp))
        elif isinstance(signal, loop.Committed) and signal.generation == self._state.generation:
            self._emit(events.ReplyReady(now_s, self.name, self._utterance, signal.reply.text, signal.reply.ok))

    # ---- work beside the session

    def _new_cancel(self, generation: int) -> Cancel:
        cancel = Cancel()
        self._cancels.setdefault(generation, []).append(cancel)
        return cancel

    def _submit(self, stage: str, generation: int, work: Callable[[Cancel], Message]) -> None:
        cancel = self._new_cancel(generation)

        def guarded(post: Post) -> None:
            with _faults(post, generation, stage):
                cancel.check()
                post(work(cancel))

        self._runner.submit(guarded)


class _faults:
    """Turns whatever goes wrong in a stage into a message; what was cancelled is dropped without a trace."""

    def __init__(self, post: Post, generation: int, stage: str) -> None:
        self._post, self._generation, self._stage = post, generation, stage

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if error is None or isinstance(error, Cancelled):
            return True
        if not isinstance(error, Exception):
            return False
        code = error.code if isinstance(error, ApplianceError | ModelsError) else "internal"
        self._post(Fault(self._generation, self._stage, code, str(error) or type(error).__name__))
        return True


def _quietest_s(frames: list[Frame], otherwise_s: float) -> float:
    """Start of the quietest 20 ms: the gap between the wake word and what follows it."""
    if len(frames) < _GAP_FRAMES:
        return otherwise_s
    levels = [level_dbfs(frame.samples) for frame in frames]
    pairs = [max(levels[i : i + _GAP_FRAMES]) for i in range(len(levels) - _GAP_FRAMES + 1)]
    return frames[pairs.index(min(pairs))].time_s
