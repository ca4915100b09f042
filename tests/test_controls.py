"""What faces may set: it holds at once, is kept in the settings, and what cannot be done is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.app import Wren
from appliance.audio.sounds import Sound
from appliance.controls import HouseControls, NoSpeakerError
from appliance.errors import UsageError
from appliance.service import Service
from appliance.settings import Settings, WakeWordSettings, load_settings
from appliance.web import MachineState

pytestmark = pytest.mark.models


class FakeLocalAudio:
    """FAKE: the machine's own sound, without any."""

    def __init__(self) -> None:
        self.volume, self.muted, self.speaker = 80.0, False, True
        self.wake: WakeWordSettings | None = None
        self.played: list[Sound] = []

    def mute(self, muted: bool) -> None:
        self.muted = muted

    def play(self, sound: Sound) -> bool:
        if self.speaker:
            self.played.append(sound)
        return self.speaker

    def set_wake(self, wake: WakeWordSettings) -> None:
        self.wake = wake


class House:
    def __init__(self, wren: Wren, path: Path) -> None:
        self.local, self.restarts, self.path = FakeLocalAudio(), list[bool](), path
        self.controls = HouseControls(
            Service(wren),
            self.local,  # type: ignore[arg-type]
            lambda: MachineState("live", ("a sentence",)),
            Settings(),
            path,
            lambda: self.restarts.append(True),
        )


@pytest.fixture
def house(wren: Wren, tmp_path: Path) -> House:
    return House(wren, tmp_path / "wren.toml")


def test_volume_and_wake_word_hold_at_once_and_after_a_restart(house: House) -> None:
    house.controls.set_volume(35)
    house.controls.set_wake_word("alexa")
    house.controls.set_wake_sensitivity(60)
    assert house.local.volume == 35.0
    assert house.local.wake is not None
    assert (house.local.wake.words, house.local.wake.threshold) == (("alexa",), pytest.approx(0.4))
    kept = load_settings(house.path).settings
    assert (kept.audio.volume_percent, kept.wake.words, kept.wake.threshold) == (35, ("alexa",), 0.4)
    view = house.controls.view()
    assert (view.volume_percent, view.wake_words, view.wake_sensitivity) == (35, ("alexa",), 60)
    assert view.degraded == ("a sentence",)


def test_what_is_refused_changes_nothing(house: House) -> None:
    with pytest.raises(UsageError):
        house.controls.set_voice("somebody else")
    with pytest.raises(UsageError):
        house.controls.set_language("xx")
    with pytest.raises(UsageError):
        house.controls.install_models()
    house.local.speaker = False
    with pytest.raises(NoSpeakerError, match="wren devices"):
        house.controls.play(Sound.WAKE)
    assert not house.path.exists()


def test_timers_are_started_listed_and_cancelled(house: House) -> None:
    made = house.controls.start_timer(90, "eggs")
    (shown,) = [timer for timer in house.controls.timers() if timer.id == made.id]
    assert shown.name == "eggs"
    assert 80 < shown.left_s <= 90
    assert house.controls.cancel_timer(made.id)
    assert not house.controls.cancel_timer(made.id)


def test_a_restart_is_asked_for_and_returned_from_at_once(house: House) -> None:
    house.controls.restart()
    assert house.restarts == [True]
