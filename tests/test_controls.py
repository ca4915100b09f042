"""What faces may set: it holds at once, is kept in the settings, and what cannot be done is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.alarm import RingingAlarm
from appliance.app import ASR_PACK, Wren
from appliance.audio.sounds import Sound
from appliance.controls import HouseControls
from appliance.errors import NoDeviceError, UsageError
from appliance.service import Service
from appliance.settings import Settings, WakeWordSettings, change_settings, load_settings
from appliance.web import MachineState
from tests.mqtt.local_audio import FakeLocalAudio

pytestmark = pytest.mark.models


class House:
    def __init__(self, wren: Wren, path: Path, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.local, self.restarts, self.path = FakeLocalAudio(settings), list[bool](), path
        self.service = Service(wren)
        self.controls = HouseControls(
            self.service,
            self.local,  # type: ignore[arg-type]
            lambda: MachineState("live", ("a sentence",)),
            settings,
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
    with pytest.raises(NoDeviceError, match="wren devices"):
        house.controls.play(Sound.WAKE)
    assert not house.path.exists()


def test_the_alarm_is_the_machines_own_and_any_that_rings_is_shown(house: House) -> None:
    assert not house.controls.view().ringing
    house.controls.ring(60.0)
    assert house.local.rung == [60.0]
    house.controls.hush()
    assert house.local.rung == []
    alarm = RingingAlarm(lambda _: None)
    house.service.alarm = alarm
    alarm.ring(60.0)
    assert house.controls.view().ringing, "a timer that has ended"
    alarm.hush()
    assert not house.controls.view().ringing
    house.local.speaker = False
    with pytest.raises(NoDeviceError, match="wren devices"):
        house.controls.ring(60.0)


def test_timers_are_started_listed_and_cancelled(house: House) -> None:
    made = house.controls.start_timer(90, "eggs")
    (shown,) = [timer for timer in house.controls.timers() if timer.id == made.id]
    assert shown.name == "eggs"
    assert 80 < shown.left_s <= 90
    assert house.controls.cancel_timer(made.id)
    assert not house.controls.cancel_timer(made.id)


def test_a_recogniser_put_in_place_by_hand_leaves_moonshine_unmissed(
    wren: Wren, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, status="missing") if row.pack.id == ASR_PACK else row for row in wren.store.list()]
    monkeypatch.setattr(wren.store, "list", lambda: rows)
    assert House(wren, tmp_path / "wren.toml").controls.view().models_can_install
    tasks = {**wren.plan.tasks, "asr": replace(wren.plan.tasks["asr"], model="zipformer-of-mine")}
    monkeypatch.setattr(wren, "plan", replace(wren.plan, tasks=tasks))
    assert not House(wren, tmp_path / "wren.toml").controls.view().models_can_install


def test_a_restart_is_asked_for_and_returned_from_at_once(house: House) -> None:
    house.controls.restart()
    assert house.restarts == [True]


def test_what_was_changed_in_the_file_by_hand_holds_from_the_next_start_and_is_not_shown_before(house: House) -> None:
    change_settings(house.path, {"wake.words": ["hey_jarvis"]})
    house.controls.set_volume(35)
    assert house.controls.view().wake_words == ("okay_nabu",), "nobody listens for another word yet"
    house.controls.set_wake_sensitivity(60)
    assert house.local.wake is not None
    assert house.local.wake.words == ("okay_nabu",)
    assert load_settings(house.path).settings.wake.words == ("hey_jarvis",)


def test_a_volume_that_is_set_again_does_not_wear_out_the_disk(house: House) -> None:
    house.controls.set_volume(35)
    before = house.path.stat()
    house.controls.set_volume(35)
    after = house.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    house.controls.set_volume(36)
    assert house.path.stat().st_ino != before.st_ino


@pytest.mark.parametrize(("threshold", "shown"), [(0.001, 99), (0.999, 1), (0.5, 50)])
def test_the_sensitivity_that_is_shown_can_be_set(wren: Wren, tmp_path: Path, threshold: float, shown: int) -> None:
    house = House(wren, tmp_path / "wren.toml", Settings(wake=WakeWordSettings(threshold=threshold)))
    assert house.controls.view().wake_sensitivity == shown
