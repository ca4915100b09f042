"""One utterance's times, gathered by listening to events from outside; and the waterfall that shows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from appliance import events
from appliance.events import Event
from appliance.intent.types import Understanding

__all__ = ["TraceRecorder", "UtteranceTrace", "stages", "waterfall"]


@dataclass(slots=True)
class UtteranceTrace:
    """What happened in one utterance and when; times in seconds on the session's clock, None where it did not."""

    utterance: str
    session: str
    listening_s: float
    wake: str | None = None
    wake_s: float | None = None
    speech_start_s: float | None = None
    speech_end_s: float | None = None
    endpoint_s: float | None = None
    endpoint_reason: str | None = None
    text_s: float | None = None
    text: str = ""
    understanding: Understanding | None = None
    intent_s: float | None = None
    reply_s: float | None = None
    reply: str | None = None
    first_audio_s: float | None = None
    ended_s: float | None = None
    outcome: str | None = None
    fault: events.SessionFault | None = None
    partials: list[tuple[float, str]] = field(default_factory=list)
    speculation: events.SpeculationEnded | None = None
    """What was done ahead of the endpoint."""

    @property
    def final_text_s(self) -> float | None:
        """When the text was final: known, and the endpoint reached."""
        if self.text_s is None or self.endpoint_s is None:
            return self.text_s
        return max(self.text_s, self.endpoint_s)

    @property
    def response_s(self) -> float | None:
        """Response time: end of speech to first audio."""
        if self.first_audio_s is None or self.speech_end_s is None:
            return None
        return self.first_audio_s - self.speech_end_s

    def times_ms(self) -> dict[str, int | None]:
        """The times of the command line's JSON, in whole milliseconds from the clock's zero."""
        times = {
            "end_of_speech": self.speech_end_s,
            "endpoint": self.endpoint_s,
            "final_text": self.final_text_s,
            "intent": self.intent_s,
            "first_audio": self.first_audio_s,
        }
        return {name: None if time_s is None else round(time_s * 1000) for name, time_s in times.items()}


class TraceRecorder:
    """A listener that keeps the newest traces; bounded."""

    def __init__(self, keep: int = 50) -> None:
        self.finished: deque[UtteranceTrace] = deque(maxlen=keep)
        self._open: dict[str, UtteranceTrace] = {}
        self._wakes: dict[str, events.WakeHeard] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, events.WakeHeard):
            self._wakes[event.session] = event
            return
        if isinstance(event, events.ListeningStarted):
            wake = self._wakes.pop(event.session, None) if event.wake is not None else None
            self._open[event.utterance] = UtteranceTrace(
                event.utterance, event.session, event.time_s, event.wake, None if wake is None else wake.time_s
            )
            return
        trace = self._open.get(getattr(event, "utterance", None) or "")
        if trace is not None:
            _note(trace, event)
            if isinstance(event, events.UtteranceEnded):
                self.finished.append(self._open.pop(event.utterance))


def _note(trace: UtteranceTrace, event: Event) -> None:
    match event:
        case events.SpeechStarted():
            trace.speech_start_s = event.time_s
        case events.SpeechEnded():
            trace.speech_end_s = event.time_s
        case events.PartialText():
            trace.partials.append((event.time_s, event.text))
        case events.EndpointReached():
            trace.endpoint_s, trace.endpoint_reason = event.time_s, event.reason
        case events.TextRecognised():
            trace.text_s, trace.text = event.time_s, event.text
        case events.UtteranceUnderstood():
            trace.intent_s, trace.understanding = event.time_s, event.understanding
        case events.ReplyReady():
            trace.reply_s, trace.reply = event.time_s, event.text
        case events.FirstAudio():
            trace.first_audio_s = event.time_s
        case events.SessionFault():
            trace.fault = event
        case events.SpeculationEnded():
            trace.speculation = event
        case events.UtteranceEnded():
            trace.ended_s, trace.outcome = event.time_s, event.outcome


_Span = tuple[str, Callable[[UtteranceTrace], float | None], Callable[[UtteranceTrace], float | None]]
_SPANS: Final[tuple[_Span, ...]] = (
    ("speech", lambda t: t.speech_start_s, lambda t: t.speech_end_s),
    ("endpoint", lambda t: t.speech_end_s, lambda t: t.endpoint_s),
    ("recognition", lambda t: t.endpoint_s, lambda t: t.final_text_s),
    ("intent", lambda t: t.final_text_s, lambda t: t.intent_s),
    ("action", lambda t: t.intent_s, lambda t: t.reply_s),
    ("synthesis", lambda t: t.reply_s, lambda t: t.first_audio_s),
)


def stages(trace: UtteranceTrace) -> list[tuple[str, float, float]]:
    """(stage, start, stop) in seconds for each stage that took place; `recognition` is what was left after the
    endpoint."""
    known = [(name, start(trace), stop(trace)) for name, start, stop in _SPANS]
    return [(name, start, stop) for name, start, stop in known if start is not None and stop is not None]


def waterfall(trace: UtteranceTrace, width: int = 48) -> list[str]:
    """Lines of text: one bar a stage and its length in ms."""
    spans = stages(trace)
    if not spans:
        return []
    begin = min(start for _, start, _ in spans)
    scale = width / max(max(stop for _, _, stop in spans) - begin, 0.001)
    lines = []
    for name, start, stop in spans:
        left, right = round((start - begin) * scale), round((stop - begin) * scale)
        bar = " " * left + ("█" * (right - left) or "▏")
        lines.append(f"{name:<12}{bar:<{width + 1}} {(stop - start) * 1000:7.0f} ms")
    if trace.response_s is not None:
        lines.append(
            f"{'response':<12}{'':<{width + 1}} {trace.response_s * 1000:7.0f} ms  (end of speech to first audio)"
        )
    return lines
