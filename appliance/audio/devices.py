"""What microphones and speakers there are, by names that stay the same, and which one to take.

A name is the sound server's (`pulse:alsa_input.usb-…`), ALSA's own (`hw:CARD=Device,DEV=0`), JACK's (`jack:system`,
while its server runs) or one of ALSA's configuration (`default`). Two cards of one kind are told apart by ALSA in the
order of plugging (`Device`, `Device_1`): where that matters, take the sound server's names, which know the socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from appliance.audio.portaudio import JACK_PREFIX, Pcm, PortAudio, StreamFormat, portaudio
from appliance.audio.pulse import PulseDevice, pulse_devices
from appliance.errors import NoDeviceError

__all__ = ["Device", "Kind", "find_device", "list_devices", "stream_formats"]

Kind = Literal["microphone", "speaker"]

PULSE_PREFIX: Final = "pulse:"
_SERVER_PCMS: Final = ("pulse", "pipewire")
"""PCMs that lead to the sound server; a device of the server is opened through the first of them."""
_DEFAULT_PCMS: Final = ("default", *_SERVER_PCMS)
# PCMs of ALSA's stock configuration that are parts of others, converters, or the same card again.
_HIDDEN_PCMS: Final = frozenset(
    (
        *("sysdefault", "front", "rear", "center_lfe", "side", "surround21", "surround40", "surround41", "surround50"),
        *("surround51", "surround71", "iec958", "spdif", "hdmi", "dmix", "dsnoop", "modem", "phoneline", "null"),
        *("jack", "oss", "speex", "speexrate", "samplerate", "lavrate", "upmix", "vdownmix", "a52", "usb_stream"),
    )
)
_FALLBACK_RATE_HZ: Final = 48_000
_RATES_HZ: Final = {"microphone": (48_000, 16_000, 44_100, 32_000, 96_000), "speaker": (48_000, 44_100, 96_000, 16_000)}
_MAX_CHANNELS: Final = 8


@dataclass(frozen=True, slots=True)
class Device:
    """A microphone or a speaker."""

    kind: Kind
    name: str
    """Stable; what settings remember."""
    title: str
    """For people."""
    rate_hz: int
    """Its native rate as far as it can be known without opening it: tried first."""
    channels: int
    """Its channels; many where it converts to whatever is asked."""
    default: bool
    """Whether it is taken where none is named."""
    monitor: bool
    """A microphone that hears what a speaker plays."""
    pcm: str
    """What PortAudio opens for it."""
    server_name: str | None
    """What the sound server is to take for it; None: its choice, or no server."""


def list_devices(kind: Kind, host: PortAudio | None = None) -> list[Device]:
    """All of a kind, the default first, real ones before monitors.

    Raises `NoDeviceError` only where PortAudio itself is missing; no device is an empty list.
    """
    pcms = [pcm for pcm in (host or portaudio()).pcms() if (pcm.inputs if kind == "microphone" else pcm.outputs)]
    server = pulse_devices(kind)
    devices = [*_plain_devices(kind, pcms, server), *_server_devices(kind, pcms, server)]
    chosen = _default_name(devices, server)
    marked = [_marked(device, chosen) for device in devices]
    return sorted(marked, key=lambda device: (not device.default, device.monitor))


def find_device(kind: Kind, name: str | None = None, host: PortAudio | None = None) -> Device:
    """The named one, or the default. Raises `NoDeviceError` that says what to do."""
    host = host or portaudio()
    for last in (False, True):
        devices = list_devices(kind, host)
        for device in devices:
            if device.default if name is None else device.name == name:
                return device
        if not last:
            # It may have been plugged in, or the sound server started, since PortAudio looked around.
            unseen = not any(device.pcm in _SERVER_PCMS for device in devices) and bool(pulse_devices(kind))
            host.rescan(promising=unseen)
    there = ", ".join(device.name for device in devices)
    if name is not None and there:
        raise NoDeviceError(f"there is no {kind} {name!r}; there are {there}")
    command = "arecord -l" if kind == "microphone" else "aplay -l"
    also = f", or name one of {there}" if there else ""
    raise NoDeviceError(
        f"this machine has no {kind} that can be opened; plug one in (`{command}` shows what the system sees){also}, "
        "or use the browser's on Wren's page"
    )


def stream_formats(device: Device, block: int) -> list[StreamFormat]:
    """Rates and channels to open it with, the best first.

    A device that converts is asked for one channel: less to carry. Bare hardware has what it has, and so has JACK: one
    rate, and with one channel only its left speaker sounds.
    """
    converts = not device.name.startswith(("hw:", JACK_PREFIX))
    rates = list(dict.fromkeys((device.rate_hz, *_RATES_HZ[device.kind])))
    most = min(device.channels, _MAX_CHANNELS)
    counts: tuple[int, ...] = (1,) if converts else tuple(dict.fromkeys((1, 2, most)))
    if device.kind == "speaker" and not converts:
        counts = tuple(dict.fromkeys((min(2, most), 1, most)))
    return [StreamFormat(rate, count, block) for rate in rates for count in counts]


def _plain_devices(kind: Kind, pcms: list[Pcm], server: list[PulseDevice]) -> Iterator[Device]:
    server_rate_hz = next((device.rate_hz for device in server if device.default), _FALLBACK_RATE_HZ)
    for pcm in pcms:
        if pcm.name.split(":", 1)[0] in _HIDDEN_PCMS and not pcm.name.startswith(JACK_PREFIX):
            continue
        channels = pcm.inputs if kind == "microphone" else pcm.outputs
        rate_hz = server_rate_hz if pcm.name in _DEFAULT_PCMS else _FALLBACK_RATE_HZ
        title = "the system's choice" if pcm.name == "default" else pcm.title
        yield Device(kind, pcm.name, title, rate_hz, channels, False, False, pcm.name, None)


def _server_devices(kind: Kind, pcms: list[Pcm], server: list[PulseDevice]) -> Iterator[Device]:
    through = next((name for name in _SERVER_PCMS if any(pcm.name == name for pcm in pcms)), None)
    if through is None:
        return
    for found in server:
        yield Device(
            kind=kind,
            name=PULSE_PREFIX + found.name,
            title=found.title,
            rate_hz=found.rate_hz,
            channels=found.channels,
            default=False,
            monitor=found.monitor_of is not None,
            pcm=through,
            server_name=found.name,
        )


def _default_name(devices: list[Device], server: list[PulseDevice]) -> str | None:
    names = [device.name for device in devices]
    first = next((name for name in _DEFAULT_PCMS if name in names), None)
    if first is not None and not _only_echo(server):
        return first
    return next((name for name in names if name.startswith("hw:")), None)


def _only_echo(server: list[PulseDevice]) -> bool:
    """A machine with a speaker and no microphone: its server then offers what the speaker plays. Not a microphone."""
    default = next((device for device in server if device.default), None)
    if default is None or default.monitor_of is None:
        return False
    return any(speaker.default and speaker.name == default.monitor_of for speaker in pulse_devices("speaker"))


def _marked(device: Device, chosen: str | None) -> Device:
    return replace(device, default=True) if device.name == chosen else device
