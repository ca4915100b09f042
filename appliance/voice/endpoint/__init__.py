"""When is the speaker done? Strategies are small classes that look at the evidence and decide.

`SilenceEndpoint` is the plain rule that voice assistants commonly use: a fixed silence. `MeaningEndpoint` weighs what
was said: a whole sentence ends early, one that may go on is given time.
"""

from __future__ import annotations

from appliance.voice.endpoint.evidence import Decision, EndpointStrategy, Evidence, Verdict
from appliance.voice.endpoint.meaning import PATIENT, QUICK, MeaningEndpoint, MeaningSettings
from appliance.voice.endpoint.pauses import PauseSettings, SpeakerPauses
from appliance.voice.endpoint.silence import SilenceEndpoint, SilenceSettings
from appliance.voice.endpoint.styles import ENDPOINT_STYLES, EndpointSettings, EndpointStyle, make_endpoint

__all__ = [
    "ENDPOINT_STYLES",
    "PATIENT",
    "QUICK",
    "Decision",
    "EndpointSettings",
    "EndpointStrategy",
    "EndpointStyle",
    "Evidence",
    "MeaningEndpoint",
    "MeaningSettings",
    "PauseSettings",
    "SilenceEndpoint",
    "SilenceSettings",
    "SpeakerPauses",
    "Verdict",
    "make_endpoint",
]
