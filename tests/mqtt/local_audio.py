"""The machine's own sound, without any. Named so."""

from __future__ import annotations

from appliance.audio.sounds import Sound
from appliance.settings import Settings, WakeWordSettings
from appliance.web import MachineState

__all__ = ["FakeLocalAudio"]


class FakeLocalAudio:
    """FAKE of `appliance.running.LocalAudio`: begins as the settings say, and remembers what it was asked."""

    def __init__(self, settings: Settings) -> None:
        self.volume = float(settings.audio.volume_percent)
        self.muted, self.speaker = False, True
        self.wake: WakeWordSettings | None = None
        self.played: list[Sound] = []
        self.rung: list[float | None] = []

    def mute(self, muted: bool) -> None:
        self.muted = muted

    def play(self, sound: Sound) -> bool:
        if self.speaker:
            self.played.append(sound)
        return self.speaker

    def ring(self, seconds: float | None = None) -> bool:
        if self.speaker:
            self.rung.append(seconds)
        return self.speaker

    def hush(self) -> None:
        self.rung.clear()

    def state(self) -> MachineState:
        return MachineState("muted" if self.muted else "live")

    def close(self) -> None:
        return None

    def set_wake(self, wake: WakeWordSettings) -> None:
        self.wake = wake
