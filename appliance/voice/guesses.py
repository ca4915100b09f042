"""What a session remembers of its guesses: how steady they are, and what was made ahead for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from appliance.intent.types import SlotValue
from appliance.voice.asr.acceptance import Accepted

__all__ = ["Ahead", "Steadiness"]

_STEADY_TIMES: Final = 3
"""Recognitions that must agree before a sentence counts as steady."""


@dataclass(slots=True)
class Ahead:
    """What was done ahead of the decision in one utterance."""

    replies: int = 0
    """Replies begun."""
    cost_s: float = 0.0
    """Compute of their pieces."""
    hit: bool = False
    """What was begun is what was said."""
    late: bool = False
    """What was said had to be begun after the decision."""
    committed: bool = False
    """There was a decision."""


class Steadiness:
    """How long partial recognitions have been giving one and the same whole sentence."""

    def __init__(self) -> None:
        self._meaning: tuple[str, dict[str, SlotValue]] | None = None
        self._since_s = 0.0
        self._times = 0

    def add(self, accepted: Accepted, now_s: float) -> None:
        """A partial was judged."""
        understanding = accepted.understanding
        intent = understanding.intent if accepted.complete else None
        meaning = None if intent is None else (intent, dict(understanding.slots))
        if meaning is None or meaning != self._meaning:
            self._meaning, self._since_s, self._times = meaning, now_s, 0
        self._times += 1

    def lasted_s(self, now_s: float) -> float:
        """Seconds since the first of them; 0 until there are enough."""
        enough = self._meaning is not None and self._times >= _STEADY_TIMES
        return now_s - self._since_s if enough else 0.0
