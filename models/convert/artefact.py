"""What a conversion leaves in the store: files, the record of how they were made, and their checksums."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from models import files
from models.catalogue import FileName, Sha256
from models.errors import ArtefactError, PackCorruptError

__all__ = ["MANIFEST", "Artefact", "ArtefactFile", "Manifest"]

MANIFEST = "artefact.json"


class ArtefactFile(BaseModel):
    """One graph at one precision."""

    model_config = ConfigDict(frozen=True)

    part: str
    precision: str
    name: FileName
    size: PositiveInt
    sha256: Sha256


class Manifest(BaseModel):
    """`artefact.json`: what was made, of what, with what, and how near it is to the original."""

    model_config = ConfigDict(frozen=True)

    pack: str
    recipe_version: int
    tools: dict[str, str]
    """Distribution -> version of everything that has a hand in the result."""
    inputs: dict[str, str]
    """File of the pack -> sha256."""
    files: tuple[ArtefactFile, ...]
    parameters: dict[str, int | float | str]
    """What the conversion found out about driving the model."""
    checks: dict[str, int | float | str]
    """The self-check's figures."""
    seconds: dict[str, float]
    """How long each stage took."""


@dataclass(slots=True)
class Artefact:
    """A converted model, ready for an engine."""

    folder: Path
    manifest: Manifest
    _verified: set[str] = field(default_factory=set)

    @classmethod
    def load(cls, folder: Path) -> Artefact:
        """Read the manifest and check that every file is there in its full size.

        Raises `PackCorruptError` where something is missing or damaged.
        """
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except (OSError, ValidationError) as error:
            raise _damaged(folder.parent.name, folder, MANIFEST) from error
        for file in manifest.files:
            if not files.is_whole(folder / file.name, file.size, None):
                raise _damaged(manifest.pack, folder, file.name)
        return cls(folder, manifest)

    def path(self, part: str, precision: str) -> Path:
        """Path of a graph, its checksum verified the first time it is asked for.

        Raises `ArtefactError` (no such part or precision), `PackCorruptError`.
        """
        for file in self.manifest.files:
            if (file.part, file.precision) == (part, precision):
                self._verify(file)
                return self.folder / file.name
        there = ", ".join(f"{f.part} {f.precision}" for f in self.manifest.files)
        raise ArtefactError(f"{self.manifest.pack} has no {part!r} at {precision!r}; there are: {there}")

    def verify(self) -> None:
        """Check every file's checksum. Raises `PackCorruptError`."""
        for file in self.manifest.files:
            self._verify(file)

    def _verify(self, file: ArtefactFile) -> None:
        if file.name in self._verified:
            return
        if not files.is_whole(self.folder / file.name, file.size, file.sha256):
            raise _damaged(self.manifest.pack, self.folder, file.name)
        self._verified.add(file.name)


def _damaged(pack_id: str, folder: Path, name: str) -> PackCorruptError:
    return PackCorruptError(
        f"converted model {pack_id} is damaged ({name} in {folder}); run: wren models fetch {pack_id}"
    )
