"""Temperatures: readings of the machine's sensors, and when to do less before the machine slows itself down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from hw.errors import UnreadableError
from hw.probe.root import Root, printable

__all__ = ["Heat", "HeatAdvice", "HeatState", "Reading", "Zones", "advise", "read_zones", "step"]

ZONES: Final = "sys/class/thermal"
COLDEST_C: Final = -40.0
HOTTEST_C: Final = 150.0
"""Beyond these a sensor does not measure: Tegra gives -256 for a block that is switched off."""
_DUMMY: Final = re.compile(r"(?i)pmic.*")
"""On older Jetsons the power controller's zone is constantly 50 or 100 degrees: a dummy, not a temperature."""
_SLOWED: Final = re.compile(r"(?i).*(throttle|cpufreq|processor|devfreq|gpu).*")
"""Cooling devices that cool by slowing down, unlike a fan."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sensor says."""

    name: str
    value: float
    unit: str
    """`C`, `mW`, `mV`, `mA`, `%`, `MHz`."""
    source: str
    """File or program."""


@dataclass(frozen=True, slots=True)
class Zones:
    """The thermal zones."""

    readings: tuple[Reading, ...]
    """In the order of the zones' numbers."""
    skipped: tuple[str, ...]
    """Zones without a reading, with the reason."""
    trouble: str | None
    """Why there are no zones at all."""
    limit_c: float | None
    """Lowest temperature at which the kernel begins to slow a zone down (its passive trip point)."""
    slowed: tuple[str, ...] | None
    """Cooling devices that are slowing something down now; None where there are none to ask."""

    @property
    def hottest_c(self) -> float | None:
        """The highest reading."""
        return max((reading.value for reading in self.readings), default=None)


def read_zones(root: Root) -> Zones:
    """Read all thermal zones under a root; never raises."""
    try:
        names = root.names(ZONES)
    except UnreadableError as error:
        return Zones((), (), str(error), None, None)
    readings: dict[str, Reading] = {}
    skipped, limits = [], []
    for number in _numbers(names, "thermal_zone"):
        folder = f"{ZONES}/thermal_zone{number}"
        try:
            name, celsius = _zone(root, folder)
        except UnreadableError as error:
            skipped.append(str(error))
            continue
        name = name if name not in readings else f"{name} ({number})"
        readings[name] = Reading(name, celsius, "C", f"{folder}/temp")
        limits += _passive_trips(root, folder)
    return Zones(tuple(readings.values()), tuple(skipped), None, min(limits, default=None), _slowed(root, names))


class Heat(IntEnum):
    """How far Wren has stepped down."""

    NORMAL = 0
    WARM = 1
    HOT = 2


@dataclass(frozen=True, slots=True)
class HeatAdvice:
    """What to do at a level."""

    max_threads: int | None
    """Threads of an engine at most; None leaves the plan's."""
    speculate: bool
    """Whether to recognise on guesses while somebody still speaks."""
    background: bool
    """Whether to build engines, measure and update."""
    text: str


@dataclass(frozen=True, slots=True)
class HeatState:
    """What `step` remembers between readings."""

    heat: Heat = Heat.NORMAL
    hot_readings: int = 0
    """Readings in a row that were too hot for the level."""
    cool_readings: int = 0
    """Readings in a row that were cool enough for a lower one."""


LIMIT_C: Final = 85.0
"""Assumed where the kernel names no trip point: a Raspberry Pi slows down at 80 to 85, a Jetson at 97 to 99."""
MARGINS_C: Final = {Heat.WARM: 10.0, Heat.HOT: 4.0}
"""Degrees below the limit at which a level begins: before the machine slows itself, which it does in the middle of a
sentence and for everything at once."""
HYSTERESIS_C: Final = 5.0
"""A level ends this much below where it begins, or it would come and go with every sentence."""
UP_AFTER: Final = 2
"""Readings in a row until a level begins: a single one may be a glitch."""
DOWN_AFTER: Final = 6
"""Readings in a row until it ends: cooling shows late."""

_ADVICE: Final[Mapping[Heat, HeatAdvice]] = {
    Heat.NORMAL: HeatAdvice(None, True, True, "cool enough: nothing to do"),
    Heat.WARM: HeatAdvice(
        None, True, False, "warm: engines are not built and nothing is measured or updated until it has cooled"
    ),
    Heat.HOT: HeatAdvice(
        1, False, False, "hot: one thread an engine and no recognising ahead; see to the fan, the dust and the sun"
    ),
}


def advise(heat: Heat) -> HeatAdvice:
    """What to do at that level."""
    return _ADVICE[heat]


def step(state: HeatState, readings: Iterable[Reading], limit_c: float | None = None) -> HeatState:
    """The next state after a round of readings. Without a temperature among them, the level stays.

    Levels rise by as many as the heat asks for and fall one at a time.
    """
    limit = LIMIT_C if limit_c is None else limit_c
    hottest = max((reading.value for reading in readings if reading.unit == "C"), default=None)
    if hottest is None:
        return state
    wanted = max((heat for heat, margin in MARGINS_C.items() if hottest >= limit - margin), default=Heat.NORMAL)
    if wanted > state.heat:
        if state.hot_readings + 1 >= UP_AFTER:
            return HeatState(wanted)
        return replace(state, hot_readings=state.hot_readings + 1, cool_readings=0)
    if state.heat is not Heat.NORMAL and hottest < limit - MARGINS_C[state.heat] - HYSTERESIS_C:
        if state.cool_readings + 1 >= DOWN_AFTER:
            return HeatState(Heat(state.heat - 1))
        return replace(state, hot_readings=0, cool_readings=state.cool_readings + 1)
    return replace(state, hot_readings=0, cool_readings=0)


def celsius(text: str) -> float:
    """A zone's millidegrees. Raises `UnreadableError` where that is no measurement."""
    if not re.fullmatch(r"-?[0-9]{1,7}", text):
        raise UnreadableError(f"“{printable(text)}” is no number of millidegrees")
    value = int(text) / 1000
    if not COLDEST_C <= value <= HOTTEST_C:
        raise UnreadableError(f"{value:g} degrees means that there is no reading")
    return value


def _zone(root: Root, folder: str) -> tuple[str, float]:
    """(name, degrees) of a zone that measures."""
    name = root.value(f"{folder}/type")
    if not name.isprintable() or len(name) > 64:
        raise UnreadableError(f"{folder}/type is no name: “{printable(name)}”")
    if _DUMMY.fullmatch(name):
        raise UnreadableError(f"{folder} ({name}) is a constant, no measurement")
    try:
        return name, celsius(root.value(f"{folder}/temp"))
    except UnreadableError as error:
        raise UnreadableError(f"{folder} ({name}) gives no reading: {error}") from None


def _passive_trips(root: Root, folder: str) -> list[float]:
    found = []
    try:
        names = root.names(folder)
    except UnreadableError:
        return []
    for name in names:
        match = re.fullmatch(r"trip_point_([0-9]+)_type", name)
        try:
            if match is not None and root.value(f"{folder}/{name}") == "passive":
                found.append(celsius(root.value(f"{folder}/trip_point_{match[1]}_temp")))
        except UnreadableError:
            continue  # a trip point that cannot be read limits nothing
    # Some boards have a passive point at or below room temperature to keep a fan turning.
    return [value for value in found if value >= 60]


def _slowed(root: Root, names: Sequence[str]) -> tuple[str, ...] | None:
    """Cooling devices that slow something down and are in use now."""
    found, asked = [], False
    for number in _numbers(names, "cooling_device"):
        folder = f"{ZONES}/cooling_device{number}"
        try:
            kind = printable(root.value(f"{folder}/type"))
            if not _SLOWED.fullmatch(kind) or "fan" in kind.lower():
                continue
            asked = True
            if int(root.value(f"{folder}/cur_state")) > 0:
                found.append(kind)
        except (UnreadableError, ValueError):
            continue  # one that does not answer says nothing either way
    return tuple(found) if asked else None


def _numbers(names: Sequence[str], prefix: str) -> list[int]:
    """Numbers of the entries that are called prefix and a number, in order: 10 after 9."""
    found = [int(match[1]) for name in names if (match := re.fullmatch(rf"{prefix}([0-9]{{1,5}})", name, re.ASCII))]
    return sorted(set(found))
