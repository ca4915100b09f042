"""What happens, as frozen records: every face (page, MQTT, trace, log) listens to these and to nothing else.

Times are seconds on the session's clock: the monotonic clock for live sound, the recording's own for a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from appliance.intent.types import Understanding

if TYPE_CHECKING:
    from hw.thermal import Reading

__all__ = [
    "MACHINE",
    "Announcing",
    "BreakerChanged",
    "EndpointReached",
    "EngineBuilding",
    "EngineChanged",
    "Event",
    "FirstAudio",
    "HeatChanged",
    "Listener",
    "ListeningStarted",
    "PartialText",
    "PlaybackEnded",
    "ReplyReady",
    "SensorsRead",
    "SessionFault",
    "SpeculationEnded",
    "SpeechEnded",
    "SpeechStarted",
    "StrainChanged",
    "TextRecognised",
    "UtteranceEnded",
    "UtteranceUnderstood",
    "WakeHeard",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Base: when, and in which session."""

    time_s: float
    session: str


@dataclass(frozen=True, slots=True)
class WakeHeard(Event):
    """A wake word fired."""

    name: str
    score: float
    """Mean probability over the detector's window, 0..1."""


@dataclass(frozen=True, slots=True)
class ListeningStarted(Event):
    """An utterance is being listened to."""

    utterance: str
    wake: str | None
    """Wake word that opened it; None for a button, a follow-up or a recording."""


@dataclass(frozen=True, slots=True)
class Announcing(Event):
    """Something is being said that nobody asked for just now."""

    utterance: str
    text: str


@dataclass(frozen=True, slots=True)
class SpeechStarted(Event):
    """The voice-activity detector is sure that somebody speaks; `time_s` is the first speech sample."""

    utterance: str


@dataclass(frozen=True, slots=True)
class SpeechEnded(Event):
    """Last speech sample so far (it may go on again before the endpoint); `time_s` is that sample."""

    utterance: str


@dataclass(frozen=True, slots=True)
class PartialText(Event):
    """What has been heard so far, while speech goes on."""

    utterance: str
    text: str


@dataclass(frozen=True, slots=True)
class EndpointReached(Event):
    """We decided that the speaker is done."""

    utterance: str
    reason: str


@dataclass(frozen=True, slots=True)
class TextRecognised(Event):
    """The final text. `time_s` is when it was known, which may be before the endpoint."""

    utterance: str
    text: str
    logp: float
    """Log-probability of the text, summed over tokens (natural logarithm)."""


@dataclass(frozen=True, slots=True)
class UtteranceUnderstood(Event):
    """The text was matched against the home; `understanding.intent` is None where it means nothing here."""

    utterance: str
    understanding: Understanding


@dataclass(frozen=True, slots=True)
class ReplyReady(Event):
    """The command has been carried out (or refused) and this is what will be said."""

    utterance: str
    text: str
    ok: bool


@dataclass(frozen=True, slots=True)
class FirstAudio(Event):
    """The first reply sample was handed to the device."""

    utterance: str


@dataclass(frozen=True, slots=True)
class PlaybackEnded(Event):
    """The last reply sample was played, or playback was stopped."""

    utterance: str
    stopped: bool


@dataclass(frozen=True, slots=True)
class SpeculationEnded(Event):
    """What was done ahead in an utterance, told when it ends: how much of it counted, and what the rest cost."""

    utterance: str
    recognitions: int
    """Recognitions started, partials among them; at most one is what was acted on."""
    replies: int
    """Replies whose sound was begun before it was decided to say them."""
    hit: bool
    """The reply that was said was one of them."""
    spent_s: float
    """Compute of all of this, seconds on one core."""
    wasted_s: float
    """Of that, for what did not count."""


@dataclass(frozen=True, slots=True)
class UtteranceEnded(Event):
    """Back to idle. `outcome`: answered | silent | nothing-heard | stopped | failed."""

    utterance: str
    outcome: str


@dataclass(frozen=True, slots=True)
class SessionFault(Event):
    """A stage failed; the session goes on, and other sessions are not touched."""

    utterance: str | None
    stage: str
    code: str
    message: str


MACHINE: Final = "machine"
"""Stands for the session in events that belong to no conversation."""


@dataclass(frozen=True, slots=True)
class SensorsRead(Event):
    """What the machine's sensors say: temperatures, and where there are such sensors, power."""

    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class HeatChanged(Event):
    """The machine became warmer or cooler, and Wren does less or more for it. `level`: normal | warm | hot."""

    level: str
    text: str
    """What follows from it, a sentence."""


@dataclass(frozen=True, slots=True)
class EngineBuilding(Event):
    """An engine is being built beside what serves."""

    task: str
    """`asr.decoder`."""
    stage: str
    share: float | None
    """Of the stage, 0..1; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class EngineChanged(Event):
    """Another engine runs a task from now on."""

    task: str
    engine: str
    """What runs it now, as `ort-cpu int8`."""
    reason: str


@dataclass(frozen=True, slots=True)
class StrainChanged(Event):
    """Wren steps down because it cannot keep up (or the machine is hot), or up again."""

    steps: tuple[str, ...]
    """Names of the steps that are taken now; none: all that Wren can do."""
    because: str
    """Stage that cannot keep up, or `heat`; empty where nothing does any more."""
    text: str
    """What is done less, or no longer, a sentence."""


@dataclass(frozen=True, slots=True)
class BreakerChanged(Event):
    """A stage that failed again and again is left alone, is tried again, or works again."""

    stage: str
    state: str
    """open | half-open | closed."""


Listener = Callable[[Event], None]
"""Called on the session's thread; must return at once and must not raise."""
