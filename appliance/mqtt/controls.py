"""What MQTT needs of the appliance beyond its `Service`: knobs, small sounds, timers, restart; and how they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from appliance.audio.sounds import Sound

__all__ = ["Controls", "ControlsView", "Speaker", "TimerView", "Versions"]


@dataclass(frozen=True, slots=True)
class TimerView:
    """A timer as it stands."""

    id: int
    name: str | None
    total_s: int
    """What it was set to."""
    left_s: float
    """Seconds left; 0 when it is due."""
    active: bool
    """False while it is paused."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Something that can be updated."""

    installed: str | None
    """None where it is not there."""
    latest: str | None
    """The newest that is known; None where nobody knows, which is not the same as `installed`."""
    percent: float | None = None
    """How far an installation is, 0..100; None where it cannot be said."""
    busy: bool = False
    """It is being installed."""


@dataclass(frozen=True, slots=True)
class ControlsView:
    """How everything that can be set stands. None: there is no such thing on this machine, so no face shows it."""

    microphone: Literal["live", "muted", "absent"] | None = None
    """Of this machine; None where it is not used at all."""
    volume_percent: int | None = None
    wake_words: tuple[str, ...] = ()
    """In use."""
    wake_word_options: tuple[str, ...] = ()
    """All there are."""
    wake_sensitivity: int | None = None
    """1..99, more wakes more easily; None where each word's own value holds."""
    voice: str = ""
    voices: tuple[str, ...] = ()
    language: str = ""
    languages: tuple[str, ...] = ()
    ringing: bool = False
    """The alarm sounds: one that was asked for, or a timer that has ended."""
    system: Versions = Versions(None, None)
    models: Versions = Versions(None, None)
    models_can_install: bool = False
    """Whether `install_models` can bring anything."""
    degraded: tuple[str, ...] = ()
    """What works less well than it should, a sentence each."""


class Controls(Protocol):
    """Implemented beside `LocalAudio`; called from MQTT's own thread, one call at a time, and may take a moment.

    Whatever cannot be done raises `ApplianceError` with a message for a person; nothing is changed then.
    """

    def view(self) -> ControlsView:
        """As of now; asked once a second and after every command, so cheap."""
        ...

    def timers(self) -> Sequence[TimerView]:
        """Those that run or are paused."""
        ...

    def mute(self, muted: bool) -> None:
        """Close the microphone, or open it again."""
        ...

    def set_volume(self, percent: int) -> None:
        """0..100."""
        ...

    def set_wake_word(self, name: str) -> None:
        """Listen for this one alone."""
        ...

    def set_wake_sensitivity(self, percent: int) -> None:
        """1..99."""
        ...

    def set_voice(self, name: str) -> None:
        """One of `ControlsView.voices`."""
        ...

    def set_language(self, code: str) -> None:
        """One of `ControlsView.languages`."""
        ...

    def play(self, sound: Sound) -> None:
        """On this machine's speaker, at once."""
        ...

    def ring(self, seconds: float) -> None:
        """Sound the alarm for so long at most; it is quiet under speech, and ends by `hush` or a spoken "stop"."""
        ...

    def hush(self) -> None:
        """End the alarm; no error where none sounds."""
        ...

    def start_timer(self, seconds: int, name: str | None) -> TimerView:
        """A new timer."""
        ...

    def cancel_timer(self, timer_id: int) -> bool:
        """False where there is no such timer."""
        ...

    def install_models(self) -> None:
        """Begin; returns at once, and `view` tells how far it is."""
        ...

    def restart(self) -> None:
        """End this process cleanly so that it is started again; returns before that happens."""
        ...


class Speaker(Protocol):
    """What of `Service` speech and conversation commands use."""

    def say(self, text: str, ended: Callable[[str], None]) -> bool:
        """Say something when nobody is busy; `ended` hears how it went (`Service.say`). False: busy, try again."""
        ...

    def audible(self) -> bool:
        """There is a speaker of this machine, or an open page; else nobody would hear what is said."""
        ...

    def busy(self) -> bool:
        """Somebody speaks or is spoken to, or nobody is there to speak to."""
        ...

    def listen(self) -> bool:
        """Begin to listen as if the wake word had been said; False where there is no microphone session."""
        ...

    def stop(self) -> bool:
        """End whatever is going on; False where there is nothing to stop."""
        ...
