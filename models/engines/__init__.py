"""Engines: one interface (`base`), one module a backend. Backends are imported where they are used."""

from __future__ import annotations

from models.engines.base import HELD_BYTES, Array, Engine, Rewindable, State, StateTensor, Stream

__all__ = ["HELD_BYTES", "Array", "Engine", "Rewindable", "State", "StateTensor", "Stream"]
