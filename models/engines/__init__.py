"""Engines: one interface (`base`), one module a backend. Backends are imported where they are used."""

from __future__ import annotations

from models.engines.base import Array, Engine, State, StateTensor, Stream

__all__ = ["Array", "Engine", "State", "StateTensor", "Stream"]
