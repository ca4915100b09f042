"""Conversion of packs into the graphs that engines run: `prepare` does it once and keeps the result."""

from __future__ import annotations

from models.convert.artefact import Artefact, Manifest
from models.convert.prepare import needs_conversion, open_artefact, prepare

__all__ = ["Artefact", "Manifest", "needs_conversion", "open_artefact", "prepare"]
