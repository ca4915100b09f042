"""How loud a room is while nobody speaks in it."""

from __future__ import annotations

from typing import Final

__all__ = ["RISE_DB", "RoomFloor"]

RISE_DB: Final = 0.02
"""A frame of 10 ms: the floor falls at once and rises by 2 dB a second."""


class RoomFloor:
    """Follows the least level of late. Pure."""

    def __init__(self, rise_db: float = RISE_DB) -> None:
        self._rise_db = rise_db
        self.dbfs = 0.0
        """As it is known by now."""

    def follow(self, level_dbfs: float) -> None:
        """Take the level of 10 ms."""
        self.dbfs = min(level_dbfs, self.dbfs + self._rise_db)
