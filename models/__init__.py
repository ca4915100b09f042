"""Model packs: what there is, where it lies, what is made of it, and the engines that run it.

Names are looked up when they are first used: an error class alone must not load pydantic and NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOMES: Final = {
    "models.catalogue": (
        *("AsrParameters", "Catalogue", "Pack", "TtsParameters", "VadParameters", "WakeParameters", "load_catalogue"),
    ),
    "models.errors": ("ModelsError",),
    "models.progress": ("Progress", "TerminalProgress", "silent"),
    "models.store": ("InstalledPack", "Store", "StoreRow"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The façade's names (PEP 562)."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'models' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
