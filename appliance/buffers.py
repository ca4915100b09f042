"""Buffer sizes that devices were found to stand: tried once a device, remembered by its stable name."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Final

from appliance.audio.blocks import MICROPHONE_BLOCKS, SPEAKER_BLOCKS
from appliance.audio.devices import Kind, find_device
from appliance.audio.probe import probe_block
from appliance.errors import ApplianceError
from models import files

__all__ = ["DEFAULT_BLOCK", "BufferSizes"]

_LOG = logging.getLogger(__name__)

DEFAULT_BLOCK: Final = 256
"""Sample frames of a device buffer where nothing could be tried: not the shortest, but steady on slow machines too."""
_SIZES: Final = frozenset((*MICROPHONE_BLOCKS, *SPEAKER_BLOCKS))


class BufferSizes:
    """A small JSON file: `{"microphone NAME": frames}`. A lost or broken file costs one more trial, nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def of(self, kind: Kind, name: str | None) -> int:
        """Frames for a device (None: the default one); tries it where it is not known yet, which takes seconds."""
        try:
            device = find_device(kind, name)
            key = f"{kind} {device.name}"
            known = self._read()
            if key not in known:
                known[key] = probe_block(device).block
                self._write(known)
                _LOG.info("%s %s takes buffers of %d frames", kind, device.name, known[key])
            return known[key]
        except ApplianceError as error:
            # It is absent or fails: whoever opens it says so, and again when it comes back.
            _LOG.debug("no buffer size tried for the %s: %s", kind, error)
            return DEFAULT_BLOCK

    def keep(self, kind: Kind, device_name: str, block: int) -> None:
        """A device turned out to need larger buffers than it was found to stand; a smaller one is not taken back.
        Any thread."""
        key = f"{kind} {device_name}"
        with self._lock:  # microphone and speaker are both on a machine that is too busy
            known = self._read()
            if block > known.get(key, 0):
                known[key] = block
                self._write(known)

    def _read(self) -> dict[str, int]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(data, dict):
            return {}
        return {key: value for key, value in data.items() if isinstance(value, int) and value in _SIZES}

    def _write(self, known: dict[str, int]) -> None:
        try:
            files.write_whole(self._path, json.dumps(known, indent=1).encode())
        except OSError as error:
            _LOG.warning("%s cannot be written (%s): devices are tried again at the next start", self._path, error)
