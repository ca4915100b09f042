"""Events become messages and a view; only changes are published; percentiles are real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance import events
from appliance.events import Event
from appliance.intent.types import Understanding
from appliance.mqtt.controls import TimerView
from appliance.mqtt.state import MAX_SLOT, Published, event_message, timer_events
from appliance.mqtt.state_view import PHASES, View, apply_event, percentile
from hw.thermal import Reading

HEARD = Understanding("put milk on the list", "HassListAddItem", {"item": "milk", "count": 2})


def after(*told: Event) -> View:
    view = View()
    for event in told:
        view = apply_event(view, event)
    return view


def test_an_utterance_goes_through_the_phases() -> None:
    steps = [
        (events.WakeHeard(0.0, "local", "okay_nabu", 0.99), "idle"),
        (events.ListeningStarted(0.0, "local", "u", "okay_nabu"), "listening"),
        (events.PartialText(0.5, "local", "u", "turn"), "listening"),
        (events.EndpointReached(1.0, "local", "u", "silence"), "processing"),
        (events.FirstAudio(1.3, "local", "u"), "responding"),
        (events.UtteranceEnded(2.0, "local", "u", "answered"), "idle"),
    ]
    view = View()
    for event, phase in steps:
        view = apply_event(view, event)
        assert view.phase == phase


def test_the_busiest_conversation_is_shown() -> None:
    view = after(events.ListeningStarted(0.0, "page", "p", None), events.Announcing(0.0, "local", "u", "hello"))
    assert view.phase == "responding"
    assert apply_event(view, events.UtteranceEnded(1.0, "local", "u", "answered")).phase == "listening"


def test_what_changes_nothing_gives_the_same_view() -> None:
    view = View()
    assert apply_event(view, events.SpeechStarted(0.0, "local", "u")) is view
    assert apply_event(view, events.UtteranceEnded(0.0, "local", "u", "stopped")) is view


def test_the_machine_is_shown() -> None:
    readings = (Reading("cpu", 51.0, "C", "a"), Reading("gpu", 62.5, "C", "b"), Reading("in", 5000.0, "mW", "c"))
    view = after(
        events.SensorsRead(0.0, events.MACHINE, readings),
        events.HeatChanged(0.0, events.MACHINE, "warm", "warm: less is done"),
        events.EngineChanged(0.0, events.MACHINE, "asr", "ort-cpu int8", "the GPU failed"),
    )
    assert (view.temperature_c, view.heat, view.engines) == (62.5, "warm", {"asr": "ort-cpu int8"})
    assert apply_event(view, events.SensorsRead(1.0, events.MACHINE, readings[2:])).temperature_c is None


def test_the_last_intent_stays_when_something_is_not_understood() -> None:
    view = after(
        events.UtteranceUnderstood(0.0, "local", "u", HEARD),
        events.UtteranceUnderstood(0.0, "local", "v", Understanding("gibberish", None)),
    )
    assert view.last_intent == "HassListAddItem"


def test_a_wake_word_and_an_intent_are_told() -> None:
    wake = event_message(events.WakeHeard(0.0, "local", "alexa", 0.98765), transcripts=False)
    assert wake == ("wake", {"event_type": "wake", "session": "local", "wake_word": "alexa", "score": 0.988})
    told = event_message(events.UtteranceUnderstood(0.0, "local", "u", HEARD), transcripts=False)
    assert told is not None
    assert told[0] == "intent"
    assert told[1] == {
        "event_type": "understood",
        "session": "local",
        "utterance": "u",
        "intent": "HassListAddItem",
        "slots": {"item": "milk", "count": 2},
    }


def test_what_was_said_is_told_only_where_that_is_wanted() -> None:
    nothing = events.UtteranceUnderstood(0.0, "local", "u", Understanding("my secret", None))
    private = event_message(nothing, transcripts=False)
    assert private is not None
    assert private[1]["event_type"] == "not_understood"
    assert "my secret" not in str(private)
    told = event_message(nothing, transcripts=True)
    assert told is not None
    assert told[1]["text"] == "my secret"


@pytest.mark.parametrize(
    "event",
    [
        events.PartialText(0.0, "local", "u", "my secret"),
        events.TextRecognised(0.0, "local", "u", "my secret", -1.0),
        events.ReplyReady(0.0, "local", "u", "my secret", True),
        events.Announcing(0.0, "local", "u", "my secret"),
    ],
)
def test_no_other_event_carries_words_out(event: Event) -> None:
    assert event_message(event, transcripts=False) is None
    assert "my secret" not in str(apply_event(View(), event))


def test_a_long_slot_is_cut() -> None:
    long = Understanding("…", "HassListAddItem", {"item": "x" * 5000})
    told = event_message(events.UtteranceUnderstood(0.0, "local", "u", long), transcripts=False)
    assert told is not None
    assert told[1]["slots"] == {"item": "x" * MAX_SLOT}


PASTA = TimerView(1, "pasta", 300, 200.0, True)


@pytest.mark.parametrize(
    ("before", "now", "happened"),
    [
        ([], [PASTA], ["started"]),
        ([PASTA], [replace(PASTA, left_s=199.0)], []),
        ([PASTA], [replace(PASTA, active=False)], ["changed"]),
        ([PASTA], [replace(PASTA, left_s=260.0)], ["changed"]),
        ([PASTA], [], ["cancelled"]),
        ([replace(PASTA, left_s=1.3)], [], ["finished"]),
        ([replace(PASTA, left_s=1.7)], [], ["cancelled"]),
        ([replace(PASTA, left_s=0.8, active=False)], [], ["cancelled"]),
        ([PASTA], [replace(PASTA, id=2)], ["started", "cancelled"]),
    ],
)
def test_timers_tell_of_themselves(before: list[TimerView], now: list[TimerView], happened: list[str]) -> None:
    assert [told["event_type"] for told in timer_events(before, now, passed_s=1.0)] == happened


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=100), st.sampled_from([50, 95]))
def test_a_percentile_is_one_of_the_values_and_exceeds_as_many_as_it_says(values: list[int], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values)
    assert sum(value < found for value in values) < percent / 100 * len(values)


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile([], 50) is None


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.binary(min_size=1, max_size=2), max_size=4), max_size=6))
def test_what_was_published_leads_to_what_is_wanted(steps: list[dict[str, bytes]]) -> None:
    published, broker = Published(), {}
    for number, wanted in enumerate(steps):
        if number == 3:
            published.forget()
            assert published.changes(wanted).keys() >= wanted.keys()
            broker = dict(wanted)
            continue
        for topic, payload in published.changes(wanted).items():
            assert broker.get(topic) != payload, "sent again without need"
            broker[topic] = payload
        broker = {topic: payload for topic, payload in broker.items() if payload}
        assert broker == wanted


def test_phases_are_home_assistants() -> None:
    assert PHASES == ("idle", "listening", "processing", "responding")
