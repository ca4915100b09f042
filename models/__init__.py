"""Model packs: what there is, where it lies, what is made of it, and the engines that run it."""

from __future__ import annotations

from models.catalogue import (
    AsrParameters,
    Catalogue,
    Pack,
    TtsParameters,
    VadParameters,
    WakeParameters,
    load_catalogue,
)
from models.errors import ModelsError
from models.progress import Progress, TerminalProgress, silent
from models.store import InstalledPack, Store, StoreRow

__all__ = [
    "AsrParameters",
    "Catalogue",
    "InstalledPack",
    "ModelsError",
    "Pack",
    "Progress",
    "Store",
    "StoreRow",
    "TerminalProgress",
    "TtsParameters",
    "VadParameters",
    "WakeParameters",
    "load_catalogue",
    "silent",
]
