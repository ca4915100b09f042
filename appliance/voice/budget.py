"""What guesses may cost: a share of one core, paid in advance for a moment and no longer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SpeculationBudget", "SpeculationSettings"]


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """Bounds of the work that is done before it is wanted."""

    share: float = 0.5
    """Of one core, over time; 0 turns early guesses off (a silence of `sure_s` still starts recognition). Partials
    are bounded by a share of their own, and count here too."""
    burst_s: float = 1.0
    """Seconds of work that may be spent at once after a rest."""
    sure_s: float = 0.2
    """A silence as long as this is recognised whatever the budget says: most often it is the end."""


class SpeculationBudget:
    """A bucket of seconds of work that fills with time and empties with work. Pure; times on any one clock."""

    def __init__(self, settings: SpeculationSettings = SpeculationSettings()) -> None:
        self._settings = settings
        self._credit_s = settings.burst_s if settings.share > 0.0 else 0.0
        self._at_s: float | None = None

    def allows(self, now_s: float, part: float = 1.0) -> bool:
        """Whether more may be started. What it costs is known only afterwards, so the bucket may go below empty.

        `part` of the share, 0..1, is what heat and strain leave since the last call: with 0, nothing may.
        """
        settings = self._settings
        if self._at_s is not None:
            gained_s = part * settings.share * max(0.0, now_s - self._at_s)
            self._credit_s = min(settings.burst_s, self._credit_s + gained_s)
        self._at_s = now_s
        return part > 0.0 and self._credit_s > 0.0

    def spend(self, cost_s: float) -> None:
        """Seconds of work that were done."""
        self._credit_s -= cost_s
