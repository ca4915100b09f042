from __future__ import annotations

import pytest

from appliance import events
from appliance.intent.types import Understanding
from appliance.telemetry.trace import TraceRecorder, UtteranceTrace, waterfall

MEANT = Understanding("turn on the lights", "HassTurnOn")


def _tell(recorder: TraceRecorder, utterance: str = "u1") -> UtteranceTrace:
    story: list[events.Event] = [
        events.WakeHeard(1.0, "s", "okay_nabu", 0.9),
        events.ListeningStarted(1.0, "s", utterance, "okay_nabu"),
        events.SpeechStarted(1.2, "s", utterance),
        events.PartialText(1.8, "s", utterance, "turn on"),
        events.SpeechEnded(2.0, "s", utterance),
        events.TextRecognised(2.3, "s", utterance, "turn on the", -1.0),
        events.TextRecognised(2.4, "s", utterance, "turn on the lights", -1.0),
        events.EndpointReached(2.7, "s", utterance, "silence"),
        events.UtteranceUnderstood(2.71, "s", utterance, MEANT),
        events.ReplyReady(2.72, "s", utterance, "Turned on the lights", True),
        events.FirstAudio(2.8, "s", utterance),
        events.PlaybackEnded(3.8, "s", utterance, False),
        events.SpeculationEnded(3.8, "s", utterance, 2, 1, True, 0.2, 0.1),
        events.UtteranceEnded(3.8, "s", utterance, "answered"),
    ]
    for event in story:
        recorder(event)
    return recorder.finished[-1]


def test_a_trace_holds_every_time_and_the_last_text() -> None:
    trace = _tell(TraceRecorder())
    assert trace.wake == "okay_nabu"
    assert trace.text == "turn on the lights"
    assert trace.partials == [(1.8, "turn on")]
    assert trace.response_s == pytest.approx(0.8)
    assert trace.times_ms() == {
        "end_of_speech": 2000, "endpoint": 2700, "final_text": 2700, "intent": 2710, "first_audio": 2800,
    }  # fmt: skip
    assert trace.outcome == "answered"
    assert trace.speculation is not None
    assert trace.speculation.hit


def test_the_waterfall_has_a_bar_a_stage_and_the_response_time() -> None:
    lines = waterfall(_tell(TraceRecorder()))
    assert [line.split()[0] for line in lines] == [
        "speech", "endpoint", "recognition", "intent", "action", "synthesis", "response",
    ]  # fmt: skip
    assert "800 ms" in lines[0]
    assert "700 ms" in lines[1]
    assert "800 ms" in lines[-1]


def test_an_utterance_in_which_nothing_was_said_has_no_bars() -> None:
    assert waterfall(UtteranceTrace("u", "s", 0.0)) == []


def test_only_the_newest_traces_are_kept() -> None:
    recorder = TraceRecorder(keep=3)
    for number in range(10):
        _tell(recorder, f"u{number}")
    assert [t.utterance for t in recorder.finished] == ["u7", "u8", "u9"]


def test_events_of_unknown_utterances_are_passed_over() -> None:
    recorder = TraceRecorder()
    recorder(events.UtteranceEnded(1.0, "s", "never-started", "answered"))
    recorder(events.SessionFault(1.0, "s", None, "speak", "voice", "x"))
    assert not recorder.finished
