"""Settings as the parts take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.settings.model import Settings

if TYPE_CHECKING:
    from appliance.app import WrenSettings
    from appliance.voice.endpoint import SilenceSettings

__all__ = ["silence_settings", "wren_settings"]


def wren_settings(settings: Settings) -> WrenSettings:
    """What `Wren.open` takes."""
    from appliance.app import WrenSettings
    from appliance.voice.wake import WakeSettings

    wake = settings.wake
    return WrenSettings(
        home_file=settings.home_file,
        area=settings.area,
        wake=WakeSettings(words=wake.words, threshold=wake.threshold, refractory_s=wake.refractory_s),
    )


def silence_settings(settings: Settings) -> SilenceSettings:
    """What `SilenceEndpoint` takes."""
    from appliance.voice.endpoint import SilenceSettings

    listening = settings.listening
    return SilenceSettings(
        understood_s=listening.understood_s,
        not_understood_s=listening.not_understood_s,
        no_speech_s=listening.no_speech_s,
    )
