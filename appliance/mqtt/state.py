"""What happened and how things stand, as messages: events told once, states published only where they changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance import events
from appliance.events import Event
from appliance.mqtt.controls import TimerView

__all__ = ["JsonObject", "Published", "encode", "event_message", "timer_events"]

JsonObject = dict[str, object]
MAX_SLOT: Final = 200
"""Characters of one slot: what somebody dictates onto a list can be long."""
SLACK_S: Final = 0.5
"""A timer that is gone, and had at most this more left than has passed since the last look, has ended by itself: timers
are asked whether they are due four times a second."""


def event_message(event: Event, *, transcripts: bool) -> tuple[str, JsonObject] | None:
    """(key of the event entity, payload) of what is told over MQTT; None for all else.

    What was said and answered is in it only with `transcripts`.
    """
    match event:
        case events.WakeHeard():
            score = round(event.score, 3)
            return "wake", {"event_type": "wake", "session": event.session, "wake_word": event.name, "score": score}
        case events.UtteranceUnderstood():
            understood = event.understanding
            told: JsonObject = {
                "event_type": "not_understood" if understood.intent is None else "understood",
                "session": event.session,
                "utterance": event.utterance,
                "intent": understood.intent,
                "slots": {
                    name: value[:MAX_SLOT] if isinstance(value, str) else value
                    for name, value in understood.slots.items()
                },
            }
            if transcripts:
                told["text"] = understood.text
            return "intent", told
    return None


def timer_events(before: Sequence[TimerView], now: Sequence[TimerView], passed_s: float) -> list[JsonObject]:
    """What happened to timers between two looks, `passed_s` apart."""
    old, new = {timer.id: timer for timer in before}, {timer.id: timer for timer in now}
    told = []
    for number, timer in new.items():
        known = old.get(number)
        if known is None:
            told.append(_timer("started", timer))
        elif known.active != timer.active or timer.left_s > known.left_s + SLACK_S:
            told.append(_timer("changed", timer))
    for number, timer in old.items():
        if number not in new:
            told.append(
                _timer("finished" if timer.active and timer.left_s <= passed_s + SLACK_S else "cancelled", timer)
            )
    return told


def _timer(what: str, timer: TimerView) -> JsonObject:
    return {
        "event_type": what,
        "timer": timer.id,
        "name": timer.name,
        "total_s": timer.total_s,
        "left_s": 0 if what == "finished" else round(timer.left_s),
        "active": timer.active,
    }


def encode(message: Mapping[str, object]) -> bytes:
    """As JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(slots=True)
class Published:
    """What stands on retained topics, so that only changes are sent."""

    standing: dict[str, bytes] = field(default_factory=dict)
    forgotten: bool = False
    """The broker may not have it any more."""

    def changes(self, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
        """Topics to publish, with an empty payload where one is no longer wanted; they stand from now on."""
        held = {} if self.forgotten else self.standing
        changed = {topic: payload for topic, payload in wanted.items() if held.get(topic) != payload}
        changed |= {topic: b"" for topic in self.standing if topic not in wanted}
        self.standing, self.forgotten = dict(wanted), False
        return changed

    def forget(self) -> None:
        """Send all of it with the next changes; what is not wanted any more is still cleared."""
        self.forgotten = True
