"""The strategies by the names that the settings use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from appliance.voice.endpoint.evidence import EndpointStrategy
from appliance.voice.endpoint.meaning import PATIENT, QUICK, MeaningEndpoint
from appliance.voice.endpoint.silence import SilenceEndpoint, SilenceSettings

__all__ = ["ENDPOINT_STYLES", "EndpointSettings", "EndpointStyle", "make_endpoint"]

EndpointStyle = Literal["quick", "patient", "plain"]
ENDPOINT_STYLES: Final[tuple[EndpointStyle, ...]] = get_args(EndpointStyle)


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Which strategy a session gets, and the times that are its own."""

    style: EndpointStyle = "quick"
    """quick and patient weigh what was said; plain waits for `silence`."""
    silence: SilenceSettings = field(default_factory=SilenceSettings)
    """The plain rule's times; its `no_speech_s` holds for every style."""


def make_endpoint(settings: EndpointSettings) -> EndpointStrategy:
    """A session's own strategy."""
    if settings.style == "plain":
        return SilenceEndpoint(settings.silence)
    times = QUICK if settings.style == "quick" else PATIENT
    return MeaningEndpoint(replace(times, no_speech_s=settings.silence.no_speech_s))
