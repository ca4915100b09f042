"""What the settings file says about engines and the model store, as `hw.plan` and `models` take it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.settings import EngineSettings, ModelSettings
    from hw.plan import Overrides
    from models import Store

__all__ = ["engine_overrides", "open_store"]

_TASKS = ("asr", "tts")
"""Tasks that have a choice."""


def engine_overrides(settings: EngineSettings) -> Overrides:
    """What is set by hand; `auto` leaves it to the plan."""
    from hw.plan import Override, Overrides  # whoever wants the store alone (`wren models`) plans nothing

    override = Override(
        backend=None if settings.backend == "auto" else settings.backend,
        precision=None if settings.precision == "auto" else settings.precision,
        threads=None if settings.threads == "auto" else settings.threads,
    )
    tasks = {} if override == Override() else dict.fromkeys(_TASKS, override)
    return Overrides(tasks=tasks, memory_mb=settings.memory_mb)


def open_store(settings: ModelSettings) -> Store:
    """The model store. What the environment says (`WREN_MODELS_MIRROR`, `WREN_MODELS_MAX_BYTES`) goes first."""
    from models import Store

    mirror = None if os.environ.get("WREN_MODELS_MIRROR") else settings.mirror
    capped = settings.max_mb is not None and not os.environ.get("WREN_MODELS_MAX_BYTES")
    return Store(mirror=mirror, max_bytes=settings.max_mb * 1_000_000 if capped and settings.max_mb else None)
