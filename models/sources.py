"""Where a pack's files can be had: a registry's wheel, the model's own address, a folder, or a library Wren has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StringConstraints

__all__ = [
    "FileName",
    "FolderSource",
    "LibrarySource",
    "PackFile",
    "RegistryPackage",
    "Row",
    "Sha256",
    "Source",
    "UrlSource",
]

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# No separator and no leading dot: a file of a pack cannot leave the pack's folder, nor hide in it.
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$", max_length=100)]
HttpsUrl = Annotated[str, StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:\d+)?/[^\s#]*$", max_length=500)]


class Row(BaseModel):
    """A row of the catalogue: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PackFile(Row):
    """One file of a pack, as it lies in the store."""

    name: FileName
    size: PositiveInt
    """Bytes."""
    sha256: Sha256


class RegistryPackage(Row):
    """A wheel in the Python package registry the user's pip is set up for; fetched as data, never imported."""

    kind: Literal["registry-package"]
    distribution: str
    version: str
    wheel: str
    """File name of the wheel; its tags say what to ask for (see `platform`)."""
    size: PositiveInt
    """Bytes of the wheel."""
    sha256: Sha256
    members: dict[FileName, str]
    """File of the pack -> path of the member inside the wheel."""

    @property
    def platform(self) -> str | None:
        """Platform tag to ask for, whatever machine this is; None for a wheel that fits all."""
        tag = self.wheel.removesuffix(".whl").rsplit("-", 1)[-1]
        return None if tag == "any" else tag

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


class UrlSource(Row):
    """The model's own address: one file a URL, HTTPS only."""

    kind: Literal["url"]
    urls: dict[FileName, HttpsUrl]
    """File of the pack -> address."""
    max_bytes: PositiveInt
    """No file may be larger, whatever the server says."""

    def __str__(self) -> str:
        return next(iter(self.urls.values())).split("/")[2]


class FolderSource(Row):
    """A folder that holds the pack's files under their own names."""

    kind: Literal["folder"]
    path: str

    def __str__(self) -> str:
        return self.path


class LibrarySource(Row):
    """A model inside an ordinary dependency of Wren: nothing to fetch."""

    kind: Literal["library"]
    distribution: str
    resource: str
    """Name of the model inside the library."""

    def __str__(self) -> str:
        return self.distribution


Source = Annotated[RegistryPackage | UrlSource | FolderSource | LibrarySource, Field(discriminator="kind")]
