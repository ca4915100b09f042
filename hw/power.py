"""Power: what the sensors say, and what a person may change so that the machine answers sooner or stays cooler.

Nothing is changed here. Advice is text, with the command that would follow it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hw.errors import UnreadableError
from hw.probe.commands import Runner
from hw.probe.machine import Machine
from hw.probe.root import Root, printable
from hw.tegrastats import TEGRASTATS, parse_tegrastats
from hw.thermal import HOTTEST_C, Reading, read_zones

__all__ = ["PowerAdvice", "PowerMode", "PowerState", "advise_power", "read_power", "read_sensors"]

MODES: Final = "etc/nvpmodel.conf"
HWMON: Final = "sys/class/hwmon"
CPUFREQ: Final = "sys/devices/system/cpu/cpufreq"
_MODE: Final = re.compile(r"^<\s*POWER_MODEL\s+ID=([0-9]+)\s+NAME=(\S+)\s*>", re.MULTILINE)
_SENSOR: Final = re.compile(r"(temp|in|curr|power)([0-9]+)_input")
_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "temp": ("C", 1e-3),
    "in": ("mV", 1.0),
    "curr": ("mA", 1.0),
    "power": ("mW", 1e-3),
}
"""Kernel documentation, hwmon/sysfs-interface: milli-units, but power in microwatts."""
_SETS_ITS_OWN_CLOCK: Final = ("intel_pstate", "amd-pstate-epp", "amd-pstate")
"""Drivers under which `powersave` means that the processor chooses."""


@dataclass(frozen=True, slots=True)
class PowerMode:
    """One of nvpmodel's modes."""

    id: int
    name: str

    @property
    def rank(self) -> float:
        """To compare by: watts, and MAXN above all (MAXN_SUPER above that; on a TX2 MAXP, then MAXQ below it)."""
        for word, rank in (("MAXN_SUPER", math.inf), ("MAXN", 1e6), ("MAXP", 1e5), ("MAXQ", 1e4)):
            if word in self.name.upper():
                return rank
        watts = re.search(r"([0-9]+)W", self.name)
        return float(watts[1]) if watts is not None else 0.0


@dataclass(frozen=True, slots=True)
class PowerState:
    """What can be set about power, as it is now."""

    modes: tuple[PowerMode, ...]
    """nvpmodel's, in the order of their numbers."""
    drivers: Mapping[str, str]
    """CPU frequency policy -> driver."""
    under_voltage: bool | None
    """A Raspberry Pi's own alarm."""


@dataclass(frozen=True, slots=True)
class PowerAdvice:
    """Something that a person may do."""

    text: str
    command: str | None = None


def read_power(root: Root) -> PowerState:
    """Modes, drivers and alarms under a root; never raises."""
    try:
        modes = {int(match[1]): match[2] for match in _MODE.finditer(root.text(MODES))}
    except (UnreadableError, ValueError):
        modes = {}
    drivers = {}
    for policy in _names(root, CPUFREQ):
        try:
            drivers[policy] = printable(root.value(f"{CPUFREQ}/{policy}/scaling_driver"))
        except UnreadableError:
            continue  # not a policy, or one without a driver to name
    known = tuple(PowerMode(number, printable(name)) for number, name in sorted(modes.items()))
    return PowerState(known, drivers, _under_voltage(root))


def advise_power(machine: Machine, state: PowerState) -> tuple[PowerAdvice, ...]:
    """What would make this machine answer sooner; most worthwhile first. Pure."""
    found = []
    if state.under_voltage:
        found.append(
            PowerAdvice("the supply gives too little voltage, and the processor slows down: use a stronger one")
        )
    if machine.throttled:
        found.append(PowerAdvice("the machine is slowing itself down to cool: see to the fan, the dust and the sun"))
    found += _mode_advice(machine, state)
    found += _governor_advice(machine, state)
    if machine.is_jetson:
        found.append(
            PowerAdvice(
                "jetson_clocks holds every clock at its highest, and so keeps an appliance warm that waits nearly "
                "always: worth a try only where the first reply after a pause comes late"
            )
        )
    return tuple(found)


def read_sensors(root: Root, runner: Runner, machine: Machine) -> tuple[Reading, ...]:
    """Every reading: thermal zones, hwmon (volts, amperes, watts), and on a Jetson tegrastats, which takes a second."""
    found = [*read_zones(root).readings, *_hwmon(root)]
    if machine.is_jetson:
        lines = [line for line in runner.run(*TEGRASTATS, timeout_s=5.0, lines=1).stdout.splitlines() if line.strip()]
        if lines:
            found += parse_tegrastats(lines[0])
    return tuple(found)


def _mode_advice(machine: Machine, state: PowerState) -> list[PowerAdvice]:
    if machine.power_mode is None:
        return []
    now = PowerMode(-1, machine.power_mode)
    best = max(state.modes, key=lambda mode: (mode.rank, -mode.id), default=None)
    if best is not None and best.rank > now.rank:
        return [
            PowerAdvice(
                f"the power mode is {now.name}; {best.name} lets it run faster, warmer, and with more current",
                f"sudo nvpmodel -m {best.id}",
            )
        ]
    if best is None and "MAXN" not in now.name.upper():
        # Numbers of modes differ from board to board: without their list none is named.
        return [
            PowerAdvice(
                f"the power mode is {now.name}; one with more watts, if there is one, lets it run faster and warmer",
                "nvpmodel -p --verbose",
            )
        ]
    return []


def _governor_advice(machine: Machine, state: PowerState) -> list[PowerAdvice]:
    slow = [
        policy
        for policy, governor in (machine.governors or {}).items()
        if governor == "powersave" and state.drivers.get(policy) not in _SETS_ITS_OWN_CLOCK
    ]
    if not slow:
        return []
    return [
        PowerAdvice(
            f"the processor is kept at its lowest clock (governor powersave of {', '.join(slow)}); schedutil raises it "
            "while there is work",
            f"echo schedutil | sudo tee /{CPUFREQ}/policy*/scaling_governor",
        )
    ]


def _hwmon(root: Root) -> list[Reading]:
    found = []
    for chip in _names(root, HWMON):
        folder = f"{HWMON}/{chip}"
        try:
            label = printable(root.value(f"{folder}/name"))
            files = root.names(folder)
        except UnreadableError:
            continue  # a chip without a name or files has no readings
        for file in files:
            match = _SENSOR.fullmatch(file)
            if match is None:
                continue
            kind, number = match[1], match[2]
            unit, scale = _UNITS[kind]
            try:
                text = root.value(f"{folder}/{file}")
                value = int(text) * scale if re.fullmatch(r"-?[0-9]{1,12}", text) else math.nan
            except UnreadableError:
                continue  # a sensor that is off
            if math.isfinite(value) and not (unit == "C" and abs(value) > HOTTEST_C):
                found.append(Reading(_label(root, folder, kind, number, label), value, unit, f"{folder}/{file}"))
    return found


def _label(root: Root, folder: str, kind: str, number: str, chip: str) -> str:
    try:
        return f"{chip} {printable(root.value(f'{folder}/{kind}{number}_label'))}"
    except UnreadableError:
        return f"{chip} {kind}{number}"


def _under_voltage(root: Root) -> bool | None:
    for chip in _names(root, HWMON):
        try:
            if root.value(f"{HWMON}/{chip}/name") == "rpi_volt":
                return root.value(f"{HWMON}/{chip}/in0_lcrit_alarm") != "0"
        except UnreadableError:
            continue  # not this chip
    return None


def _names(root: Root, folder: str) -> Sequence[str]:
    try:
        return root.names(folder)
    except UnreadableError:
        return ()
