"""What a session is made of and given: the protocols of its parts, its settings, the messages that come back to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from appliance.audio.frame import Frame, Samples
from appliance.audio.frontend.cleaning import EarFrames
from appliance.errors import ApplianceError
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.voice import loop
from appliance.voice.asr.acceptance import Accepted
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis, Recogniser
from appliance.voice.budget import SpeculationSettings
from appliance.voice.endpoint import EndpointStrategy
from appliance.voice.meter import FrameDetector, SessionMeter, WakeListener
from appliance.voice.vad import VadWindow
from models.errors import ModelsError

__all__ = [
    "Alarm",
    "BargeIn",
    "ChunkMade",
    "Ears",
    "Fault",
    "Message",
    "PartialJudged",
    "Player",
    "Post",
    "RecognitionMade",
    "Runner",
    "SessionParts",
    "SessionSettings",
    "SpeechMade",
    "StopJudged",
    "Synthesiser",
    "TakeFailed",
    "Thinker",
    "fault_of",
    "full_share",
    "no_bias",
]


@dataclass(frozen=True, slots=True)
class RecognitionMade:
    """A recognition is done."""

    number: int
    """Which: recognitions of a session are counted."""
    hypothesis: Hypothesis | None
    """None where it failed or was cancelled."""
    cost_s: float
    """What it took on the worker."""
    error: Exception | None = None
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class PartialJudged:
    """What a partial text means, as far as it got."""

    generation: int
    accepted: Accepted


@dataclass(frozen=True, slots=True)
class ChunkMade:
    """The next piece of a reply, [n] float32."""

    take: int
    """Which synthesis: those of a session are counted."""
    samples: Samples
    cost_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeechMade:
    """No more pieces of the reply."""

    take: int


@dataclass(frozen=True, slots=True)
class TakeFailed:
    """A synthesis failed."""

    take: int
    error: Exception


@dataclass(frozen=True, slots=True)
class StopJudged:
    """What was said into Wren's own sound."""

    text: str
    silence: bool
    """Whether it asks for silence."""
    cost_s: float
    error: Exception | None = None
    """Why it could not be recognised."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A stage failed."""

    generation: int
    stage: str
    code: str
    message: str


def fault_of(generation: int, stage: str, error: Exception) -> Fault:
    """What listeners are told of an error in a stage."""
    code = error.code if isinstance(error, ApplianceError | ModelsError) else "internal"
    return Fault(generation, stage, code, str(error) or type(error).__name__)


Message = loop.Signal | RecognitionMade | PartialJudged | ChunkMade | SpeechMade | TakeFailed | StopJudged | Fault
Post = Callable[[Message], None]
"""Hands a message to the session; may be called from any thread."""


class Synthesiser(Protocol):
    """Text to sound."""

    @property
    def rate_hz(self) -> int:
        """Rate of the sound."""
        ...

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        """Speak chunk by chunk."""
        ...


class Thinker(Protocol):
    """Text to meaning to deed."""

    def match(self, text: str, area: str | None = None) -> Understanding:
        """What a text means; no side effect."""
        ...

    def preview(self, understanding: Understanding) -> Reply:
        """What `commit` would answer; no side effect."""
        ...

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        """Carry it out, once per key. May take its time: it is called on the session's worker."""
        ...


class Player(Protocol):
    """Where the reply sounds. Called by the session's thread only."""

    def begin(self, generation: int, rate_hz: int) -> None:
        """A reply starts with the next `write`."""
        ...

    def write(self, samples: Samples) -> None:
        """The next piece of it, [n] float32."""
        ...

    def finish(self) -> None:
        """No more pieces; `Played` is posted when the last sample has been played."""
        ...

    def stop(self) -> None:
        """Silence at once; nothing is posted."""
        ...


class Ears(Protocol):
    """What a microphone's sound goes through before anybody listens to it."""

    def push(self, frame: Frame) -> EarFrames:
        """Hear 10 ms."""
        ...


class Alarm(Protocol):
    """What rings until somebody ends it."""

    @property
    def ringing(self) -> bool:
        """Whether it does."""
        ...

    def hush(self) -> None:
        """End it; no error where it does not ring."""
        ...


class Runner(Protocol):
    """What gives a session its time and its worker."""

    def now(self) -> float:
        """Seconds on the session's clock."""
        ...

    def submit(self, work: Callable[[Post], None]) -> None:
        """Run long work beside the session, in order."""
        ...

    def post(self, message: Message) -> None:
        """Put a message behind those that wait."""
        ...

    @property
    def meter(self) -> SessionMeter | None:
        """What the session's stages take is told there; None where nobody asks, as for a recording."""
        ...


def no_bias() -> Bias | None:
    """Recognition is free."""
    return None


def full_share() -> float:
    """Nothing stands against working ahead."""
    return 1.0


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The session's own streams, and what it shares."""

    wake: WakeListener | None
    """None: no wake word, `listen` starts an utterance."""
    vad: FrameDetector[VadWindow]
    recogniser: Recogniser
    endpoint: EndpointStrategy
    thinker: Thinker
    synthesiser: Synthesiser
    player: Player
    bias: Callable[[], Bias | None] = no_bias
    """What this home's people are likely to say, as it is now; None while there is none."""
    ears: Ears | None = None
    """Cleans what the microphone hears; None: it comes clean (a browser's, a recording)."""
    stop_listener: Recogniser | None = None
    """Recognises what is said while Wren sounds; None: only a wake word interrupts."""
    alarm: Alarm | None = None
    """What rings where this session speaks."""
    share: Callable[[], float] = full_share
    """Of the usual work ahead of the end that may be done just now, 0..1: a hot or strained machine does less."""


BargeIn = Literal["wake", "stop", "speech"]
"""What interrupts Wren: a wake word, "stop" too, or any speech."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session listens."""

    area: str | None = None
    """Area of this microphone."""
    pre_roll_s: float = 0.4
    """Sound before the first sure speech that the recogniser hears too: soft consonants start early."""
    wake_overlap_s: float = 0.35
    """The wake word may fire late, when the command has begun: look back this far for the gap between them."""
    follow_up: bool = False
    """After an answer, listen once more without a wake word."""
    follow_up_s: float = 5.0
    """How long to wait for a follow-up to begin."""
    barge_in: BargeIn = "stop"
    """What interrupts Wren while it speaks."""
    partial_every_s: float = 0.6
    """New speech before the text so far is worth recognising again."""
    partial_share: float = 0.3
    """Partials take at most this share of one core."""
    partial_until_s: float = 12.0
    """Longer utterances get no more partials: recognising them takes longer than people wait for one."""
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
