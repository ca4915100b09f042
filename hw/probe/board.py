"""Which board: the device tree's `compatible` and `model`, and the release file of NVIDIA's Linux."""

from __future__ import annotations

import re
from typing import Final

from hw.errors import UnreadableError
from hw.probe.facts import Facts
from hw.probe.known import known
from hw.probe.root import Root, printable

__all__ = ["gather_board", "gather_release"]

TREE: Final = "proc/device-tree"
RELEASE: Final = "etc/nv_tegra_release"

_TEGRA: Final = re.compile(r"nvidia,(tegra[0-9]{3}(?:b[0-9][0-9])?)")
_PAIR: Final = re.compile(r"nvidia,(p[0-9]{4}-[0-9]{4})[^+]*\+(p[0-9]{4}-[0-9]{4})\S*")
"""Carrier and module: revisions (`-b00`) and variants (`-super`) follow the part number."""
_ALONE: Final = re.compile(r"nvidia,(p[0-9]{4}-[0-9]{4})(?:-\S*)?")
_IDS: Final = re.compile(r"([0-9]{4}):([0-9]{4})(?::.*)?")
_ENTRY: Final = re.compile(r"([A-Za-z0-9._-]+),([A-Za-z0-9._+-]+)")
_KITS: Final = ("p2371-2180", "p2771-0000", "p2972-0000", "p2972-0006", "p3450-0000", "p3450-0002")
"""Developer kits, which older trees name like a module."""
_FIRST_LINE: Final = re.compile(r"# R([0-9]+) \(release\), REVISION: ([0-9]+(?:\.[0-9]+)*),.*")
_PLACEHOLDERS: Final = ("default string", "system product name", "to be filled by o.e.m.", "none", "not specified")


def gather_board(root: Root, facts: Facts) -> None:
    """board, chip, soc, module, carrier, model. Needs `arch` before it."""
    _model(root, facts)
    if facts.get("arch") in ("x86_64", "i686"):
        for name in ("board", "module", "carrier"):
            facts.absent(name, "an x86 machine: no device tree names its board")
        return  # chip and soc come with the processor
    source = f"{TREE}/compatible"
    try:
        whole, cut = root.strings(source)
        entries = [entry for entry in whole if _ENTRY.fullmatch(entry)]
        if _TEGRA.fullmatch(cut):  # this much of a name cannot be part of a longer one that means another chip
            entries.append(cut)
        if cut:
            facts.warn(f"{source} does not end in NUL: it may be cut off after {cut}")
        if not entries:
            raise UnreadableError(f"{source} holds no vendor,device name")
    except UnreadableError as error:
        for name in ("board", "chip", "soc", "module", "carrier"):
            facts.unknown(name, str(error))
        return
    facts.put("board", entries[0], source)
    tegra = next((m[1] for entry in entries if (m := _TEGRA.fullmatch(entry))), None)
    if tegra is not None:
        _jetson(root, facts, entries, tegra, source)
    elif any(entry.startswith("nvidia,") for entry in entries):
        for name in ("chip", "soc", "module", "carrier"):
            facts.unknown(name, f"{source} names no Tegra chip that can be read: {', '.join(entries)}")
    else:
        _other(facts, entries, source, whole=not cut)


def _jetson(root: Root, facts: Facts, entries: list[str], chip: str, source: str) -> None:
    facts.put("chip", chip, source)
    row = known()["chip"].get(chip[:8])
    if row is None:
        facts.unknown("soc", f"no chip {chip} is known")
    else:
        facts.put("soc", row["soc"], f"known of {chip}")
    pair = next((m for entry in entries if (m := _PAIR.fullmatch(entry))), None)
    if pair is not None:
        facts.put("carrier", pair[1], source)
        facts.put("module", pair[2], source)
        return
    facts.unknown("carrier", f"{source} names no carrier board")
    alone = (m[1] for entry in entries if (m := _ALONE.fullmatch(entry)))
    module = next((part for part in alone if part not in _KITS), None)
    if module is not None:
        facts.put("module", module, source)
        return
    ids = f"{TREE}/nvidia,boardids"
    try:
        found = next((m for text in root.strings(ids)[0] if (m := _IDS.fullmatch(text))), None)
    except UnreadableError:
        found = None
    if found is None:
        facts.unknown("module", f"neither {source} nor {ids} names one")
    else:
        facts.put("module", f"p{found[1]}-{found[2]}", ids)


def _other(facts: Facts, entries: list[str], source: str, *, whole: bool) -> None:
    """Not NVIDIA's: the first entry is the board, the last the chip (Devicetree specification, 2.3.1)."""
    facts.put("module", entries[0], source)
    facts.absent("carrier", "module and carrier are one board")
    if not whole:
        facts.unknown("chip", f"{source} is cut off before it")
        facts.unknown("soc", f"{source} is cut off before it")
        return
    vendor, chip = entries[-1].split(",", 1)
    facts.put("chip", chip, source)
    name = known()["vendor"].get(vendor)
    if name is None:
        facts.unknown("soc", f"no maker {vendor} is known")
    else:
        facts.put("soc", f"{name} {chip.upper()}", source)


def _model(root: Root, facts: Facts) -> None:
    source, computer = f"{TREE}/model", "sys/class/dmi/id/product_name"
    try:
        raw = root.read(source, 1 << 12)
        text = raw.split(b"\0")[0].decode("utf-8", "backslashreplace").strip()
        if not text:
            raise UnreadableError(f"{source} is empty")
        if b"\0" not in raw:
            facts.warn(f"model may be cut off: {source} does not end in NUL")
        facts.put("model", printable(text), source)
    except UnreadableError as error:
        try:
            text = printable(root.value(computer))
            if text.lower() in _PLACEHOLDERS:
                raise UnreadableError(f"{computer} is a placeholder")
            facts.put("model", text, computer)
        except UnreadableError as other:
            if facts.get("arch") in ("x86_64", "i686"):
                facts.absent("model", str(other))
            else:
                facts.unknown("model", str(error))


def gather_release(root: Root, facts: Facts, l4t_package: str | None) -> None:
    """l4t and jetpack_from_l4t; `l4t_package` is the version of the package nvidia-l4t-core, if installed.

    Only the first line of the release file counts. Its `BOARD` is the image's build target, not the board.
    """
    found, reason = None, None
    try:
        line, newline, _ = root.text(RELEASE).partition("\n")
        match = _FIRST_LINE.fullmatch(line.strip())
        if match is not None:
            numbers = [match[1], *match[2].split("."), "0"]
            found = ".".join(numbers[:3])
            facts.put("l4t", found, RELEASE)
        else:
            reason = f"the first line of {RELEASE} has an unknown form" if line or newline else f"{RELEASE} is empty"
    except UnreadableError as error:
        reason = str(error)
    packaged = re.match(r"([0-9]+\.[0-9]+\.[0-9]+)-", l4t_package or "")
    if packaged is not None and found is None:
        found = packaged[1]
        facts.put("l4t", found, "package nvidia-l4t-core")
    elif packaged is not None and packaged[1] != found:
        facts.warn(f"{RELEASE} says L4T {found}, the package nvidia-l4t-core says {packaged[1]}")
    _jetpack(root, facts, found, reason or "no release")


def _jetpack(root: Root, facts: Facts, l4t: str | None, reason: str) -> None:
    if l4t is None:
        chip = facts.get("chip")
        if chip is not None and not chip.startswith("tegra") and not root.exists(RELEASE):
            facts.absent("l4t", f"no Jetson: {reason}")
            facts.absent("jetpack_from_l4t", "no Jetson")
        else:
            facts.unknown("l4t", reason)
            facts.unknown("jetpack_from_l4t", "the L4T release is unknown")
        return
    jetpack = known()["jetpack"].get(l4t)
    if jetpack is None:
        facts.unknown("jetpack_from_l4t", f"L4T {l4t} is no release known here; it is not guessed at")
    else:
        facts.put("jetpack_from_l4t", jetpack, f"known of L4T {l4t}")
