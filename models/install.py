"""Bringing a pack's files into a folder: its sources in order, until one has them all, every byte checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models import files
from models.catalogue import Pack
from models.download import Downloader, Expected
from models.errors import FetchError
from models.fetch import Fetcher
from models.progress import Progress
from models.sources import FolderSource, LibrarySource, PackFile, RegistryPackage, Source, UrlSource

__all__ = ["Installer", "mirror_of", "room_needed"]

_CHUNK = 1 << 20
_MIRROR_MAX_BYTES = 4 << 30
"""Largest file taken from a mirror whose size is not known beforehand."""


def mirror_of(environ: Mapping[str, str] | None = None) -> str | None:
    """`$WREN_MODELS_MIRROR`: a folder or an https address that holds `<pack id>/<file>`; asked before all else."""
    return (os.environ if environ is None else environ).get("WREN_MODELS_MIRROR", "").strip() or None


def room_needed(pack: Pack) -> int:
    """Bytes of disk that fetching takes at most, where that is known."""
    needed = pack.size
    for source in pack.sources:
        if isinstance(source, RegistryPackage):
            # pip downloads into its TMPDIR and then copies to its --dest, both in the scratch folder.
            needed = max(needed, 2 * source.size, source.size + pack.size)
    return needed


@dataclass(frozen=True, slots=True)
class Installer:
    """Fetches from wherever a pack's files can be had."""

    fetcher: Fetcher
    downloader: Downloader
    mirror: str | None

    def install(self, pack: Pack, work: Path, partial: Path, progress: Progress) -> tuple[Path, str]:
        """The pack's files in a folder under `work`, and which source they came from.

        `partial` keeps what was downloaded of a file when the connection was cut. Raises `FetchError` telling of every
        source, `StoreFullError`.
        """
        problems = []
        for number, source in enumerate(self._sources(pack)):
            folder = work / f"pack.{number}"
            folder.mkdir()
            try:
                self._from(source, pack, work, folder, partial, progress)
            except FetchError as error:
                problems.append(str(error))
            else:
                return folder, str(source)
        raise FetchError("; then ".join(problems) or f"{pack.id} has no source to fetch from")

    def _sources(self, pack: Pack) -> list[Source]:
        sources = [s for s in pack.sources if not isinstance(s, LibrarySource)]
        if self.mirror is None:
            return list(sources)
        if "://" in self.mirror:
            base = f"{self.mirror.rstrip('/')}/{pack.id}"
            urls = {name: f"{base}/{name}" for name in _names(pack)}
            # Not validated: the downloader refuses what is not https, with a message for a person.
            return [UrlSource.model_construct(kind="url", urls=urls, max_bytes=_MIRROR_MAX_BYTES), *sources]
        folder = Path(self.mirror).expanduser().absolute() / pack.id
        return [FolderSource(kind="folder", path=str(folder)), *sources]

    def _from(self, source: Source, pack: Pack, work: Path, folder: Path, partial: Path, progress: Progress) -> None:
        if isinstance(source, RegistryPackage):
            wheel = self.fetcher.fetch(source, work, progress)
            if not files.is_whole(wheel, source.size, source.sha256):
                raise FetchError(f"{source.wheel} does not have sha256 {source.sha256}: not used; try again")
            _unpack(wheel, source, pack, folder, progress)
        elif isinstance(source, UrlSource):
            self._download(source, pack, folder, partial, progress)
        elif isinstance(source, FolderSource):
            _copy(source, pack, folder, progress)

    def _download(self, source: UrlSource, pack: Pack, folder: Path, partial: Path, progress: Progress) -> None:
        known = {f.name: f for f in pack.files}
        partial.mkdir(parents=True, exist_ok=True)
        for name in _names(pack):
            file = known.get(name)
            expected = (
                Expected(source.max_bytes)
                if file is None
                else Expected(min(file.size, source.max_bytes), file.size, file.sha256)
            )

            def report(done: int, total: int | None, stage: str = f"download {pack.id} {name}") -> None:
                progress(stage, done, total)

            self.downloader.fetch(source.urls[name], partial / name, expected, report)
        # Moved only when all have come: a later try finds the whole ones where they are.
        for name in _names(pack):
            (partial / name).replace(folder / name)
        files.remove_tree(partial)


def _names(pack: Pack) -> tuple[str, ...]:
    return tuple(f.name for f in pack.files) or pack.unverified


def _copy(source: FolderSource, pack: Pack, folder: Path, progress: Progress) -> None:
    """Take files from a folder. Raises `FetchError` if one is missing or not the one expected."""
    known = {f.name: f for f in pack.files}
    for number, name in enumerate(_names(pack)):
        path = Path(source.path) / name
        try:
            shutil.copyfile(path, folder / name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FetchError(f"{source.path} has no file {name}") from error
        file = known.get(name)
        if file is not None and not files.is_whole(folder / name, file.size, file.sha256):
            raise FetchError(f"{path}: not the file the catalogue names (size or sha256 differs): not used")
        progress(f"copy {pack.id}", number + 1, len(_names(pack)))


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
