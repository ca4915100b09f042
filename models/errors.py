"""Errors of the models package: one base class with a stable code, a few named ones."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ArtefactError",
    "CatalogueError",
    "ConsentNeededError",
    "ConversionError",
    "EngineError",
    "FetchError",
    "ModelsError",
    "PackCorruptError",
    "PackMissingError",
    "QuantisationRefusedError",
    "StoreCapError",
    "StoreFullError",
]


class ModelsError(Exception):
    """Base of every error raised by `models`; the message says what was wrong and what to do.

    `code` is stable and machine-readable; `retry` says whether trying the same again can help.
    """

    code: ClassVar[str] = "models"
    retry: ClassVar[bool] = False


class CatalogueError(ModelsError):
    """The catalogue is malformed, or names no pack of that id."""

    code = "models.catalogue"


class FetchError(ModelsError):
    """A pack could not be downloaded (no network, unknown version, wrong checksum from the source)."""

    code = "models.fetch"
    retry = True


class PackMissingError(ModelsError):
    """A pack or an artefact is needed and is not in the store."""

    code = "models.missing"


class PackCorruptError(ModelsError):
    """A file in the store does not have the size or checksum it was recorded with."""

    code = "models.corrupt"


class StoreFullError(ModelsError):
    """The disk that holds the store has no room."""

    code = "models.full"


class ConversionError(ModelsError):
    """A conversion failed, or its result did not match the original numerically."""

    code = "models.convert"


class ArtefactError(ModelsError):
    """A converted artefact does not have the shape or the files that are asked of it."""

    code = "models.artefact"


class EngineError(ModelsError):
    """An engine could not be made or run; the backend's own text is in the message."""

    code = "models.engine"


class QuantisationRefusedError(ModelsError):
    """A quantised graph has something in it that its backend would refuse; the message names the node."""

    code = "models.quantise"


class ConsentNeededError(ModelsError):
    """A pack's checksums could not be established beforehand; fetching it needs the user's word."""

    code = "models.consent"


class StoreCapError(StoreFullError):
    """The store's own size cap leaves no room, and nothing more may be evicted."""

    code = "models.cap"
