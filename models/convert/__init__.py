"""Conversion of packs into the graphs that engines run: `prepare` does it once and keeps the result."""

from __future__ import annotations

from models.convert.artefact import Artefact
from models.convert.prepare import prepare

__all__ = ["Artefact", "prepare"]
