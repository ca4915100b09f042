"""How long to wait before the next try, by what went wrong. Pure: no clock, no I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

__all__ = ["FORGET_TAKEOVER_S", "LADDERS", "STEADY_S", "Backoff", "Trouble"]

STEADY_S: Final = 10.0
"""A connection that held for so long was a good one; what ends sooner, again and again, has something against us."""
FORGET_TAKEOVER_S: Final = 600.0
"""After so long in peace, another client with our id counts as gone."""


class Trouble(Enum):
    """Why there is no connection."""

    NETWORK = "network"
    """Nobody answers, or the connection was lost."""
    UNSTABLE = "unstable"
    """The broker ends connections soon after they began, without a reason."""
    BUSY = "busy"
    """The broker says that it cannot just now."""
    REFUSED = "refused"
    """Wrong password, banned, or an id that it does not take: trying again at once would only hammer."""
    CERTIFICATE = "certificate"
    """A certificate or key is missing or not trusted."""
    TAKEN_OVER = "taken-over"
    """Another client came with our id. Two that fight over an id would throw each other out for ever."""


LADDERS: Final[Mapping[Trouble, tuple[float, ...]]] = {
    # A try costs next to nothing, and a home wants its states within seconds of the broker's return.
    Trouble.NETWORK: (0.25, 0.5, 1.0, 2.0, 4.0),
    # A restart or two, or somebody with our id at a broker that does not say so: the third time decides.
    Trouble.UNSTABLE: (0.25, 1.0, 4.0, 15.0, 60.0, 300.0),
    Trouble.BUSY: (5.0, 15.0, 60.0),
    Trouble.REFUSED: (60.0, 120.0, 300.0),
    Trouble.CERTIFICATE: (30.0, 60.0, 300.0),
    # Once may be our own former connection, which a broker that hung finds late.
    Trouble.TAKEN_OVER: (2.0, 120.0, 300.0),
}
"""Seconds to wait after the first, second, ... trouble of a kind; the last one stays."""


class Backoff:
    """Climbs a ladder per kind of trouble; each wait is shortened by chance, by up to a half, so that not everybody
    comes back at once."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._steps: dict[Trouble, int] = {}

    def failed(self, trouble: Trouble) -> float:
        """Something went wrong; gives the seconds to wait."""
        step = self._steps.get(trouble, 0)
        self._steps[trouble] = step + 1
        ladder = LADDERS[trouble]
        return ladder[min(step, len(ladder) - 1)] * (1.0 - 0.5 * self._chance())

    def times(self, trouble: Trouble) -> int:
        """How often in a row."""
        return self._steps.get(trouble, 0)

    def ended(self, trouble: Trouble, held_s: float) -> Trouble:
        """A connection ended after `held_s`: forgives what went before it, or gives the worse name for what ended it.

        Steady is what held much longer than we last waited: two that throw each other out hold for as long as the
        other waits.
        """
        ladder, step = LADDERS[Trouble.UNSTABLE], self._steps.get(Trouble.UNSTABLE, 0)
        waited_s = ladder[min(step, len(ladder)) - 1] if step else 0.0
        if held_s < max(STEADY_S, 4.0 * waited_s):
            return Trouble.UNSTABLE if trouble is Trouble.NETWORK else trouble
        taken = self._steps.get(Trouble.TAKEN_OVER, 0) if held_s < FORGET_TAKEOVER_S else 0
        self._steps = {Trouble.TAKEN_OVER: taken}
        return trouble
