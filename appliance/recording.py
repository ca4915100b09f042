"""A recording heard as if it were live: the same session, on a simulated or on the real clock.

The end of the file is not an endpoint: ten seconds of noise at the recording's own floor follow it.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance import events
from appliance.audio.files import RawFormat, read_blocks
from appliance.audio.floor import FloorMeter, noise_blocks
from appliance.audio.frame import RATE_HZ, Frame, Framer, Samples
from appliance.errors import ApplianceError
from appliance.telemetry.trace import TraceRecorder, UtteranceTrace
from appliance.voice import loop
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner, SimulatedPlayer, SimulatedRunner
from appliance.voice.session import Session
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.app import Wren

__all__ = ["HeardRecording", "file_frames", "hear", "samples_frames"]

TAIL_S: Final = 10.0
IDLE_POLL_S: Final = 0.02
REAL_TIME_LIMIT_S: Final = 60.0
"""Longest wait, after the last frame, for a live session to come to rest."""
MAX_UTTERANCES: Final = 1000
"""Utterances remembered of one recording; later ones are still heard and acted on."""

EventSink = Callable[[events.Event], None]


@dataclass(slots=True)
class HeardRecording:
    """What became of a recording."""

    name: str
    wake: str | None = None
    utterances: list[UtteranceTrace] = field(default_factory=list)
    reply: list[Samples] = field(default_factory=list)
    """Sound of the last reply."""
    reply_rate_hz: int = 0
    error: str | None = None
    cpu_s: float = 0.0
    """CPU seconds of this process for the recording."""
    dropped_frames: int = 0
    """Real time only: frames lost because the machine was too slow."""

    @property
    def chosen(self) -> UtteranceTrace | None:
        """The utterance that stands for the recording: first understood, else first with words, else first."""
        for wanted in (_understood, lambda t: bool(t.text), lambda t: True):
            for trace in self.utterances:
                if wanted(trace):
                    return trace
        return None

    def record(self) -> dict[str, object]:
        """The object that `wren listen --json` prints; see docs/protocol.md."""
        chosen = self.chosen
        understanding = None if chosen is None else chosen.understanding
        blank: dict[str, int | None] = dict.fromkeys(
            ("end_of_speech", "endpoint", "final_text", "intent", "first_audio"), None
        )
        return {
            "file": self.name,
            "wake": self.wake,
            "transcript": " ".join(trace.text for trace in self.utterances if trace.text),
            "intent": None if understanding is None else understanding.intent,
            "slots": {} if understanding is None else dict(understanding.slots),
            "reply": None if chosen is None else chosen.reply,
            "error": self.error,
            "times_ms": blank if chosen is None else chosen.times_ms(),
            "cpu_s": round(self.cpu_s, 3),
            "utterances": [_utterance_record(trace) for trace in self.utterances],
        }


def hear(
    wren: Wren,
    name: str,
    frames: Iterator[Frame],
    *,
    wake: bool = True,
    realtime: bool = False,
    sink: EventSink | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> HeardRecording:
    """Let a new session hear frames (times from 0) and their tail of noise.

    Without `wake` the whole recording is addressed to Wren: it listens from the start, and again after each reply.
    `clock` measures compute where time is simulated; see `SimulatedRunner`.
    A fault of the file or of a stage ends up in `error`; what was heard before it is kept.
    """
    heard = HeardRecording(name)
    recorder = TraceRecorder(MAX_UTTERANCES)

    def emit(event: events.Event) -> None:
        recorder(event)
        if isinstance(event, events.WakeHeard) and heard.wake is None:
            heard.wake = event.name
        if isinstance(event, events.SessionFault) and heard.error is None:
            heard.error = event.message
        if sink is not None:
            sink(event)

    cpu_s = time.process_time()
    try:
        if realtime:
            _hear_live(wren, heard, _with_tail(name, frames), emit, recorder, wake)
        else:
            _hear_simulated(wren, heard, _with_tail(name, frames), emit, recorder, wake, clock)
    except (ApplianceError, ModelsError) as error:
        heard.error = heard.error or str(error)
    heard.cpu_s = time.process_time() - cpu_s
    # Without a wake word an hour of silence is six hundred times "nobody spoke": that is not worth telling.
    heard.utterances = [trace for trace in recorder.finished if trace.text or trace.fault or trace.speech_start_s]
    return heard


def file_frames(path: Path, raw: RawFormat | None = None) -> Iterator[Frame]:
    """Frames of a file; raises `AudioFormatError` as it is read."""
    framer = Framer()
    for block in read_blocks(path, raw):
        yield from framer.push(block)
    yield from framer.flush()


_Marked = Iterator[tuple[Frame, bool]]


def _with_tail(name: str, frames: Iterator[Frame]) -> _Marked:
    """(frame, whether it is tail)."""
    meter = FloorMeter()
    last = None
    for last in frames:
        meter.push(last.samples)
        yield last, False
    # Numbered on: a hole in the numbers would tell the session that sound was lost here.
    framer, number = Framer(0.0 if last is None else last.end_s), 0 if last is None else last.seq + 1
    for block in noise_blocks(meter.floor_dbfs(), TAIL_S, zlib.crc32(name.encode())):
        for frame in framer.push(block):
            yield Frame(frame.samples, frame.time_s, number + frame.seq), True


def _hear_simulated(
    wren: Wren,
    heard: HeardRecording,
    frames: _Marked,
    emit: EventSink,
    recorder: TraceRecorder,
    wake: bool,
    clock: Callable[[], float],
) -> None:
    runner = SimulatedRunner(clock)
    player = SimulatedPlayer(runner)
    session = wren.session("recording", runner, player, emit, wake=wake)
    runner.attach(session)
    try:
        for frame, tail in frames:
            if session.phase is Phase.IDLE:
                if tail and recorder.finished:
                    break
                if not wake and not tail:
                    runner.call(session.listen)
            runner.push(frame)
        runner.drain()
        # The tail is over and somebody is still being listened to (or nobody spoke): the recording ends here.
        runner.call(session.stop)
    finally:
        heard.reply, heard.reply_rate_hz = player.chunks, player.rate_hz


def _hear_live(
    wren: Wren, heard: HeardRecording, frames: _Marked, emit: EventSink, recorder: TraceRecorder, wake: bool
) -> None:
    players: list[_PacedPlayer] = []

    def make(runner: LiveRunner) -> Session:
        players.append(_PacedPlayer(runner))
        return wren.session("recording", runner, players[0], emit, wake=wake)

    runner = LiveRunner(make, epoch_s=time.monotonic())
    session = runner.session
    try:
        for frame, tail in frames:
            wait_s = frame.end_s - runner.now()
            if wait_s > 0:
                time.sleep(wait_s)  # a frame comes when it would have been heard, as from a microphone
            if session.phase is Phase.IDLE:
                if tail and recorder.finished:
                    break
                if not wake and not tail:
                    runner.call(session.listen)
            runner.push(frame)
        _rest(lambda: session.phase, REAL_TIME_LIMIT_S)
        runner.call(session.stop)
    finally:
        runner.close()
        heard.reply, heard.reply_rate_hz = players[0].chunks, players[0].rate_hz
        heard.dropped_frames = runner.dropped_frames


class _PacedPlayer:
    """A loudspeaker on the real clock that makes no sound: posts `Played` when the last sample would be out."""

    def __init__(self, runner: LiveRunner) -> None:
        self._runner = runner
        self._generation = 0
        self._end_s = 0.0
        self._timer: threading.Timer | None = None
        self.rate_hz = 0
        self.chunks: list[Samples] = []

    def begin(self, generation: int, rate_hz: int) -> None:
        self._generation, self.rate_hz, self.chunks = generation, rate_hz, []
        self._end_s = self._runner.now()

    def write(self, samples: Samples) -> None:
        self._end_s = max(self._end_s, self._runner.now()) + samples.size / self.rate_hz
        self.chunks.append(samples)

    def finish(self) -> None:
        message = loop.Played(self._generation)
        self._timer = threading.Timer(max(0.0, self._end_s - self._runner.now()), lambda: self._runner.post(message))
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _rest(phase: Callable[[], Phase], limit_s: float) -> None:
    """Wait until the session is idle, `limit_s` at most."""
    deadline_s = time.monotonic() + limit_s
    while phase() is not Phase.IDLE and time.monotonic() < deadline_s:
        time.sleep(IDLE_POLL_S)


def _understood(trace: UtteranceTrace) -> bool:
    return trace.understanding is not None and trace.understanding.intent is not None


def _utterance_record(trace: UtteranceTrace) -> dict[str, object]:
    understanding = trace.understanding
    return {
        "transcript": trace.text,
        "intent": None if understanding is None else understanding.intent,
        "slots": {} if understanding is None else dict(understanding.slots),
        "reply": trace.reply,
        "outcome": trace.outcome,
        "endpoint_reason": trace.endpoint_reason,
        "times_ms": trace.times_ms(),
    }


def samples_frames(samples: Samples) -> Iterator[Frame]:
    """Frames of sound in memory, shape [n] float32 at 16 kHz."""
    framer = Framer()
    for at in range(0, samples.size, RATE_HZ):
        yield from framer.push(samples[at : at + RATE_HZ])
    yield from framer.flush()
