"""What tells cheaply that sound devices may have come or gone: the kernel's list of cards and the sound servers' doors.

Looking for devices takes a tenth of a second of a core (PortAudio tries all that ALSA's configuration names), so a
machine without any must not do it again and again for nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["CARDS", "card_is_there", "landscape"]

CARDS: Final = Path("/proc/asound")
_SYSTEM_SERVER: Final = "/run/pulse/native"


def landscape() -> tuple[object, ...]:
    """Equal to that of a moment ago: most likely nothing has come or gone. Costs some 50 µs."""
    return (_cards(), *(_door(path) for path in _doors()))


def card_is_there(name: str) -> bool:
    """Whether the card of a device such as `hw:CARD=Device,DEV=0` is plugged in; True where the name tells of none."""
    if not name.startswith("hw:CARD="):
        return True
    card = name.removeprefix("hw:CARD=").partition(",")[0]
    return not CARDS.is_dir() or (CARDS / card).exists()


def _cards() -> str:
    try:
        return (CARDS / "cards").read_text(encoding="utf-8")
    except OSError:
        return ""


def _doors() -> list[str]:
    """Sockets at which a sound server would answer this process."""
    runtime, named = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("PULSE_SERVER", "")
    doors = [_SYSTEM_SERVER, named.removeprefix("unix:")] if named.startswith("unix:") else [_SYSTEM_SERVER]
    if (own := os.environ.get("PULSE_RUNTIME_PATH")) is not None:
        doors.append(f"{own}/native")
    return doors if runtime is None else [*doors, f"{runtime}/pulse/native", f"{runtime}/pipewire-0"]


def _door(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
