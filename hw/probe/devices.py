"""Sound cards and the disk: what the kernel lists of them."""

from __future__ import annotations

import re
from typing import Final

from hw.errors import UnreadableError
from hw.probe.facts import Facts
from hw.probe.machine import AudioDevice, Disk
from hw.probe.root import Root, complete_lines, printable

__all__ = ["gather_audio", "gather_disk"]

CARDS: Final = "proc/asound/cards"
STREAMS: Final = "proc/asound/pcm"
MOUNTS: Final = "proc/mounts"
_CARD: Final = re.compile(r"\s*([0-9]{1,3}) \[(.{1,16}?)\s*\]: \S+ - (.*)")
_STREAM: Final = re.compile(r"([0-9]+)-[0-9]+: .*")


def gather_audio(root: Root, facts: Facts) -> None:
    """audio."""
    try:
        cards = [m for line in complete_lines(root.text(CARDS)) if (m := _CARD.fullmatch(line)) is not None]
    except UnreadableError as error:
        facts.absent("audio", f"no sound system (ALSA): {error}")
        return
    try:
        streams: list[str] | None = complete_lines(root.text(STREAMS))
    except UnreadableError as error:
        streams = None
        if cards:
            facts.warn(str(error))
    found = []
    for card in cards:
        number = int(card[1])
        found.append(
            AudioDevice(
                number,
                printable(card[2]),
                printable(card[3]),
                _count(streams, number, "capture"),
                _count(streams, number, "playback"),
            )
        )
    facts.put("audio", tuple(found), CARDS)


def gather_disk(root: Root, facts: Facts, read_mb_s: float | None = None) -> None:
    """disk: what the root file system lies on; its speed is measured elsewhere."""
    try:
        rows = [line.split() for line in complete_lines(root.text(MOUNTS))]
        device = next(
            (row[0] for row in reversed(rows) if len(row) > 2 and row[1] == "/" and row[0][:5] == "/dev/"), None
        )
        if device is None:
            raise UnreadableError(f"{MOUNTS} names no disk for /")
    except UnreadableError as error:
        facts.absent("disk", str(error))
        return
    name = printable(device[5:])
    facts.put("disk", Disk(name, _kind(root, name), read_mb_s), MOUNTS)


def _count(streams: list[str] | None, card: int, direction: str) -> int | None:
    """How many of the card's streams go that way (`00-00: … : playback 1 : capture 1`)."""
    if streams is None:
        return None
    rows = [line for line in streams if (m := _STREAM.fullmatch(line)) is not None and int(m[1]) == card]
    return sum(f" {direction} " in f"{row} " for row in rows)


def _kind(root: Root, name: str) -> str | None:
    for pattern, kind in ((r"nvme.*", "nvme"), (r"mmcblk.*", "card"), (r"vd[a-z].*", "virtual"), (r"xvd.*", "virtual")):
        if re.fullmatch(pattern, name):
            return kind
    disk = re.fullmatch(r"(sd[a-z]+)[0-9]*", name)
    if disk is None:
        return None
    try:
        turning = root.value(f"sys/block/{disk[1]}/queue/rotational")
    except UnreadableError:
        return None
    return {"0": "ssd", "1": "hdd"}.get(turning)
