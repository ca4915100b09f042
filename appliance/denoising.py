"""The denoiser that the settings ask for, over engines opened by the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from appliance.audio.frontend import Denoiser, DenoiserMissingError, OpenDenoiser
from appliance.measuring import PACKS
from models.errors import ModelsError

if TYPE_CHECKING:
    from appliance.engines import EngineOpener

__all__ = ["Denoise", "denoiser_for", "open_denoiser"]

Denoise = Literal["off", "dtln"]
"""What `audio.denoise` may be."""


def denoiser_for(opener: EngineOpener, chosen: Denoise) -> OpenDenoiser | None:
    """What opens it; None where none is wanted."""
    return None if chosen == "off" else lambda: open_denoiser(opener)


def open_denoiser(opener: EngineOpener) -> Denoiser:
    """A microphone's own denoiser; its weights are loaded the first time. Raises `DenoiserMissingError`."""
    try:
        opener.store.open(PACKS["denoise"])  # what is missing or damaged says so, and what to do
        engines = opener.opened("denoise")
        return Denoiser(engines["mask"].stream(), engines["wave"].stream())
    except ModelsError as error:
        raise DenoiserMissingError(str(error)) from error
