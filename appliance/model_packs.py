"""The model packs that Wren runs on, as something to be updated: what is here, what this version's catalogue names."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from appliance.errors import UsageError
from appliance.mqtt.controls import Versions
from models import Progress, Store
from models.errors import ModelsError

__all__ = ["ModelPacks"]

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 30.0
"""Between two looks at the store: the files' sizes, no more; checksums are verified before every use."""


class ModelPacks:
    """Cheap to ask; an installation runs on a thread of its own.

    The newest packs there are are those of the catalogue, which comes with Wren. So there is something to install
    where a pack of it is not in the store, or not whole: somebody removed it, a disk lost it, or a catalogue is newer
    than the store.
    """

    def __init__(self, store: Store, packs: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`packs`: ids of those that Wren needs."""
        self._store, self._packs, self._clock = store, tuple(packs), clock
        digests = "".join(store.catalogue.get(pack).digest for pack in self._packs)
        # Words, not a bare number: Home Assistant must not take one digest for newer than another.
        self._latest = f"catalogue {hashlib.sha256(digests.encode()).hexdigest()[:8]}"
        self._lock = threading.Lock()
        self._absent: tuple[str, ...] = ()
        self._looked_s: float | None = None
        self._percent: float | None = None
        self._busy = False
        self.trouble: str | None = None
        """Why the last installation failed; None where it did not."""

    def versions(self) -> Versions:
        """As of the last look."""
        with self._lock:
            if not self._busy and (self._looked_s is None or self._clock() - self._looked_s >= LOOK_S):
                self._look()
            count = len(self._absent)
            lacking = f", without {count} of {len(self._packs)} packs" if count else ""
            return Versions(self._latest + lacking, self._latest, self._percent, self._busy)

    @property
    def can_install(self) -> bool:
        """Something is to be fetched, or is being fetched."""
        versions = self.versions()
        return versions.installed != versions.latest

    def install(self) -> None:
        """Begin to fetch, verify and convert what is absent; returns at once. Raises `UsageError` where nothing is,
        or where that goes on already."""
        if not self.can_install:
            raise UsageError("all model packs are here, as this version's catalogue has them")
        with self._lock:
            if self._busy:
                raise UsageError("the model packs are being fetched already")
            self._busy, self._percent, self.trouble = True, None, None
        threading.Thread(target=self._install, name="model-packs", daemon=True).start()

    def _look(self) -> None:
        rows = {row.pack.id: row.status for row in self._store.list()}
        self._absent = tuple(pack for pack in self._packs if rows[pack] not in {"installed", "library"})
        self._looked_s = self._clock()

    def _install(self) -> None:
        from models.convert import needs_conversion, prepare

        try:
            for number, pack in enumerate(self._absent):
                self._store.ensure(pack, self._progress(number))
                if needs_conversion(pack):
                    prepare(self._store, pack)
                self._note(number + 1.0)
        except ModelsError as error:
            self.trouble = f"model packs could not be fetched: {error}"
            _LOG.warning("%s", self.trouble)
        except Exception:  # noqa: BLE001 - a thread of its own: nobody else would hear of it
            self.trouble = "model packs could not be fetched; the log says more"
            _LOG.exception("model packs")
        finally:
            with self._lock:
                self._busy, self._percent, self._looked_s = False, None, None

    def _progress(self, number: int) -> Progress:
        def note(stage: str, done: int, total: int | None) -> None:
            self._note(number + (min(1.0, done / total) if total else 0.0))

        return note

    def _note(self, done: float) -> None:
        """`done` packs of those that were absent; stages of one pack begin at nothing again, the whole never does."""
        percent = round(100.0 * done / len(self._absent), 0)
        with self._lock:
            self._percent = max(percent, self._percent or 0.0)
