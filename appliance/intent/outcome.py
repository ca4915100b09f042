"""What an understanding comes to: the reply that fits, and the command for the home, if any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.intent.problems import Problem
from appliance.intent.types import Entity, HomeCommand

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Decided, not yet carried out in the home; skills have already done their part."""

    key: str = "default"
    """Which of the intent's reply templates answers it."""
    slots: Mapping[str, object] = field(default_factory=dict)
    """Values for the template besides the understanding's own slots."""
    entities: tuple[Entity, ...] = ()
    """What the reply speaks of; the template's `state` is the first."""
    unmatched: tuple[Entity, ...] = ()
    """Of a question about several things: those for which the answer is no."""
    command: HomeCommand | None = None
    """What the home has to do."""
    problem: Problem | None = None
    """Why nothing is done."""
