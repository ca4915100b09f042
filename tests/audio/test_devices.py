"""Names and defaults, on a fake PortAudio and a fake `pactl` that prints what real ones printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from appliance.audio import devices as module
from appliance.audio import portaudio as portaudio_module
from appliance.audio.devices import Device, find_device, list_devices, stream_formats
from appliance.audio.portaudio import Pcm, PortAudio
from appliance.audio.pulse import PulseDevice, pulse_devices
from appliance.errors import NoDeviceError

HEADSET = Pcm(3, "hw:CARD=Headset,DEV=0", "USB Headset: Audio", 1, 2)
SCREEN = Pcm(2, "hw:CARD=PCH,DEV=3", "HDA Intel PCH: HDMI 0", 0, 8)
DEFAULT = Pcm(0, "default", "default", 32, 32)
PULSE = Pcm(1, "pulse", "pulse", 32, 32)
PARTS = [Pcm(10 + i, name, name, 2, 2) for i, name in enumerate(("sysdefault", "dmix", "surround51:CARD=PCH", "front"))]

FAKE_PACTL = r"""#!/bin/sh
[ "$LC_ALL" = C ] || exit 3
case "$*" in
"info") cat <<'END'
Server String: unix:/run/user/1000/pulse/native
Server Name: PulseAudio (on PipeWire 0.3.65)
Default Sink: alsa_output.usb-Headset
Default Source: alsa_input.usb-Headset
END
;;
"list sources") cat <<'END'
Source #48
	State: SUSPENDED
	Name: alsa_output.usb-Headset.monitor
	Description: Monitor of USB Headset
	Sample Specification: s16le 2ch 48000Hz
	Monitor of Sink: alsa_output.usb-Headset
	Properties:
		device.class = "monitor"

Source #49
	State: RUNNING
	Name: alsa_input.usb-Headset
	Description: USB Headset Mono
	Sample Specification: s16le 1ch 44100Hz
	Monitor of Sink: n/a
END
;;
*) exit 1;;
esac
"""


class FakePortAudio:
    """Sees what it is told."""

    def __init__(self, *pcms: Pcm) -> None:
        self.seen = list(pcms)
        self.rescans = 0

    def pcms(self, *, fresh: bool = True) -> list[Pcm]:
        return self.seen

    def rescan(self, *, promising: bool = False) -> None:
        self.rescans += 1


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pulse_devices", lambda _kind: [])


def _server(monkeypatch: pytest.MonkeyPatch, microphones: list[PulseDevice], speakers: list[PulseDevice]) -> None:
    found = {"microphone": microphones, "speaker": speakers}
    monkeypatch.setattr(module, "pulse_devices", found.__getitem__)


def _names(found: list[Device]) -> list[str]:
    return [device.name for device in found]


def test_on_bare_alsa_the_default_comes_first_and_parts_of_the_configuration_are_left_out() -> None:
    host = FakePortAudio(SCREEN, HEADSET, *PARTS, DEFAULT)
    found = list_devices("microphone", host)  # type: ignore[arg-type]
    assert _names(found) == ["default", "hw:CARD=Headset,DEV=0"]
    assert [device.default for device in found] == [True, False]
    assert "hw:CARD=PCH,DEV=3" in _names(list_devices("speaker", host))  # type: ignore[arg-type]


def test_where_the_default_has_no_microphone_the_first_card_that_has_one_is_taken() -> None:
    host = FakePortAudio(SCREEN, HEADSET, Pcm(0, "default", "default", 0, 2))
    assert find_device("microphone", None, host).name == "hw:CARD=Headset,DEV=0"  # type: ignore[arg-type]


def test_the_sound_servers_devices_have_its_names_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    usb = PulseDevice("alsa_input.usb", "USB", 44_100, 1, True, None)
    echo = PulseDevice("alsa_output.usb.monitor", "Monitor", 48_000, 2, False, "alsa_output.usb")
    _server(monkeypatch, [echo, usb], [])
    found = list_devices("microphone", FakePortAudio(PULSE, DEFAULT))  # type: ignore[arg-type]
    assert _names(found) == ["default", "pulse", "pulse:alsa_input.usb", "pulse:alsa_output.usb.monitor"]
    named = found[2]
    assert (named.pcm, named.server_name, named.rate_hz) == ("pulse", "alsa_input.usb", 44_100)
    assert found[0].rate_hz == 44_100
    assert found[3].monitor


def test_a_server_that_offers_only_what_its_speaker_plays_has_no_microphone(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = PulseDevice("spk.monitor", "Monitor", 48_000, 2, True, "spk")
    _server(monkeypatch, [echo], [PulseDevice("spk", "Speaker", 48_000, 2, True, None)])
    host = FakePortAudio(PULSE, DEFAULT)
    with pytest.raises(NoDeviceError, match=r"pulse:spk\.monitor"):
        find_device("microphone", None, host)  # type: ignore[arg-type]
    assert find_device("microphone", "pulse:spk.monitor", host).monitor  # type: ignore[arg-type]


def test_no_device_at_all_says_what_to_do_and_looks_twice() -> None:
    host = FakePortAudio()
    with pytest.raises(NoDeviceError, match=r"no microphone.*plug one in.*browser") as caught:
        find_device("microphone", None, host)  # type: ignore[arg-type]
    assert caught.value.retry
    assert host.rescans == 1


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    host = FakePortAudio(HEADSET, DEFAULT)
    with pytest.raises(NoDeviceError, match=r"'usb mic'; there are default, hw:CARD=Headset,DEV=0"):
        find_device("microphone", "usb mic", host)  # type: ignore[arg-type]


def test_what_a_stream_is_opened_with_native_first_and_mono_where_it_converts() -> None:
    host = FakePortAudio(HEADSET, DEFAULT)
    converting = stream_formats(find_device("microphone", "default", host), 256)  # type: ignore[arg-type]
    assert {form.channels for form in converting} == {1}
    assert converting[0].rate_hz == 48_000
    bare = stream_formats(find_device("speaker", "hw:CARD=Headset,DEV=0", host), 128)  # type: ignore[arg-type]
    assert [(form.rate_hz, form.channels, form.block) for form in bare[:2]] == [(48_000, 2, 128), (48_000, 1, 128)]


def test_pactl_is_read_in_english_whatever_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "pactl"
    fake.write_text(FAKE_PACTL)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert pulse_devices("microphone") == [
        PulseDevice(
            "alsa_output.usb-Headset.monitor", "Monitor of USB Headset", 48_000, 2, False, "alsa_output.usb-Headset"
        ),
        PulseDevice("alsa_input.usb-Headset", "USB Headset Mono", 44_100, 1, True, None),
    ]
    assert pulse_devices("speaker") == []


def test_a_cards_number_is_replaced_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "card2").mkdir()
    (tmp_path / "card2" / "id").write_text("Headset\n")
    monkeypatch.setattr(portaudio_module, "CARDS", tmp_path)
    stable = portaudio_module._stable_name
    assert stable("USB Headset: Audio (hw:2,0)") == ("hw:CARD=Headset,DEV=0", "USB Headset: Audio")
    assert stable("Other: Audio (hw:5,1)") == ("hw:CARD=5,DEV=1", "Other: Audio")
    assert stable("default") == ("default", "default")


def test_without_portaudio_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyaudio", None)
    with pytest.raises(NoDeviceError, match="libportaudio2"):
        PortAudio().pcms()


def test_jack_is_listed_by_its_own_name_and_never_taken_unasked() -> None:
    plugin = Pcm(4, "jack", "jack", 2, 2)  # ALSA's way to JACK: the same devices again
    host = FakePortAudio(plugin, Pcm(5, "jack:system", "system, by JACK", 2, 2))
    (device,) = list_devices("speaker", host)  # type: ignore[arg-type]
    assert (device.name, device.pcm, device.default) == ("jack:system", "jack:system", False)
    with pytest.raises(NoDeviceError, match="name one of jack:system"):
        find_device("speaker", None, host)  # type: ignore[arg-type]
    assert find_device("speaker", "jack:system", host) == device  # type: ignore[arg-type]
    assert {form.channels for form in stream_formats(device, 64)[:1]} == {2}  # with one, only the left one would sound
