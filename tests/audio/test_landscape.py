from __future__ import annotations

from pathlib import Path

import pytest

from appliance.audio import landscape as module
from appliance.audio.landscape import card_is_there, landscape


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "asound"
    (folder / "Device").mkdir(parents=True)
    (folder / "cards").write_text(" 0 [Device]: USB-Audio\n")
    monkeypatch.setattr(module, "CARDS", folder)
    return folder


def test_it_is_the_same_until_a_card_or_a_sound_server_comes_or_goes(
    cards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_SERVER", f"unix:{tmp_path}/native")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    before = landscape()
    assert landscape() == before
    (cards / "cards").write_text(" 0 [Device]: USB-Audio\n 1 [Headset]: USB-Audio\n")
    more = landscape()
    assert more != before
    (tmp_path / "native").touch()
    served = landscape()
    assert served != more
    (tmp_path / "run" / "pulse").mkdir(parents=True)
    (tmp_path / "run" / "pulse" / "native").touch()
    assert landscape() != served


def test_a_card_is_known_by_its_name_and_other_names_tell_of_none(cards: Path) -> None:
    assert card_is_there("hw:CARD=Device,DEV=0")
    assert not card_is_there("hw:CARD=Headset,DEV=0")
    assert card_is_there("pulse:alsa_input.usb")
    assert card_is_there("default")


def test_without_alsa_nothing_is_claimed_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CARDS", tmp_path / "nowhere")
    assert card_is_there("hw:CARD=Device,DEV=0")
    assert landscape() == landscape()
