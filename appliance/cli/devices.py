"""`wren devices`: the microphones and speakers of this machine, with level meters, a test sound, a buffer probe."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from appliance.cli.common import print_json, warn
from appliance.errors import NoDeviceError, UsageError

if TYPE_CHECKING:
    from appliance.audio.devices import Device
    from appliance.audio.keeper import DeviceState

__all__ = ["add", "run"]

METER_EVERY_S: Final = 0.1
METER_WIDTH: Final = 40
METER_FLOOR_DBFS: Final = -80.0
OPEN_TIMEOUT_S: Final = 5.0
TEST_TAIL_S: Final = 0.3
TEST_VOLUME: Final = 80.0


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("devices", help="list microphones and speakers, and try them")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--test", action="store_true", help="play a test sound on the speaker")
    parser.add_argument("--meter", type=float, metavar="SECONDS", help="show what the microphone hears")
    parser.add_argument("--probe", action="store_true", help="find the smallest buffers that lose nothing (10 s)")
    parser.add_argument("--microphone", metavar="NAME", help="instead of the default (for --meter, --probe)")
    parser.add_argument("--speaker", metavar="NAME", help="instead of the default (for --test, --probe)")


def run(arguments: argparse.Namespace) -> int:
    """List, then try what was asked for; raises `NoDeviceError` (exit code 1) where there is nothing at all."""
    from appliance.audio.devices import list_devices

    if arguments.meter is not None and not arguments.meter > 0.0:
        raise UsageError("devices: --meter wants a number of seconds above 0")
    microphones, speakers = list_devices("microphone"), list_devices("speaker")
    record: dict[str, object] = {
        "microphones": [_device_record(device) for device in microphones],
        "speakers": [_device_record(device) for device in speakers],
    }
    if not microphones and not speakers:
        if arguments.json:
            print_json(record)
        raise NoDeviceError(
            "no microphone and no speaker were found; plug one in or start the sound server, "
            "or talk to Wren from the browser on its page"
        )
    if not arguments.json:
        _show("Microphones", microphones)
        _show("Speakers", speakers)
    if arguments.probe:
        record["probes"] = _probe(arguments)
    if arguments.meter is not None:
        record["meter"] = _meter(arguments.microphone, arguments.meter, quiet=arguments.json)
    if arguments.test:
        record["test"] = _test(arguments.speaker, quiet=arguments.json)
    if arguments.json:
        print_json(record)
    return 0


def _device_record(device: Device) -> dict[str, object]:
    return {
        "name": device.name,
        "title": device.title,
        "default": device.default,
        "monitor": device.monitor,
        "rate_hz": device.rate_hz,
        "channels": device.channels,
    }


def _show(title: str, devices: list[Device]) -> None:
    print(f"{title}:" if devices else f"{title}: none")
    for device in devices:
        mark = "*" if device.default else " "
        kind = "  (hears a speaker)" if device.monitor else ""
        print(f" {mark} {device.name:<34} {device.rate_hz:>6} Hz  {device.title}{kind}", flush=True)


def _probe(arguments: argparse.Namespace) -> list[object]:
    from appliance.audio.devices import find_device
    from appliance.audio.probe import probe_block

    probes: list[object] = []
    for device in (
        find_device("microphone", arguments.microphone),
        find_device("speaker", arguments.speaker),
    ):
        found = probe_block(device)
        probes.append({"kind": device.kind, **asdict(found)})
        if not arguments.json:
            for trial in found.trials:
                verdict = "good" if trial.ok else f"lost {trial.lost_s * 1000:.0f} ms"
                print(f"{device.kind} {device.name}: blocks of {trial.block}: {verdict}", flush=True)
    return probes


def _meter(name: str | None, seconds: float, *, quiet: bool) -> dict[str, object]:
    """Levels as they come. Raises `NoDeviceError` if the microphone cannot be had or is lost."""
    import numpy as np

    from appliance.audio.capture import Microphone
    from appliance.audio.devices import find_device
    from appliance.audio.frame import FRAME_S, Frame, level_dbfs

    device = find_device("microphone", name)
    state = _Watched()
    levels: list[tuple[float, float]] = []
    frames: list[Frame] = []
    wanted = threading.Event()

    def hear(frame: Frame) -> None:
        frames.append(frame)
        if len(frames) * FRAME_S >= METER_EVERY_S:
            sound = np.concatenate([kept.samples for kept in frames])
            levels.append((level_dbfs(sound), 20.0 * float(np.log10(max(float(np.abs(sound).max()), 1e-6)))))
            frames.clear()
            if not quiet:
                _draw(*levels[-1])
            if len(levels) * METER_EVERY_S >= seconds:
                wanted.set()

    microphone = Microphone(device, hear, state).start()
    try:
        state.wait_running()
        wanted.wait(seconds + OPEN_TIMEOUT_S)
    finally:
        microphone.close()
        if not quiet:
            print()
    state.check()
    stats = microphone.stats()
    loudest = max((peak for _, peak in levels), default=METER_FLOOR_DBFS)
    quietest = min((level for level, _ in levels), default=METER_FLOOR_DBFS)
    if loudest <= METER_FLOOR_DBFS:
        warn(f"{device.name} gives nothing but silence: is it muted, or the wrong one?")
    return {
        "name": device.name,
        "seconds": round(len(levels) * METER_EVERY_S, 1),
        "quietest_dbfs": round(quietest, 1),
        "peak_dbfs": round(loudest, 1),
        "gaps": stats.gaps,
        "lost_ms": round(stats.lost_s * 1000),
    }


def _draw(level_dbfs: float, peak_dbfs: float) -> None:
    """One line over the other on a terminal, else line by line."""
    filled, mark = (
        round(METER_WIDTH * (max(value, METER_FLOOR_DBFS) / -METER_FLOOR_DBFS + 1.0))
        for value in (level_dbfs, min(peak_dbfs, 0.0))
    )
    bar = "".join("#" if i < filled else "|" if i == mark - 1 else "." for i in range(METER_WIDTH))
    clipped = "  too loud" if peak_dbfs > -0.5 else ""
    end = "\r" if sys.stdout.isatty() else "\n"
    print(f"[{bar}] {level_dbfs:6.1f} dBFS, peak {peak_dbfs:6.1f}{clipped:<10}", end=end, flush=True)


def _test(name: str | None, *, quiet: bool) -> dict[str, object]:
    from appliance.audio.devices import find_device
    from appliance.audio.playback import DevicePlayer, PlayerSettings
    from appliance.audio.sounds import Sound, sound_samples

    device = find_device("speaker", name)
    state = _Watched()
    played = threading.Event()
    player = DevicePlayer(device, lambda _: played.set(), state, settings=PlayerSettings(volume=TEST_VOLUME)).start()
    try:
        state.wait_running()
        sound = sound_samples(Sound.TEST, device.rate_hz)
        if not quiet:
            print(f"Playing a test sound on {device.name} …", flush=True)
        began_s = time.monotonic()
        player.begin(0, device.rate_hz)
        player.write(sound)
        player.finish()
        played.wait(sound.size / device.rate_hz + OPEN_TIMEOUT_S)
        took_s = time.monotonic() - began_s
        time.sleep(TEST_TAIL_S)  # what is still on its way through the sound server
    finally:
        player.close()
    state.check()
    stats = player.stats()
    return {"name": device.name, "seconds": round(took_s, 2), "underruns": stats.underruns + stats.device_underruns}


class _Watched:
    """Follows a device's state; turns its loss into an error for the person who is trying it."""

    def __init__(self) -> None:
        self._news = threading.Event()
        self._lost: DeviceState | None = None

    def __call__(self, state: DeviceState) -> None:
        if state.phase == "lost" and self._lost is None:
            self._lost = state
        self._news.set()

    def wait_running(self) -> None:
        """Raises `NoDeviceError` if it does not run soon."""
        if not self._news.wait(OPEN_TIMEOUT_S):
            raise NoDeviceError(f"the device did not begin to work within {OPEN_TIMEOUT_S:g} s; try another one")
        self.check()

    def check(self) -> None:
        """Raises `NoDeviceError` if it was lost."""
        if self._lost is not None:
            raise NoDeviceError(f"{self._lost.kind} {self._lost.name}: {self._lost.reason}")
