"""The store: model packs on disk, whole or absent, checked before use, shared by processes."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from models import files
from models.catalogue import Catalogue, Pack, PackFile, RegistryPackage, load_catalogue
from models.errors import FetchError, ModelsError, PackCorruptError, PackMissingError
from models.fetch import Fetcher, PipFetcher
from models.paths import store_root
from models.progress import Progress, silent

__all__ = ["InstalledPack", "Store", "StoreRow"]

LOCK_TIMEOUT_S = 3600.0
"""Another process may be downloading the same pack over a slow line."""
_LOCK_POLL_S = 0.2
_CHUNK = 1 << 20


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
    status: Literal["installed", "missing", "corrupt", "library"]
    """`installed` here means present with the right sizes; `Store.open` also checks the checksums."""
    folder: Path | None
    bytes_on_disk: int


class Store:
    """Packs under one root. Layout: `packs/<id>/<digest>/`, `artefacts/`, `locks/`, `tmp/`."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        catalogue: Catalogue | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.root = store_root() if root is None else root
        self.catalogue = load_catalogue() if catalogue is None else catalogue
        self._fetcher = PipFetcher() if fetcher is None else fetcher

    # ---- packs ------------------------------------------------------------------------------------

    def list(self) -> list[StoreRow]:
        """Every pack of the catalogue and how it stands here."""
        return [self._row(pack) for pack in self.catalogue.pack]

    def open(self, pack_id: str) -> InstalledPack:
        """The pack, every file's size and checksum verified.

        Raises `CatalogueError` (no such pack), `PackMissingError`, `PackCorruptError`.
        """
        pack = self._fetchable(pack_id)
        folder = self._folder(pack)
        if not folder.is_dir():
            raise PackMissingError(f"model pack {pack_id} is not in {self.root}; run: wren models fetch {pack_id}")
        if bad := self._bad_file(pack):
            raise PackCorruptError(
                f"model pack {pack_id} is damaged ({bad} in {folder}); run: wren models fetch {pack_id}"
            )
        return InstalledPack(pack, folder)

    def ensure(self, pack_id: str, progress: Progress = silent) -> InstalledPack:
        """The pack, fetched first if it is absent or damaged. Several processes may call this at once.

        Raises `FetchError`, `StoreFullError`; nothing half-written is left behind.
        """
        pack = self._fetchable(pack_id)
        # Asked before the lock is taken: a read-only store that has the pack still serves.
        with contextlib.suppress(PackMissingError, PackCorruptError):
            return self.open(pack_id)
        with self.locked(pack_id, pack.title, progress):
            with contextlib.suppress(PackMissingError, PackCorruptError):
                return self.open(pack_id)
            if self._folder(pack).is_dir():
                progress(f"{pack_id} is damaged ({self._bad_file(pack)}): fetching it again", 0, None)
            self._install(pack, progress)
        return self.open(pack_id)

    def remove(self, pack_id: str) -> None:
        """Remove a pack's files and everything made from them; no error where there are none."""
        self.catalogue.get(pack_id)
        with self.locked(pack_id, pack_id, silent):
            for folder in (self.root / "packs" / pack_id, self.root / "artefacts" / pack_id):
                files.remove_tree(folder)

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
            raise PackMissingError(f"{pack_id} comes with {pack.sources[0].distribution}: there is nothing to fetch")
        return pack

    def _folder(self, pack: Pack) -> Path:
        return self.root / "packs" / pack.id / pack.digest[:16]

    def _bad_file(self, pack: Pack, *, sizes_only: bool = False) -> str | None:
        folder = self._folder(pack)
        for file in pack.files:
            if not files.is_whole(folder / file.name, file.size, None if sizes_only else file.sha256):
                return file.name
        return None

    def _row(self, pack: Pack) -> StoreRow:
        folder = self._folder(pack)
        if pack.is_library:
            return StoreRow(pack, "library", None, 0)
        if not folder.is_dir():
            return StoreRow(pack, "missing", None, 0)
        on_disk = sum(p.stat().st_size for p in folder.iterdir())
        return StoreRow(pack, "corrupt" if self._bad_file(pack, sizes_only=True) else "installed", folder, on_disk)

    def _install(self, pack: Pack, progress: Progress) -> None:
        source = next(s for s in pack.sources if isinstance(s, RegistryPackage))
        # pip downloads into its TMPDIR and then copies to its --dest, both in the scratch folder.
        needed = max(2 * source.size, source.size + pack.size)
        with (
            files.disk_errors_named(self.root, needed, pack.title),
            self.scratch(pack.id) as work,
        ):
            files.require_room(work, needed, pack.title)
            wheel = self._fetcher.fetch(source, work, progress)
            if not files.is_whole(wheel, source.size, source.sha256):
                raise FetchError(f"{source.wheel} does not have sha256 {source.sha256}: not used; try again")
            unpacked = work / "pack"
            unpacked.mkdir()
            _unpack(wheel, source, pack, unpacked, progress)
            target = self._folder(pack)
            files.publish(unpacked, target)
            for other in target.parent.iterdir():
                if other != target:
                    files.remove_tree(other)


def _unpack(wheel: Path, source: RegistryPackage, pack: Pack, folder: Path, progress: Progress) -> None:
    """Write the named members, and only those, under the names the catalogue gives them."""
    stage, done = f"unpack {pack.id}", 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in pack.files:
                _unpack_one(archive, source.members[file.name], file, folder / file.name)
                done += file.size
                progress(stage, done, pack.size)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, EOFError) as error:
        raise FetchError(f"{source.wheel} cannot be unpacked: {error}") from error


def _unpack_one(archive: zipfile.ZipFile, member: str, file: PackFile, target: Path) -> None:
    digest, left = hashlib.sha256(), file.size
    with archive.open(member) as packed, target.open("xb") as out:
        # Never more than the catalogue's size is written, whatever the archive's own headers claim.
        while left and (chunk := packed.read(min(left, _CHUNK))):
            digest.update(chunk)
            out.write(chunk)
            left -= len(chunk)
        longer = bool(packed.read(1))
    if left or longer or digest.hexdigest() != file.sha256:
        raise FetchError(f"{member}: not the file the catalogue names (size or sha256 differs): not used")
