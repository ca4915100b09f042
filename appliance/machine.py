"""This machine's facts, probed once a boot: a start must not wait for programs that say the same as an hour ago."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from hw.cpu import usable_cores
from hw.probe import Machine, probe
from models import Store, files

__all__ = ["this_machine"]

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
VERSION: Final = 2
"""Goes up when the probe learns something new."""


@dataclass(frozen=True, slots=True)
class _Kept:
    key: str
    machine: Machine


_KEPT: Final = TypeAdapter(_Kept)


def this_machine(store: Store, *, fresh: bool = False) -> Machine:
    """What this machine is; from the last probe of this boot and these libraries, unless `fresh`.

    From a kept probe, temperatures and free memory are None. Blocks for half a second, on a GPU's first use for some.
    """
    path, key = store.root / "plans" / "machine.json", _key()
    if not fresh and key is not None:
        with contextlib.suppress(OSError, ValidationError):  # never kept, damaged, or of another version
            kept = _KEPT.validate_json(path.read_bytes())
            if kept.key == key:
                # An hour makes these wrong; whoever wants them asks the probe itself, or the sensors.
                return replace(kept.machine, ram_available_kib=None, thermal=None, max_temp_c=None, throttled=None)
    machine = probe()
    if key is not None:
        with contextlib.suppress(OSError):  # a store that cannot be written: probed again next time
            files.write_whole(path, _KEPT.dump_json(_Kept(key, machine)))
    return machine


def _key() -> str | None:
    """What the facts hang on: the boot (drivers, cards, power mode), our libraries, our share of the cores."""
    try:
        boot = BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None
    libraries = {}
    for name in ("onnxruntime", "onnxruntime-gpu", "tensorrt"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    facts = [VERSION, boot, sys.prefix, sys.version, libraries, usable_cores()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
