"""A line of NVIDIA's `tegrastats` as readings; its form changes with nearly every release."""

from __future__ import annotations

import re
from typing import Final

from hw.thermal import COLDEST_C, HOTTEST_C, Reading

__all__ = ["TEGRASTATS", "parse_tegrastats"]

TEGRASTATS: Final = ("tegrastats", "--interval", "1000")
"""Prints a line every second until it is ended."""

_MEMORY: Final = re.compile(r"\b(RAM|SWAP) ([0-9]+)/[0-9]+MB")
_LOAD: Final = re.compile(r"\b(EMC|GR3D)_FREQ ([0-9]+)%")
_CLOCK: Final = re.compile(r"\bGR3D_FREQ (?:[0-9]+%)?@\[?([0-9]+)")
"""`0%@[305]`, `0%@[0,0]`, `@[314,314,314]`, `0%@76`; there is also a bare `0%`, and no such word at all."""
_CORES: Final = re.compile(r"\bCPU \[([^\]]*)\]")
_HEAT: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9_]*)@(-?[0-9]+(?:\.[0-9]+)?)C\b")
_POWER: Final = re.compile(r"\b(POM_\w+|VDD\w*|VIN\w*) ([0-9]+)(?:mW)?/[0-9]+(?:mW)?")
"""Now and average, on newer releases a third number; older ones leave the unit out."""


def parse_tegrastats(line: str) -> tuple[Reading, ...]:
    """What one line says: memory (MB), loads (%), clock of the GPU (MHz), temperatures (C), powers (mW)."""
    found = [(match[1].lower(), float(match[2]), "MB") for match in _MEMORY.finditer(line)]
    if (cores := _CORES.search(line)) is not None:
        loads = [int(match[1]) for part in cores[1].split(",") if (match := re.match(r"([0-9]{1,3})%", part.strip()))]
        if loads:  # a core that is off says `off`
            found.append(("cpu", round(sum(loads) / len(loads), 1), "%"))
    names = {"EMC": "memory bus", "GR3D": "gpu"}
    found += [(names[match[1]], float(match[2]), "%") for match in _LOAD.finditer(line)]
    if (clock := _CLOCK.search(line)) is not None:
        found.append(("gpu", float(clock[1]), "MHz"))
    for match in _HEAT.finditer(line):
        # A block that is switched off reads -256; the power controller's value is a constant.
        if COLDEST_C <= float(match[2]) <= HOTTEST_C and match[1].upper() != "PMIC":
            found.append((match[1], float(match[2]), "C"))
    found += [(match[1], float(match[2]), "mW") for match in _POWER.finditer(line)]
    return tuple(Reading(name, value, unit, TEGRASTATS[0]) for name, value, unit in found)
