"""A program for test_strain_squeezed.py: Wren in a process of its own, which is stopped and let run on from outside.

Real models, real threads, a microphone that plays a recording at the clock's pace, a loudspeaker that is a clock. Lines
on standard output say what happens; lines on standard input: `stall`, `smooth`, `end`.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from appliance import events
from appliance.app import Wren, WrenSettings
from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.audio.resample import MonoResampler
from appliance.events import Event
from appliance.service import LOCAL, Service
from appliance.shared_assistant import SharedAssistant
from appliance.telemetry.strain import StrainSettings
from appliance.voice import loop
from appliance.voice.asr.moonshine import MoonshineRecogniser
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner
from appliance.voice.tts.piper import PiperSynthesiser
from appliance.voice.vad import VoiceActivity
from appliance.voice.wake import WakeDetector

COMMAND = "turn on the kitchen lights"
TIMES = StrainSettings(settle_s=0.5, calm_s=3.0, longest_calm_s=6.0, relapse_s=6.0, stale_s=6.0)
"""Shorter than those that serve, so that the whole walk takes a minute."""
STALL_S = (0.05, 0.5)
CHANCES = {"wake": 0.002, "vad": 0.002, "recognition": 0.3, "intent": 0.2, "synthesis": 0.2, "playback": 0.2}
"""That a call stalls; the first one of each stage always does."""

_random = random.Random(7)
_stalling = threading.Event()
_stalls = dict.fromkeys(CHANCES, 0)


def tell(kind: str, **details: object) -> None:
    print(json.dumps({"kind": kind, "time_s": round(time.monotonic(), 3), **details}), flush=True)


def stall(stage: str) -> None:
    if _stalling.is_set() and (not _stalls[stage] or _random.random() < CHANCES[stage]):
        _stalls[stage] += 1
        time.sleep(_random.uniform(*STALL_S))


def stalls_in(owner: type, method: str, stage: str) -> None:
    """Have calls of a method stall now and then; of a generator, each of its pieces."""
    inner: Callable[..., Any] = getattr(owner, method)

    def stalling(*arguments: Any, **named: Any) -> Any:
        stall(stage)
        return inner(*arguments, **named)

    def stalling_pieces(*arguments: Any, **named: Any) -> Iterator[Any]:
        for piece in inner(*arguments, **named):
            stall(stage)
            yield piece

    setattr(owner, method, stalling_pieces if stage == "synthesis" else stalling)


class FakeSpeaker:
    """Plays by the clock; says when there is a gap in a reply."""

    def __init__(self, runner: LiveRunner) -> None:
        self._runner, self._generation, self._rate_hz, self._end_s = runner, 0, 0, 0.0
        self._begun_s = 0.0

    def begin(self, generation: int, rate_hz: int) -> None:
        self._generation, self._rate_hz, self._end_s = generation, rate_hz, 0.0

    def write(self, samples: Samples) -> None:
        stall("playback")
        now_s = time.monotonic()
        if self._end_s and now_s > self._end_s:
            tell("gap", late_s=round(now_s - self._end_s, 3), begun_s=self._begun_s)
        if not self._end_s:
            self._begun_s = round(now_s, 3)
        self._end_s = max(now_s, self._end_s) + samples.size / self._rate_hz

    def finish(self) -> None:
        generation = self._generation
        wait_s = max(0.0, self._end_s - time.monotonic())
        threading.Timer(wait_s, lambda: self._runner.post(loop.Played(generation))).start()

    def stop(self) -> None:
        self._end_s = 0.0


class Microphone:
    """10 ms at a time, at the clock's pace: what is to be heard next, else faint noise."""

    def __init__(self, runner: LiveRunner) -> None:
        self._runner = runner
        self._next: list[Samples] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def hear(self, sound: Samples) -> None:
        with self._lock:
            self._next = [sound[at : at + FRAME_SAMPLES] for at in range(0, sound.size - FRAME_SAMPLES, FRAME_SAMPLES)]

    def _run(self) -> None:
        noise = np.random.default_rng(3)
        start_s = time.monotonic()
        for number in itertools.count():
            frame_s = start_s + number * FRAME_SAMPLES / RATE_HZ
            wait_s = frame_s + FRAME_SAMPLES / RATE_HZ - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            with self._lock:
                samples = self._next.pop(0) if self._next else None
            if samples is None:
                samples = (1e-4 * noise.standard_normal(FRAME_SAMPLES)).astype(np.float32)
            self._runner.push(Frame(samples, frame_s, number))


def told(event: Event) -> None:
    match event:
        case events.StrainChanged():
            tell("strain", steps=event.steps, because=event.because)
        case events.BreakerChanged():
            tell("breaker", stage=event.stage, state=event.state)
        case events.SessionFault():
            tell("fault", stage=event.stage, message=event.message)
        case events.UtteranceEnded():
            tell("ended", outcome=event.outcome)
        case events.FirstAudio():
            tell("first-audio")


def converse(service: Service, runner: LiveRunner, microphone: Microphone, command: Samples) -> None:
    """A command and an announcement of its own, in turn, for ever."""
    for number in itertools.count(1):
        _idle(runner)
        if number % 2:
            runner.call(runner.session.listen)
            time.sleep(0.1)
            microphone.hear(command)
            time.sleep(2.5)
        else:
            service.announce(
                f"This is message number {number}. Dinner is on the table, and all of you should come now."
            )
            time.sleep(0.3)


def _idle(runner: LiveRunner) -> None:
    while runner.session.phase is not Phase.IDLE:
        time.sleep(0.05)


def main() -> None:
    wren = Wren.open(WrenSettings())
    wren.wait_for_bias()
    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz)
    command = np.concatenate((resampler.push(synthesiser.whole(COMMAND)), resampler.flush()))
    # From here on; what was said before is no part of it.
    for owner, method, stage in (
        (WakeDetector, "push", "wake"),
        (VoiceActivity, "push", "vad"),
        (MoonshineRecogniser, "hypothesise", "recognition"),
        (SharedAssistant, "match", "intent"),
        (PiperSynthesiser, "stream", "synthesis"),
    ):
        stalls_in(owner, method, stage)
    wren.strain = wren.make_strain(TIMES)
    service = Service(wren)
    service.hub.subscribe(told)
    runner = service.open_session(LOCAL, FakeSpeaker, wake=True)
    microphone = Microphone(runner)
    threading.Thread(target=converse, args=(service, runner, microphone, command), daemon=True).start()
    tell("ready", steps=[step.name for step in wren.strain.steps])
    for line in sys.stdin:
        match line.strip():
            case "stall":
                _stalling.set()
            case "smooth":
                _stalling.clear()
            case "end":
                break
    state = wren.strain.state()
    loads = {name: (round(load.rtf, 3), round(load.age_s, 3)) for name, load in state.loads.items()}
    light = wren.light is not None and wren.light.open
    tell(
        "over",
        light=light,
        stalls=_stalls,
        down=state.stepped_down,
        up=state.stepped_up,
        loads=loads,
        lost=runner.dropped_frames,
    )


if __name__ == "__main__":
    main()
