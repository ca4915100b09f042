"""Replies that are said often, kept ready: bounded by size, the least recently used goes first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from appliance.audio.frame import Samples

__all__ = ["ReplyCache", "ReplyKey"]

DEFAULT_MAX_BYTES: Final = 8 << 20
"""Three minutes of 22.05 kHz speech at 16 bits."""
_SCALE: Final = 32767.0


@dataclass(frozen=True, slots=True)
class ReplyKey:
    """What makes two replies sound the same."""

    text: str
    voice: str
    model_digest: str


class ReplyCache:
    """Thread-safe; holds 16-bit sound, which halves the memory and is what a device plays."""

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[ReplyKey, npt.NDArray[np.int16]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0

    def __contains__(self, key: ReplyKey) -> bool:
        """Whether a reply is held; no use of it."""
        with self._lock:
            return key in self._entries

    def get(self, key: ReplyKey) -> Samples | None:
        """Sound of a reply, shape [n] float32, or None."""
        with self._lock:
            sound = self._entries.get(key)
            if sound is None:
                self.misses += 1
                return None
            self._entries.move_to_end(key)
            self.hits += 1
        return sound.astype(np.float32) / np.float32(_SCALE)

    def put(self, key: ReplyKey, sound: Samples) -> None:
        """Keep a reply; one that is larger than a quarter of the cache is not kept."""
        data = np.rint(np.clip(sound, -1.0, 1.0) * np.float32(_SCALE)).astype(np.int16)
        if data.nbytes * 4 > self._max_bytes:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._bytes += data.nbytes - (old.nbytes if old is not None else 0)
            self._entries[key] = data
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.nbytes

    @property
    def size_bytes(self) -> int:
        """Bytes held now."""
        return self._bytes
