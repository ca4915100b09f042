from __future__ import annotations

import json
from pathlib import Path

import pytest

from appliance import buffers
from appliance.audio.devices import Device
from appliance.audio.probe import BlockProbe
from appliance.buffers import DEFAULT_BLOCK, BufferSizes
from appliance.errors import NoDeviceError

FAKE = Device("microphone", "alsa:Fake", "Fake", 48_000, 1, True, False, "hw:0", None)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices that were tried; the fake one stands 128 frames."""
    names: list[str] = []

    def fake_probe(device: Device) -> BlockProbe:
        names.append(device.name)
        return BlockProbe(device.name, 128, ())

    monkeypatch.setattr(buffers, "find_device", lambda kind, name: FAKE)
    monkeypatch.setattr(buffers, "probe_block", fake_probe)
    return names


def test_a_device_is_tried_once_and_remembered(tmp_path: Path, tried: list[str]) -> None:
    path = tmp_path / "cache" / "devices.json"
    assert BufferSizes(path).of("microphone", None) == 128
    assert BufferSizes(path).of("microphone", "alsa:Fake") == 128
    assert tried == ["alsa:Fake"]
    assert json.loads(path.read_text()) == {"microphone alsa:Fake": 128}
    assert [file.name for file in path.parent.iterdir()] == ["devices.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"microphone alsa:Fake": 5}', '{"microphone alsa:Fake": "many"}'])
def test_a_broken_file_costs_one_more_trial(tmp_path: Path, tried: list[str], text: str) -> None:
    path = tmp_path / "devices.json"
    path.write_text(text)
    assert BufferSizes(path).of("microphone", None) == 128
    assert tried == ["alsa:Fake"]


def test_without_a_device_the_usual_size_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(kind: str, name: str | None) -> Device:
        raise NoDeviceError("there is none")

    monkeypatch.setattr(buffers, "find_device", none)
    assert BufferSizes(tmp_path / "x.json").of("speaker", None) == DEFAULT_BLOCK
    assert not (tmp_path / "x.json").exists()


def test_a_size_that_proved_too_small_is_kept_larger_and_never_smaller_again(tmp_path: Path, tried: list[str]) -> None:
    path = tmp_path / "devices.json"
    sizes = BufferSizes(path)
    assert sizes.of("microphone", None) == 128
    sizes.keep("microphone", FAKE.name, 256)
    sizes.keep("speaker", "another", 960)
    assert BufferSizes(path).of("microphone", None) == 256
    sizes.keep("microphone", FAKE.name, 64)
    assert sizes.of("microphone", None) == 256
    assert tried == [FAKE.name]
    assert json.loads(path.read_text())["speaker another"] == 960
