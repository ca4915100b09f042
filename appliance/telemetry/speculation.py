"""Whether working ahead of the endpoint pays: hits and waste over all utterances."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from appliance import events
from appliance.events import Event

__all__ = ["SpeculationTotals", "SpeculationWatch"]


@dataclass(frozen=True, slots=True)
class SpeculationTotals:
    """Sums since the start."""

    utterances: int = 0
    """Utterances in which anything was recognised."""
    recognitions: int = 0
    replies: int = 0
    """Replies begun before it was decided to say them."""
    hits: int = 0
    """Utterances answered with one of them."""
    spent_s: float = 0.0
    wasted_s: float = 0.0

    @property
    def waste(self) -> float:
        """Share of the compute that was for nothing, 0..1."""
        return self.wasted_s / self.spent_s if self.spent_s else 0.0


class SpeculationWatch:
    """A listener that sums up `SpeculationEnded`; may be read from any thread."""

    def __init__(self) -> None:
        self._totals = SpeculationTotals()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if not isinstance(event, events.SpeculationEnded) or not event.recognitions:
            return
        with self._lock:
            old = self._totals
            self._totals = replace(
                old,
                utterances=old.utterances + 1,
                recognitions=old.recognitions + event.recognitions,
                replies=old.replies + event.replies,
                hits=old.hits + event.hit,
                spent_s=old.spent_s + event.spent_s,
                wasted_s=old.wasted_s + event.wasted_s,
            )

    @property
    def totals(self) -> SpeculationTotals:
        """As of now."""
        return self._totals
