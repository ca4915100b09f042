"""Errors of the models package: one base class with a stable code, a few named ones."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ArtefactError",
    "CatalogueError",
    "ConsentNeededError",
    "ConversionError",
    "DeviceError",
    "DeviceMemoryError",
    "EngineBuildError",
    "EngineCancelledError",
    "EngineCheckError",
    "EngineError",
    "EngineHungError",
    "EnginePlanError",
    "EngineRefusedError",
    "FetchError",
    "ModelsError",
    "PackCorruptError",
    "PackMissingError",
    "ProfileError",
    "QuantisationRefusedError",
    "StoreCapError",
    "StoreFullError",
    "TensorRtMissingError",
    "UncoveredShapeError",
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


class TensorRtMissingError(EngineError):
    """TensorRT, or what it needs of CUDA, is not on this machine; the message says how to get it."""

    code = "models.tensorrt_missing"


class EngineRefusedError(EngineError):
    """TensorRT's parser or builder refuses a graph; its own reason is in the message. The same graph, asked again of
    the same version, is refused again."""

    code = "models.engine_refused"


class ProfileError(EngineError):
    """An optimisation profile is missing, inverted or names what the graph does not have."""

    code = "models.profile"


class UncoveredShapeError(EngineError):
    """No profile covers a run's shapes: the engine is as good as before, and this run is for the rung below."""

    code = "models.uncovered_shape"


class EngineBuildError(EngineError):
    """A build ended without an engine and without a refusal: killed, out of memory, out of time."""

    code = "models.engine_build"
    retry = True


class EngineCancelledError(EngineBuildError):
    """A build was cancelled by whoever had asked for it."""

    code = "models.engine_cancelled"


class EnginePlanError(EngineError):
    """A built engine cannot be loaded: made by another version or for another device, or damaged."""

    code = "models.engine_plan"


class EngineCheckError(EngineError):
    """A built engine did not compute what the rung below computes; it is not used."""

    code = "models.engine_check"


class DeviceError(EngineError):
    """A CUDA call failed; CUDA's name for it is in the message."""

    code = "models.device"


class DeviceMemoryError(DeviceError):
    """The device has no memory left, or the engines' own bound has been reached."""

    code = "models.device_memory"
    retry = True


class UnsupportedOperatorError(EngineError):
    """A graph has an operator, or a form of one, that a backend of our own does not know; the message names it."""

    code = "models.operator"


class EngineHungError(EngineError):
    """An engine did not come back within its time limit; it is not touched again."""

    code = "models.hung"


class StreamLostError(EngineError):
    """An engine failed and took a stream's state with it: what is being heard or said must be begun again."""

    code = "models.stream"
    retry = True


class QuantisationRefusedError(ModelsError):
    """A quantised graph has something in it that its backend would refuse; the message names the node."""

    code = "models.quantise"


class ConsentNeededError(ModelsError):
    """A pack's checksums could not be established beforehand; fetching it needs the user's word."""

    code = "models.consent"


class StoreCapError(StoreFullError):
    """The store's own size cap leaves no room, and nothing more may be evicted."""

    code = "models.cap"
