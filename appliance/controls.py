"""What faces may set: volume, wake word, timers, restart. It is kept in the settings file and holds at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.errors import ApplianceError, UsageError
from appliance.mqtt.controls import ControlsView, TimerView, Versions
from appliance.settings import change_settings
from appliance.voice.wake import WAKE_WORDS

if TYPE_CHECKING:
    from appliance.audio.sounds import Sound
    from appliance.intent.skills.timers import Timer
    from appliance.running import LocalAudio
    from appliance.service import Service
    from appliance.settings import Settings
    from appliance.web import MachineState

__all__ = ["HouseControls", "NoSpeakerError"]

_LOG = logging.getLogger(__name__)

MODELS: Final = "as this version's catalogue has them"


class NoSpeakerError(ApplianceError):
    """What is asked for needs this machine's own speaker or microphone."""

    code = "appliance.no_device"


class HouseControls:
    """Implements `appliance.mqtt.controls.Controls` over the running appliance."""

    def __init__(
        self,
        service: Service,
        local: LocalAudio,
        machine: Callable[[], MachineState],
        settings: Settings,
        path: Path,
        restart: Callable[[], None],
    ) -> None:
        """`path` is the settings file; `restart` asks for an orderly end and a new start, and returns at once."""
        self._service, self._local, self._machine = service, local, machine
        self._settings, self._path, self._restart = settings, path, restart

    def view(self) -> ControlsView:
        """See `Controls`."""
        from appliance.app import TTS_PACK

        wren, wake = self._service.wren, self._settings.wake
        machine = self._machine()
        voice = wren.store.catalogue.get(TTS_PACK)
        version = metadata.version("wren")
        return ControlsView(
            microphone=machine.microphone,
            volume_percent=round(self._local.volume),
            wake_words=wake.words,
            wake_word_options=tuple(WAKE_WORDS),
            wake_sensitivity=None if wake.threshold is None else round((1.0 - wake.threshold) * 100),
            voice=voice.title,
            voices=(voice.title,),
            language="en",
            languages=("en",),
            # Nobody has asked for a newer one: updates over the air are a later step.
            system=Versions(version, None),
            models=Versions(MODELS, MODELS),
            degraded=machine.degraded,
        )

    def timers(self) -> Sequence[TimerView]:
        """See `Controls`."""
        return [_timer_view(timer, left_s) for timer, left_s in self._service.wren.assistant.timers()]

    def mute(self, muted: bool) -> None:
        """See `Controls`."""
        self._local.mute(muted)

    def set_volume(self, percent: int) -> None:
        """See `Controls`. Raises `SettingsError` where it cannot be kept."""
        self._keep("audio.volume_percent", percent)
        self._local.volume = float(percent)

    def set_wake_word(self, name: str) -> None:
        """See `Controls`. Raises `SettingsError`."""
        self._keep("wake.words", [name])
        self._local.set_wake(self._settings.wake)

    def set_wake_sensitivity(self, percent: int) -> None:
        """See `Controls`. Raises `SettingsError`."""
        self._keep("wake.threshold", round(1.0 - percent / 100, 2))
        self._local.set_wake(self._settings.wake)

    def set_voice(self, name: str) -> None:
        """See `Controls`. Raises `UsageError`: there is one."""
        if name not in self.view().voices:
            raise UsageError(f"there is no voice {name!r} here")

    def set_language(self, code: str) -> None:
        """See `Controls`. Raises `UsageError`: there is one."""
        if code not in self.view().languages:
            raise UsageError(f"Wren does not speak {code!r}")

    def play(self, sound: Sound) -> None:
        """See `Controls`. Raises `NoSpeakerError`."""
        if not self._local.play(sound):
            raise NoSpeakerError("this machine has no speaker that is open; plug one in, or see: wren devices")

    def start_timer(self, seconds: int, name: str | None) -> TimerView:
        """See `Controls`. Raises `UsageError` where there are as many as Wren keeps."""
        timer = self._service.wren.assistant.start_timer(seconds, name)
        if timer is None:
            raise UsageError("as many timers run as Wren keeps; cancel one")
        return _timer_view(timer, float(seconds))

    def cancel_timer(self, timer_id: int) -> bool:
        """See `Controls`."""
        return self._service.wren.assistant.cancel_timer(timer_id)

    def install_models(self) -> None:
        """See `Controls`. Raises `UsageError`: there are none newer."""
        raise UsageError("the model packs are those of this version; a newer Wren brings newer ones")

    def restart(self) -> None:
        """See `Controls`."""
        _LOG.warning("a restart was asked for")
        self._restart()

    def _keep(self, name: str, value: int | float | list[str]) -> None:
        self._settings = change_settings(self._path, {name: value})


def _timer_view(timer: Timer, left_s: float) -> TimerView:
    total_s = 3600 * timer.start_hours + 60 * timer.start_minutes + timer.start_seconds
    return TimerView(timer.id, timer.name, total_s, left_s, timer.is_active)
