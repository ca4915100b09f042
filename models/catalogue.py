"""The catalogue: which model packs there are, under which licence, where from, and how their models are driven.

The rows are data (`catalogue.toml`, beside this file); this module gives them types and refuses bad ones.
"""

from __future__ import annotations

import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, PositiveInt, StringConstraints, ValidationError, model_validator

from models.engines.base import StateTensor
from models.errors import CatalogueError
from models.sources import (
    FileName,
    FolderSource,
    LibrarySource,
    PackFile,
    RegistryPackage,
    Row,
    Sha256,
    Source,
    UrlSource,
)

__all__ = [
    "AsrParameters",
    "Catalogue",
    "DenoiseParameters",
    "FileName",
    "FolderSource",
    "LaterParameters",
    "LibrarySource",
    "Pack",
    "PackFile",
    "RegistryPackage",
    "Sha256",
    "StateRow",
    "TransducerParameters",
    "TtsParameters",
    "UrlSource",
    "VadParameters",
    "WakeParameters",
    "load_catalogue",
]

PackId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]


class AsrParameters(Row):
    """How a speech recogniser's graphs are driven."""

    task: Literal["asr"]
    rate_hz: PositiveInt
    samples_per_frame: PositiveInt
    """Audio samples an encoder frame."""
    min_samples: PositiveInt
    """Shorter audio gives no frame at all."""
    layers: PositiveInt
    heads: PositiveInt
    head_dim: PositiveInt
    vocabulary: PositiveInt
    begin_token: int
    end_token: int
    max_tokens_per_s: float
    """More tokens than this a second of audio is a repetition loop."""


class VadParameters(Row):
    """How a voice activity detector is driven."""

    task: Literal["vad"]
    rate_hz: PositiveInt
    window_samples: PositiveInt
    """New samples a run."""
    context_samples: int
    """Samples of the window before that are put in front of the new ones (zeros at first)."""
    speech_threshold: float
    """Probability at or above which speech starts."""
    silence_threshold: float
    """Probability below which speech ends."""


class TtsParameters(Row):
    """How a voice is driven."""

    task: Literal["tts"]
    rate_hz: PositiveInt
    hop_samples: PositiveInt
    """Audio samples a latent frame."""
    channels: PositiveInt
    """Channels of a latent frame."""
    noise_scale: float
    length_scale: float
    noise_w: float
    phonemes: str
    """Which phonemes it was trained on: program and voice, as `espeak:en-us`."""
    config: FileName
    """The pack's file that maps phonemes to ids."""


class WakeParameters(Row):
    """How a wake word model is driven."""

    task: Literal["wake"]
    phrase: str
    rate_hz: PositiveInt
    hop_samples: PositiveInt
    probability_cutoff: float
    """Mean probability over the window at which the model's author fires."""
    sliding_window: PositiveInt
    """Probabilities averaged."""


class DenoiseParameters(Row):
    """How a denoiser is driven."""

    task: Literal["denoise"]
    rate_hz: PositiveInt
    window_samples: PositiveInt
    """Samples of a frame."""
    hop_samples: PositiveInt
    """From one frame to the next; what comes out of the frames is added up."""


class TransducerParameters(Row):
    """A streaming transducer that the settings may choose: its own files say how it is driven."""

    task: Literal["asr-transducer"]
    rate_hz: PositiveInt


class LaterParameters(Row):
    """A model that Wren can fetch and does not run yet."""

    task: Literal["not-used-yet"]
    will_be: Literal["asr", "vad", "tts", "wake"]
    family: str
    """What kind of engine it will need, as `streaming transducer`."""
    rate_hz: PositiveInt


Parameters = Annotated[
    AsrParameters
    | TransducerParameters
    | VadParameters
    | TtsParameters
    | WakeParameters
    | DenoiseParameters
    | LaterParameters,
    Field(discriminator="task"),
]
P = TypeVar("P", AsrParameters, VadParameters, TtsParameters, WakeParameters, DenoiseParameters)


class StateRow(Row):
    """Recurrent tensors of one graph; with `count`, `{i}` in the names runs from 0 to count - 1."""

    part: str
    input: str
    output: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    count: PositiveInt | None = None

    def tensors(self) -> tuple[StateTensor, ...]:
        """The row written out."""
        return tuple(
            StateTensor(self.input.format(i=i), self.output.format(i=i), self.shape, self.dtype)
            for i in range(self.count or 1)
        )


class Pack(Row):
    """A model and everything needed to drive it."""

    id: PackId
    title: str
    languages: tuple[str, ...]
    """BCP 47 tags, or `any`."""
    licence: str
    """SPDX expression."""
    caveats: tuple[str, ...] = ()
    """What a user should be told before relying on it."""
    files: tuple[PackFile, ...] = ()
    unverified: tuple[FileName, ...] = ()
    """Files whose size and checksum could not be established when the entry was written. Such a pack is fetched only
    with the user's consent; the store then pins what it saw, and from then on nothing else is taken for it."""
    sources: tuple[Source, ...]
    """Tried in order."""
    parameters: Parameters
    states: tuple[StateRow, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [*(f.name for f in self.files), *self.unverified]
        if len(set(names)) != len(names):
            raise ValueError(f"pack {self.id} names a file twice")
        if self.files and self.unverified:
            raise ValueError(f"pack {self.id}: either all of its files have a checksum, or none")
        if not self.sources:
            raise ValueError(f"pack {self.id} has no source")
        for source in self.sources:
            if isinstance(source, RegistryPackage) and set(source.members) != set(names):
                raise ValueError(f"pack {self.id}: {source.distribution} does not hold exactly the pack's files")
            if isinstance(source, UrlSource) and set(source.urls) != set(names):
                raise ValueError(f"pack {self.id}: {source} does not give exactly the pack's files")
            if isinstance(source, FolderSource) and not Path(source.path).is_absolute():
                raise ValueError(f"pack {self.id}: the folder {source.path} must be given from the root")
        return self

    @property
    def task(self) -> str:
        """`asr`, `vad`, `tts`, `wake` or `denoise`."""
        if isinstance(self.parameters, TransducerParameters):
            return "asr"
        return self.parameters.will_be if isinstance(self.parameters, LaterParameters) else self.parameters.task

    @property
    def used(self) -> bool:
        """False where Wren has no engine for it yet."""
        return not isinstance(self.parameters, LaterParameters)

    @property
    def is_library(self) -> bool:
        """True when the pack comes with an ordinary dependency and there is nothing to fetch."""
        return not self.files and not self.unverified

    @property
    def size(self) -> int:
        """Bytes of all files in the store."""
        return sum(f.size for f in self.files)

    @property
    def digest(self) -> str:
        """Hex digest of the files' names, sizes and checksums: the pack's identity."""
        rows = sorted(f"{f.name} {f.size} {f.sha256}" for f in self.files)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()

    def parameters_as(self, kind: type[P]) -> P:
        """The parameters, typed. Raises `CatalogueError` if the pack is of another task."""
        if not isinstance(self.parameters, kind):
            raise CatalogueError(f"pack {self.id} is for {self.task}; {kind.__name__} were asked of it")
        return self.parameters

    def state_tensors(self, part: str) -> tuple[StateTensor, ...]:
        """Recurrent tensors of the graph `part`; empty where it has none."""
        return tuple(t for row in self.states if row.part == part for t in row.tensors())


class Catalogue(Row):
    """All packs."""

    pack: tuple[Pack, ...]
    """What Wren runs on."""
    extra: tuple[Pack, ...] = ()
    """What a user may fetch besides."""

    @model_validator(mode="after")
    def _unique(self) -> Self:
        ids = [p.id for p in (*self.pack, *self.extra)]
        if len(set(ids)) != len(ids):
            raise ValueError("two packs have the same id")
        return self

    def get(self, pack_id: str) -> Pack:
        """The pack of that id. Raises `CatalogueError` naming those there are."""
        packs = (*self.pack, *self.extra)
        for pack in packs:
            if pack.id == pack_id:
                return pack
        raise CatalogueError(f"no model pack {pack_id!r}; there are: {', '.join(p.id for p in packs)}")


CATALOGUE = Path(__file__).with_name("catalogue.toml")


@cache
def load_catalogue(path: Path = CATALOGUE) -> Catalogue:
    """Read and check a catalogue. Raises `CatalogueError` with the first thing that is wrong."""
    try:
        return Catalogue.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"catalogue {path} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise CatalogueError(f"catalogue {path}: {where}: {first['msg']}") from error
