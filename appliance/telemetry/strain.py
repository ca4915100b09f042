"""How hard each stage works, and how far Wren steps down for it: fast down, slowly up, never to and fro. Pure.

A stage reports its real-time factor (compute time / time of the sound it was for) and its queue age (how late it came
to it). Both are weighted exponentially: a worse report counts more than a better one. What the steps of the ladder
are is not known here: only which stages each of them relieves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["BOUNDS", "Bounds", "Load", "StrainMonitor", "StrainSettings"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a stage is strained, and when it is calm again. Between the two, nothing changes."""

    rtf: float
    age_s: float
    calm: float = 0.7
    """Share of either below which the stage has headroom."""


BOUNDS: Final[Mapping[str, Bounds]] = {
    # What runs with every frame must leave room for all else.
    "wake": Bounds(0.25, 0.15),
    "vad": Bounds(0.25, 0.15),
    # People notice an answer that comes half a second later; waiting for another's recognition counts too.
    "recognition": Bounds(0.6, 0.4),
    "intent": Bounds(0.3, 0.4),
    # From 1 on a reply has gaps; the rest is for the jitter of a busy machine.
    "synthesis": Bounds(0.7, 0.4),
    # Here the age is how late a piece comes for the one before it, nearness included: one gap is one too many.
    "playback": Bounds(0.3, 0.01),
}


@dataclass(frozen=True, slots=True)
class StrainSettings:
    """Times and weights of the walk."""

    rise: float = 0.5
    """Weight of a report that is worse than what is known."""
    fall: float = 0.2
    """Weight of one that is better."""
    settle_s: float = 1.0
    """After a step, reports are still about the time before it."""
    calm_s: float = 20.0
    """Headroom for so long leads one step up."""
    longest_calm_s: float = 300.0
    relapse_s: float = 60.0
    """A step down so soon after one up doubles the headroom asked for, up to the longest."""
    stale_s: float = 30.0
    """What was not used for so long says nothing any more."""


@dataclass(frozen=True, slots=True)
class Load:
    """Of one stage, weighted."""

    rtf: float
    age_s: float
    at_s: float
    """Time of the newest report."""

    def strain(self, bounds: Bounds) -> float:
        """1 is where it begins."""
        return max(self.rtf / bounds.rtf, self.age_s / bounds.age_s)


class StrainMonitor:
    """Which steps of a ladder are taken: the first that helps a strained stage and is not taken yet, then the next; the
    last on the ladder is undone first. Times on any one clock, which must not run backwards."""

    def __init__(
        self,
        helps: Sequence[Collection[str]],
        settings: StrainSettings = StrainSettings(),
        bounds: Mapping[str, Bounds] = BOUNDS,
    ) -> None:
        """`helps` has the stages that each step relieves, from the first step on."""
        self._helps = [frozenset(stages) for stages in helps]
        self._settings = settings
        self._bounds = bounds
        self._evidence: dict[str, Load] = {}
        self._loads: dict[str, Load] = {}
        self.taken: tuple[int, ...] = ()
        """Numbers of the steps that are taken, in the order of the ladder; none is all that Wren can do."""
        self.because: str | None = None
        """Stage that led to the newest step down; None where none is taken."""
        self._changed_s = float("-inf")
        self._risen_s: float | None = None
        self._calm_since_s: float | None = None
        self._calm_needed_s = settings.calm_s

    @property
    def loads(self) -> Mapping[str, Load]:
        """Stage to what is known of it."""
        return dict(self._loads)

    def note(self, stage: str, rtf: float, age_s: float, now_s: float) -> None:
        """A stage has worked."""
        self._loads[stage] = self._weighted(self._loads.get(stage), rtf, age_s, now_s)
        if now_s - self._changed_s >= self._settings.settle_s:
            self._evidence[stage] = self._weighted(self._evidence.get(stage), rtf, age_s, now_s)

    def step(self, now_s: float) -> bool:
        """Whether `taken` has changed; to be asked after reports, and now and then without any."""
        settings = self._settings
        fresh = {name: load for name, load in self._evidence.items() if now_s - load.at_s < settings.stale_s}
        if self._calm_since_s is None:
            self._calm_since_s = now_s
        strains = {name: load.strain(self._bounds[name]) for name, load in fresh.items()}
        if any(strain > self._bounds[name].calm for name, strain in strains.items()):
            self._calm_since_s = now_s
        for name in sorted(strains, key=lambda name: -strains[name]):
            if strains[name] < 1.0:
                break
            found = (n for n, helps in enumerate(self._helps) if name in helps and n not in self.taken)
            deeper = next(found, None)
            if deeper is not None:
                self._down(deeper, name, now_s)
                return True
        if self._risen_s is not None and now_s - self._risen_s > settings.relapse_s:
            self._calm_needed_s = settings.calm_s
        if self.taken and now_s - max(self._calm_since_s, self._changed_s) >= self._calm_needed_s:
            self._up(now_s)
            return True
        return False

    def _down(self, number: int, stage: str, now_s: float) -> None:
        if self._risen_s is not None and now_s - self._risen_s <= self._settings.relapse_s:
            self._calm_needed_s = min(self._settings.longest_calm_s, 2.0 * self._calm_needed_s)
            self._risen_s = None  # one relapse a rise, however many steps it takes
        self.because = stage
        self._change(tuple(sorted((*self.taken, number))), now_s)

    def _up(self, now_s: float) -> None:
        self._risen_s = now_s
        self._change(self.taken[:-1], now_s)
        if not self.taken:
            self.because = None

    def _change(self, taken: tuple[int, ...], now_s: float) -> None:
        self.taken, self._changed_s, self._calm_since_s = taken, now_s, now_s
        self._evidence.clear()

    def _weighted(self, old: Load | None, rtf: float, age_s: float, now_s: float) -> Load:
        if old is None or now_s - old.at_s >= self._settings.stale_s:
            return Load(rtf, age_s, now_s)
        return Load(self._mean(old.rtf, rtf), self._mean(old.age_s, age_s), now_s)

    def _mean(self, old: float, new: float) -> float:
        return old + (self._settings.rise if new > old else self._settings.fall) * (new - old)
