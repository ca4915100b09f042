"""Events, traces and models as JSON; docs/protocol.md describes what is made here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from appliance import events
from appliance.telemetry.trace import UtteranceTrace, stages

if TYPE_CHECKING:
    from appliance.app import Wren
    from appliance.intent.types import Understanding
    from appliance.settings import Settings
    from appliance.strain import StrainState
    from appliance.telemetry.speculation import SpeculationTotals

__all__ = [
    "ahead_record",
    "engine_records",
    "event_record",
    "model_records",
    "strain_record",
    "trace_record",
    "understanding_record",
]

JsonObject = dict[str, object]


class _Row(NamedTuple):
    """How one kind of event is told."""

    name: str
    fields: tuple[str, ...]
    phase: str | None = None
    """Phase that the session is in from then on; None where it stays."""


_EVENTS: Final[Mapping[type[events.Event], _Row]] = {
    events.WakeHeard: _Row("wake", ("name", "score")),
    events.ListeningStarted: _Row("listening", ("utterance", "wake"), "listening"),
    events.Announcing: _Row("announcing", ("utterance", "text")),
    events.SpeechStarted: _Row("speech_started", ("utterance",)),
    events.SpeechEnded: _Row("speech_ended", ("utterance",)),
    events.PartialText: _Row("partial", ("utterance", "text")),
    events.EndpointReached: _Row("endpoint", ("utterance", "reason"), "thinking"),
    events.TextRecognised: _Row("text", ("utterance", "text")),
    events.UtteranceUnderstood: _Row("intent", ("utterance",)),
    events.ReplyReady: _Row("reply", ("utterance", "text", "ok")),
    events.FirstAudio: _Row("first_audio", ("utterance",), "speaking"),
    events.PlaybackEnded: _Row("playback_ended", ("utterance", "stopped")),
    events.UtteranceEnded: _Row("ended", ("utterance", "outcome"), "idle"),
    events.EngineBuilding: _Row("building", ("task", "stage", "share")),
    events.EngineChanged: _Row("engine", ("task", "engine", "reason")),
    events.HeatChanged: _Row("heat", ("level", "text")),
    events.StrainChanged: _Row("strain", ("steps", "because", "text")),
    events.BreakerChanged: _Row("breaker", ("stage", "state")),
    events.SessionFault: _Row("fault", ("utterance", "stage", "code", "message")),
}


def event_record(event: events.Event) -> JsonObject | None:
    """An event as the page gets it, with the session's new `phase` where it changes; None for those it does not."""
    row = _EVENTS.get(type(event))
    if row is None:
        return None
    record: JsonObject = {"type": row.name, "session": event.session, "time_ms": round(event.time_s * 1000)}
    record |= {name: getattr(event, name) for name in row.fields}
    if row.phase is not None:
        record["phase"] = row.phase
    if isinstance(event, events.UtteranceUnderstood):
        record |= understanding_record(event.understanding)
    return record


def understanding_record(understanding: Understanding | None) -> JsonObject:
    """`intent` and `slots`."""
    if understanding is None:
        return {"intent": None, "slots": {}}
    return {"intent": understanding.intent, "slots": dict(understanding.slots)}


def trace_record(trace: UtteranceTrace) -> JsonObject:
    """An utterance and where its time went: each stage's start, counted from the first speech, and length in ms."""
    known = stages(trace)
    zero_s = min((start for _, start, _ in known), default=0.0)
    return {
        "utterance": trace.utterance,
        "session": trace.session,
        "wake": trace.wake,
        "transcript": trace.text,
        **understanding_record(trace.understanding),
        "reply": trace.reply,
        "outcome": trace.outcome,
        "endpoint_reason": trace.endpoint_reason,
        "error": None if trace.fault is None else trace.fault.message,
        "times_ms": trace.times_ms(),
        "response_ms": None if trace.response_s is None else round(trace.response_s * 1000),
        "stages": [
            {"name": name, "start_ms": round((start - zero_s) * 1000), "ms": round((stop - start) * 1000)}
            for name, start, stop in known
        ],
    }


def model_records(wren: Wren, settings: Settings) -> list[JsonObject]:
    """The models in use, with their licences and what should be known about them."""
    from appliance.app import TTS_PACK, VAD_PACK
    from appliance.measuring import LIGHT_ASR, PACKS
    from appliance.recognisers import moonshine_pack

    asr = [moonshine_pack(wren.store, wren.plan.tasks["asr"].model) or PACKS["asr"]]
    if wren.light is not None:
        asr.append(LIGHT_ASR)
    used = [*asr, VAD_PACK, TTS_PACK, *(f"wake-{word.replace('_', '-')}" for word in settings.wake.words)]
    packs = [wren.store.catalogue.get(pack_id) for pack_id in used]
    return [
        {
            "id": pack.id,
            "task": pack.task,
            "title": pack.title,
            "licence": pack.licence,
            "caveats": list(pack.caveats),
        }
        for pack in packs
    ]


def engine_records(wren: Wren) -> list[JsonObject]:
    """What runs each task, and why."""
    records: list[JsonObject] = []
    for task, choice in wren.plan.tasks.items():
        runs = wren.opener.settled.get(task, choice)
        records.append(
            {
                "task": task,
                "backend": runs.backend,
                "precision": runs.precision,
                "scheme": runs.scheme,
                "threads": runs.threads,
                "measured": choice.measured,
                "reason": choice.reason,
            }
        )
    return records


def strain_record(state: StrainState) -> JsonObject:
    """How hard each stage works, and what is done without for it."""
    return {
        "steps": [step.name for step in state.steps],
        "because": state.because,
        "stages": {
            name: {"rtf": round(load.rtf, 3), "age_ms": round(load.age_s * 1000)}
            for name, load in sorted(state.loads.items())
        },
        "stepped_down": state.stepped_down,
        "stepped_up": state.stepped_up,
        "breakers_opened": dict(state.opened),
        "hung": state.hung,
        "refused": state.refused,
    }


def ahead_record(totals: SpeculationTotals) -> JsonObject:
    """What working ahead of the end brought and cost since the start."""
    return {
        "utterances": totals.utterances,
        "recognitions": totals.recognitions,
        "hits": totals.hits,
        "spent_s": round(totals.spent_s, 1),
        "wasted": round(totals.waste, 2),
    }
