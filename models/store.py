"""The store: model packs on disk, whole or absent, checked before use, shared by processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from models import files, usage
from models.catalogue import Catalogue, Pack, load_catalogue
from models.download import Downloader
from models.errors import ConsentNeededError, ModelsError, PackCorruptError, PackMissingError
from models.fetch import Fetcher, PipFetcher
from models.install import Installer, mirror_of, room_needed
from models.paths import store_root
from models.pins import forget_pin, pinned, read_pin, write_pin
from models.progress import Progress, silent

__all__ = ["InstalledPack", "Store", "StoreRow"]

LOCK_TIMEOUT_S = 3600.0
"""Another process may be downloading the same pack over a slow line."""
_LOCK_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class InstalledPack:
    """A pack in the store, every file checked when it was opened."""

    pack: Pack
    folder: Path

    def path(self, name: str) -> Path:
        """Path of one of the pack's files. Raises `PackMissingError` if the pack names no such file."""
        if name not in {f.name for f in self.pack.files}:
            raise PackMissingError(f"pack {self.pack.id} has no file {name!r}")
        return self.folder / name


@dataclass(frozen=True, slots=True)
class StoreRow:
    """One line of `wren models list`."""

    pack: Pack
    status: Literal["installed", "missing", "corrupt", "library", "unverified"]
    """`installed` here means present with the right sizes; `Store.open` also checks the checksums. `unverified` means
    missing, and fetched only with consent."""
    folder: Path | None
    bytes_on_disk: int


class Store:
    """Packs under one root. Layout: `packs/<id>/<digest>/`, `artefacts/`, `quantised/`, `pins/`, `partial/`, `locks/`,
    `tmp/`.

    `mirror` (a folder, or an https address) is asked before a pack's own sources; `max_bytes` caps the store. Left
    out, the environment says (`WREN_MODELS_MIRROR`, `WREN_MODELS_MAX_BYTES`).
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        catalogue: Catalogue | None = None,
        fetcher: Fetcher | None = None,
        downloader: Downloader | None = None,
        mirror: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.root = store_root() if root is None else root
        self.catalogue = load_catalogue() if catalogue is None else catalogue
        self.max_bytes = usage.cap_bytes() if max_bytes is None else max_bytes
        self._installer = Installer(
            PipFetcher() if fetcher is None else fetcher,
            Downloader() if downloader is None else downloader,
            mirror_of() if mirror is None else mirror,
        )

    # ---- packs ------------------------------------------------------------------------------------

    def list(self) -> list[StoreRow]:
        """Every pack of the catalogue and how it stands here."""
        return [self._row(pack) for pack in (*self.catalogue.pack, *self.catalogue.extra)]

    def open(self, pack_id: str) -> InstalledPack:
        """The pack, every file's size and checksum verified.

        Raises `CatalogueError` (no such pack), `PackMissingError`, `PackCorruptError`.
        """
        pack = self._fetchable(pack_id)
        folder = self._folder(pack)
        if pack.unverified or not folder.is_dir():
            raise PackMissingError(f"model pack {pack_id} is not in {self.root}; run: wren models fetch {pack_id}")
        if bad := self._bad_file(pack):
            raise PackCorruptError(
                f"model pack {pack_id} is damaged ({bad} in {folder}); run: wren models fetch {pack_id}"
            )
        usage.mark_used(self.root, pack_id)
        return InstalledPack(pack, folder)

    def ensure(self, pack_id: str, progress: Progress = silent, *, consent: bool = False) -> InstalledPack:
        """The pack, fetched first if it is absent or damaged. Several processes may call this at once.

        A pack whose checksums are not known beforehand is fetched only with `consent`; what is seen then is pinned,
        and only that is taken ever after. Raises `FetchError`, `StoreFullError`, `ConsentNeededError`; no pack is
        ever there by halves, but what came of a download that was cut is kept to go on from.
        """
        pack = self._fetchable(pack_id)
        # Asked before the lock is taken: a read-only store that has the pack still serves.
        with contextlib.suppress(PackMissingError, PackCorruptError):
            return self.open(pack_id)
        with self.locked(pack_id, pack.title, progress):
            with contextlib.suppress(PackMissingError, PackCorruptError):
                return self.open(pack_id)
            if pack.unverified and not consent:
                raise ConsentNeededError(
                    f"{pack_id} has not been verified: nobody here has seen its files, so nothing says that what comes "
                    f"is what was meant; run: wren models fetch --consent {pack_id}"
                )
            if not pack.unverified and self._folder(pack).is_dir():
                progress(f"{pack_id} is damaged ({self._bad_file(pack)}): fetching it again", 0, None)
            self._install(pack, progress)
        return self.open(pack_id)

    def remove(self, pack_id: str, *, forget: bool = False) -> None:
        """Remove a pack's files and everything made from them; no error where there are none.

        What was pinned stays, so that the same files are wanted next time, unless `forget`.
        """
        self.catalogue.get(pack_id)
        with self.locked(pack_id, pack_id, silent):
            for kind in ("packs", "artefacts", "quantised", "partial"):
                files.remove_tree(self.root / kind / pack_id)
            if forget:
                forget_pin(self.root, pack_id)

    def make_room(self, needed: int, what: str, progress: Progress = silent) -> None:
        """Evict what has not been used longest until `needed` more bytes fit under the cap. Raises `StoreCapError`."""
        for gone in usage.keep_under_cap(self.root, needed, self.max_bytes, what):
            progress(f"the store is at its cap: removed {gone}", 0, None)

    # ---- for conversions, which keep their results in the same root -----------------------------------

    @contextlib.contextmanager
    def locked(self, pack_id: str, what: str, progress: Progress) -> Iterator[None]:
        """Hold the pack's lock, and clear what killed runs left behind. Raises `ModelsError` after an hour."""
        folder = self.root / "locks"
        with files.disk_errors_named(self.root, 0, what):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{pack_id}.lock", poll_interval=_LOCK_POLL_S)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                progress(f"waiting: another process works on {pack_id}", 0, None)
                try:
                    lock.acquire(timeout=LOCK_TIMEOUT_S)
                except Timeout:
                    raise ModelsError(
                        f"another process has held {lock.lock_file} for an hour; end it and try again"
                    ) from None
        try:
            files.clear_leftovers(self.root / "tmp", pack_id)
            yield
        finally:
            lock.release()

    def scratch(self, pack_id: str) -> contextlib.AbstractContextManager[Path]:
        """A temporary folder on the store's file system, gone afterwards. Use it under the pack's lock."""
        return files.scratch(self.root / "tmp", pack_id)

    # ---- helpers ----------------------------------------------------------------------------------

    def _fetchable(self, pack_id: str) -> Pack:
        pack = self.catalogue.get(pack_id)
        if pack.is_library:
            raise PackMissingError(f"{pack_id} comes with {pack.sources[0]}: there is nothing to fetch")
        return pinned(pack, read_pin(self.root, pack_id)) if pack.unverified else pack

    def _folder(self, pack: Pack) -> Path:
        return self.root / "packs" / pack.id / pack.digest[:16]

    def _bad_file(self, pack: Pack, *, sizes_only: bool = False) -> str | None:
        folder = self._folder(pack)
        for file in pack.files:
            if not files.is_whole(folder / file.name, file.size, None if sizes_only else file.sha256):
                return file.name
        return None

    def _row(self, pack: Pack) -> StoreRow:
        if pack.unverified:
            try:
                pack = pinned(pack, read_pin(self.root, pack.id))
            except PackCorruptError:
                return StoreRow(pack, "corrupt", None, 0)
        folder = self._folder(pack)
        if pack.unverified:
            return StoreRow(pack, "unverified", None, 0)
        if pack.is_library:
            return StoreRow(pack, "library", None, 0)
        if not folder.is_dir():
            return StoreRow(pack, "missing", None, 0)
        on_disk = sum(p.stat().st_size for p in folder.iterdir())
        return StoreRow(pack, "corrupt" if self._bad_file(pack, sizes_only=True) else "installed", folder, on_disk)

    def _install(self, pack: Pack, progress: Progress) -> None:
        needed = room_needed(pack)
        with (
            files.disk_errors_named(self.root, needed, pack.title),
            self.scratch(pack.id) as work,
        ):
            files.require_room(work, needed, pack.title)
            self.make_room(pack.size, pack.title, progress)
            unpacked, source = self._installer.install(pack, work, self.root / "partial" / pack.id, progress)
            if pack.unverified:
                # Its size is known only now.
                self.make_room(sum(p.stat().st_size for p in unpacked.iterdir()), pack.title, progress)
                pack = pinned(pack, write_pin(self.root, pack, unpacked, source))
            target = self._folder(pack)
            files.publish(unpacked, target)
            for other in target.parent.iterdir():
                if other != target:
                    files.remove_tree(other)
