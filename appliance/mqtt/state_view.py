"""All that MQTT shows of Wren, as one immutable record: what events told, and how the controls stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from appliance import events
from appliance.events import Event
from appliance.mqtt.controls import ControlsView, TimerView
from appliance.mqtt.protocol import LinkState

__all__ = ["IDLE", "PHASES", "View", "apply_event", "percentile"]

IDLE: Final = "idle"
PHASES: Final = (IDLE, "listening", "processing", "responding")
"""From least to most busy, in Home Assistant's words for a satellite."""

_PHASE_OF: Final[Mapping[type[Event], str]] = {
    events.ListeningStarted: "listening",
    events.EndpointReached: "processing",
    events.Announcing: "responding",
    events.FirstAudio: "responding",
    events.UtteranceEnded: IDLE,
}


@dataclass(frozen=True, slots=True)
class View:
    """As of one moment."""

    controls: ControlsView = field(default_factory=ControlsView)
    timers: tuple[TimerView, ...] = ()
    phases: Mapping[str, str] = field(default_factory=dict)
    """Conversation -> phase; those that are idle are left out."""
    last_intent: str | None = None
    """None until one was understood."""
    response_ms: tuple[int, ...] = ()
    """Response times of the newest utterances that had one, oldest first."""
    temperature_c: float | None = None
    """The hottest sensor; None where there is none."""
    heat: str = "normal"
    engines: Mapping[str, str] = field(default_factory=dict)
    """Task -> what runs it, as `ort-cpu int8`."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Task -> model."""
    link: LinkState | None = None
    """Of the connection, as it was looked at last; None before."""
    untold: int = 0
    """Events and commands that the bridge could not take."""

    @property
    def phase(self) -> str:
        """Of the busiest conversation."""
        return max(self.phases.values(), key=PHASES.index, default=IDLE)


def apply_event(view: View, event: Event) -> View:
    """The view after an event; the same object where it changes nothing. Pure."""
    phase = _PHASE_OF.get(type(event))
    if phase is not None:
        phases = {name: held for name, held in view.phases.items() if name != event.session}
        if phase != IDLE:
            phases[event.session] = phase
        return view if phases == view.phases else replace(view, phases=phases)
    match event:
        case events.UtteranceUnderstood() if event.understanding.intent is not None:
            return replace(view, last_intent=event.understanding.intent)
        case events.SensorsRead():
            hottest = max((reading.value for reading in event.readings if reading.unit == "C"), default=None)
            return replace(view, temperature_c=hottest)
        case events.HeatChanged():
            return replace(view, heat=event.level)
        case events.EngineChanged():
            return replace(view, engines={**view.engines, event.task: event.engine})
    return view


def percentile(values: Sequence[int], percent: float) -> int | None:
    """The smallest value that `percent` of the values do not exceed (nearest rank); None of none."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
