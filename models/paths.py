"""Where packs and artefacts lie on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["DEVICE_STATE", "store_root"]

DEVICE_STATE = Path("/var/lib/wren")
"""The appliance's state folder on a device (systemd's StateDirectory)."""


def store_root(environ: Mapping[str, str] | None = None, device_state: Path = DEVICE_STATE) -> Path:
    """The store's root: `$WREN_MODELS_DIR`, else the device's state folder, else the user's cache."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get("WREN_MODELS_DIR"):
        return Path(chosen).expanduser().absolute()
    if device_state.is_dir() and os.access(device_state, os.W_OK):
        return device_state / "models"
    return user_cache_path("wren") / "models"
