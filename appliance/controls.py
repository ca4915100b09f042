"""What faces may set: volume, wake word, timers, restart. It is kept in the settings file and holds at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.errors import NoDeviceError, UsageError
from appliance.model_packs import ModelPacks
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

__all__ = ["HouseControls"]

_LOG = logging.getLogger(__name__)

_NO_SPEAKER: Final = "this machine has no speaker that is open; plug one in, or see: wren devices"


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
        from appliance.app import ASR_PACK, TTS_PACK, VAD_PACK
        from appliance.measuring import LIGHT_ASR

        self._service, self._local, self._machine = service, local, machine
        self._path, self._restart = path, restart
        self._wake = settings.wake
        """As the microphone has it now; the file may have been changed by hand since the start."""
        # Looked up once: `view` is asked every second.
        self._version = metadata.version("wren")
        store = service.wren.store
        self._voice = store.catalogue.get(TTS_PACK).title
        # A recogniser that was chosen by hand runs instead of the usual one: nobody is to fetch that then.
        used = {choice.model for choice in service.wren.plan.tasks.values()}
        self._packs = ModelPacks(store, [pack for pack in (ASR_PACK, LIGHT_ASR, VAD_PACK, TTS_PACK) if pack in used])

    def view(self) -> ControlsView:
        """See `Controls`."""
        machine, wake, packs, alarm = self._machine(), self._wake, self._packs, self._service.alarm
        return ControlsView(
            microphone=machine.microphone,
            volume_percent=round(self._local.volume),
            wake_words=wake.words,
            wake_word_options=tuple(WAKE_WORDS),
            wake_sensitivity=None if wake.threshold is None else min(99, max(1, round((1.0 - wake.threshold) * 100))),
            voice=self._voice,
            voices=(self._voice,),
            language="en",
            languages=("en",),
            ringing=alarm is not None and alarm.ringing,
            # Nobody has asked for a newer one: updates over the air are a later step.
            system=Versions(self._version, None),
            models=packs.versions(),
            models_can_install=packs.can_install,
            degraded=machine.degraded if packs.trouble is None else (*machine.degraded, packs.trouble),
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
        self._set_wake("wake.words", [name], {"words": (name,)})

    def set_wake_sensitivity(self, percent: int) -> None:
        """See `Controls`. Raises `SettingsError`."""
        threshold = round(1.0 - percent / 100, 2)
        self._set_wake("wake.threshold", threshold, {"threshold": threshold})

    def set_voice(self, name: str) -> None:
        """See `Controls`. Raises `UsageError`: there is one."""
        if name not in self.view().voices:
            raise UsageError(f"there is no voice {name!r} here")

    def set_language(self, code: str) -> None:
        """See `Controls`. Raises `UsageError`: there is one."""
        if code not in self.view().languages:
            raise UsageError(f"Wren does not speak {code!r}")

    def play(self, sound: Sound) -> None:
        """See `Controls`. Raises `NoDeviceError`."""
        if not self._local.play(sound):
            raise NoDeviceError(_NO_SPEAKER)

    def ring(self, seconds: float) -> None:
        """See `Controls`. Raises `NoDeviceError`."""
        if not self._local.ring(seconds):
            raise NoDeviceError(_NO_SPEAKER)

    def hush(self) -> None:
        """See `Controls`."""
        self._local.hush()

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
        """See `Controls`. Raises `UsageError` where all are here."""
        self._packs.install()

    def restart(self) -> None:
        """See `Controls`."""
        _LOG.warning("a restart was asked for")
        self._restart()

    def _set_wake(self, name: str, value: float | list[str], changes: dict[str, object]) -> None:
        self._keep(name, value)
        self._wake = self._wake.model_copy(update=changes)
        self._local.set_wake(self._wake)

    def _keep(self, name: str, value: float | list[str]) -> None:
        """At once, on the caller's thread, so that what cannot be kept is refused; five times a second at most, by the
        limit on commands, and not at all where the file says so already."""
        change_settings(self._path, {name: value})


def _timer_view(timer: Timer, left_s: float) -> TimerView:
    total_s = 3600 * timer.start_hours + 60 * timer.start_minutes + timer.start_seconds
    return TimerView(timer.id, timer.name, total_s, left_s, timer.is_active)
