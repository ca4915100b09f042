"""What guards the home: commands to it are carried out only where they were surely heard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from appliance.intent.problems import Problem
from appliance.intent.types import Entity

__all__ = ["guards_home", "too_unsure"]

_NO_WAY_IN: Final = frozenset({"awning", "blind", "curtain", "damper", "shade", "shutter"})
"""Home Assistant's device classes of covers that nobody comes in by. The others are doors, garages, gates and windows;
one that does not say what it is may be any of them."""


def guards_home(entity: Entity) -> bool:
    """Whether somebody could come in by what a wrong command does to it. Alarm panels take no commands here."""
    return entity.domain == "lock" or (entity.domain == "cover" and entity.device_class not in _NO_WAY_IN)


def too_unsure(entities: Iterable[Entity]) -> Problem | None:
    """Why these are left as they are where a command to them was not surely heard; None where none of them guards."""
    names = [entity.name for entity in entities if guards_home(entity)]
    return Problem("unsure", {"names": names}) if names else None
