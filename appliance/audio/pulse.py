"""What PulseAudio (or PipeWire in its place) calls its microphones and speakers, and when one comes or goes.

PortAudio sees the whole sound server as one device. The server's own tool `pactl` knows better; where it is absent
Wren still works, on the server's default devices.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["PulseDevice", "PulseWatch", "pulse_devices"]

PACTL_TIMEOUT_S: Final = 2.0
_SECTION: Final = {"microphone": ("sources", "Default Source"), "speaker": ("sinks", "Default Sink")}
_SPEC: Final = re.compile(r"(\d+)ch (\d+)Hz")
_COME_OR_GO: Final = re.compile(r"'(?:new|remove)' on (?:sink|source) #")


@dataclass(frozen=True, slots=True)
class PulseDevice:
    """A source or sink of the sound server."""

    name: str
    """The server's name for it: the same after a restart, and wherever it is plugged in again."""
    title: str
    rate_hz: int
    channels: int
    default: bool
    monitor_of: str | None
    """Name of the speaker whose sound this microphone is; None for a real one."""


def pulse_devices(kind: Literal["microphone", "speaker"]) -> list[PulseDevice]:
    """Sources or sinks; empty where there is no `pactl` or no server answers."""
    section, default_key = _SECTION[kind]
    listing = _pactl("list", section)
    if not listing:
        return []
    default = _fields(_pactl("info") or "").get(default_key)
    devices = []
    for part in re.split(r"^(?:Source|Sink) #\d+$", listing, flags=re.MULTILINE)[1:]:
        fields = _fields(part)
        spec = _SPEC.search(fields.get("Sample Specification", ""))
        if "Name" not in fields or spec is None:
            continue
        monitor = fields.get("Monitor of Sink", "n/a")
        devices.append(
            PulseDevice(
                name=fields["Name"],
                title=fields.get("Description", fields["Name"]),
                rate_hz=int(spec[2]),
                channels=int(spec[1]),
                default=fields["Name"] == default,
                monitor_of=None if monitor == "n/a" else monitor,
            )
        )
    return devices


class PulseWatch:
    """Calls back, on a thread of its own, whenever a source or sink comes or goes or the server ends.

    A server whose microphone is unplugged moves us to another one without a word; this is how we notice.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._process: subprocess.Popen[str] | None = None
        program = shutil.which("pactl")
        if program is None:
            return
        self._process = subprocess.Popen(
            [program, "subscribe"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_plain_environment(),
        )
        self._thread = threading.Thread(target=self._read, name="pulse-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        if self._process is None:
            return
        self._process.kill()  # asked politely it would first take leave of the server, which may hang
        self._process.wait()
        self._thread.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if _COME_OR_GO.search(line):
                self._on_change()
        self._on_change()


def _pactl(*arguments: str) -> str | None:
    program = shutil.which("pactl")
    if program is None:
        return None
    try:
        run = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PACTL_TIMEOUT_S,
            env=_plain_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout if run.returncode == 0 else None


def _plain_environment() -> dict[str, str]:
    """What is read by a program is asked for in English."""
    return {**os.environ, "LC_ALL": "C"}


def _fields(text: str) -> dict[str, str]:
    """The `Key: value` lines of the first level."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if colon and key not in found:
            found[key] = value.strip()
    return found
