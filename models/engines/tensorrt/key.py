"""What an engine file depends on, and the key that follows: change any of it, and another engine is wanted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.engines.tensorrt.profiles import Profile

__all__ = ["BuildSettings", "EngineKey", "ProfileData", "profile_data"]

ProfileData = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]
"""A profile as JSON has it: input -> least, usual, most."""

_KEY_DIGITS = 16


class BuildSettings(BaseModel):
    """How TensorRT is asked to build. All of it is in the key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workspace_mib: int = 512
    """Memory that a kernel may ask for, at build and at run time."""
    optimization_level: int = 3
    """TensorRT's own default; 5 tries everything and takes many times as long."""
    version_compatible: bool = False
    """Loads in later minor versions as well, somewhat slower, and brings host code with it."""
    ampere_plus: bool = False
    """Runs on any GPU from Ampere on, slower. Never on a Jetson's, which are not part of it."""
    compute_capabilities: tuple[str, ...] = ()
    """TensorRT-RTX only: build for these (`SM86`) instead of for the GPU that is there."""


class EngineKey(BaseModel):
    """Everything that decides whether an engine file can be used here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    onnx_sha256: str
    flavour: Literal["tensorrt", "tensorrt_rtx"]
    tensorrt: str
    """Full version, as `10.3.0`."""
    cuda: str | None
    sm: str | None
    """Compute capability of the GPU, as `8.7`."""
    gpu: str | None
    """Its name: kernels are timed on one, and two of one capability differ."""
    module: str | None
    """Of a Jetson, as `p3767-0005`: memory and clocks differ."""
    l4t: str | None
    profiles: tuple[ProfileData, ...]
    settings: BuildSettings

    def takes(self, other: EngineKey) -> bool:
        """Whether an engine of another key serves here as well: built with other settings, or by an older minor
        version if it was built to be taken by later ones."""
        alike = self.model_copy(update={"settings": other.settings, "tensorrt": other.tensorrt}) == other
        if not alike or self.tensorrt == other.tensorrt:
            return alike
        ours, theirs = (tuple(int(n) for n in k.tensorrt.split(".") if n.isdigit()) for k in (self, other))
        return other.settings.version_compatible and ours[:1] == theirs[:1] and theirs <= ours

    @property
    def digest(self) -> str:
        """The engine's name in the cache."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def profile_data(profiles: Sequence[Profile]) -> tuple[ProfileData, ...]:
    """Profiles ready for JSON."""
    return tuple({n: (s.least, s.usual, s.most) for n, s in sorted(p.items())} for p in profiles)
