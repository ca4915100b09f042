"""The front end: echo cancelled while Wren sounds, noise and level evened out for what merely listens for something;
denoised too, where that is asked for.

`Ears` is what a session hears through; everything in here is a streaming part but the tap, which the loudspeaker's
callback writes.
"""

from appliance.audio.frontend.cleaning import Cleaner, EarFrames
from appliance.audio.frontend.denoise import Denoiser, DenoiserMissingError, OpenDenoiser
from appliance.audio.frontend.ears import Ears, EarsState
from appliance.audio.frontend.played import PlayedTap
from appliance.audio.frontend.reference import EchoReference
from appliance.audio.frontend.webrtc import FrontEndMissingError, Processors, open_processors

__all__ = [
    "Cleaner",
    "Denoiser",
    "DenoiserMissingError",
    "EarFrames",
    "Ears",
    "EarsState",
    "EchoReference",
    "FrontEndMissingError",
    "OpenDenoiser",
    "PlayedTap",
    "Processors",
    "open_processors",
]
