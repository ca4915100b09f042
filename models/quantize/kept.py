"""Where what quantising made lies in the store, and how it is opened: without anything that quantises."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from models import files
from models.convert.artefact import Artefact
from models.errors import PackMissingError
from models.quantize.report import REPORT, QuantiseReport
from models.store import Store

__all__ = ["VERSION", "folder_of", "open_quantised", "tools"]

VERSION: Final = 1
"""Goes up with every change of what comes out."""


def folder_of(store: Store, pack_id: str) -> Path:
    """Where the quantised graphs of the pack's present files belong."""
    key = json.dumps([store.catalogue.get(pack_id).digest, VERSION, tools()], sort_keys=True)
    return store.root / "quantised" / pack_id / hashlib.sha256(key.encode()).hexdigest()[:16]


def open_quantised(store: Store, pack_id: str) -> tuple[Artefact, tuple[QuantiseReport, ...]]:
    """What `quantise` made: `Artefact.path(part, variant)`, and the reports. Makes nothing.

    Raises `PackMissingError`, `PackCorruptError`.
    """
    folder = folder_of(store, pack_id)
    if not folder.is_dir():
        raise PackMissingError(f"{pack_id} has not been quantised yet; run: wren models quantize {pack_id}")
    reports = tuple(QuantiseReport.load(path) for path in sorted(folder.glob(f"*.{REPORT}")))
    return Artefact.load(folder), reports


def tools() -> dict[str, str]:
    """Distribution -> version of everything that has a hand in the result."""
    return {name: files.version_of(name) for name in ("numpy", "onnx", "onnxruntime")}
