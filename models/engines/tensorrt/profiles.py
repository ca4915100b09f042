"""Optimisation profiles: the shapes an engine is built for, a row for each graph of ours.

A run takes the first profile that covers its shapes, so the rows go from narrow to wide: what is usual gets kernels and
memory of its own size, what is rare still runs, and nothing is built at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.errors import ProfileError, UncoveredShapeError

__all__ = ["GraphProfiles", "Padding", "Profile", "Span", "covering", "profiles_for", "validate"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Shapes of one input."""

    least: Shape
    usual: Shape
    most: Shape

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether a shape lies between least and most."""
        return len(shape) == len(self.least) and all(
            low <= n <= high for low, n, high in zip(self.least, shape, self.most, strict=True)
        )


Profile = Mapping[str, Span]
"""Input -> shapes; inputs of a fixed shape may be left out."""


@dataclass(frozen=True, slots=True)
class Padding:
    """A free dimension that comes in fixed sizes only: runs are padded with zeros behind, results cut.

    Exact for graphs with a mask, whose zeros are what lies beyond the end.
    """

    axis: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphProfiles:
    """How one graph is built."""

    profiles: tuple[Profile, ...]
    padding: Padding | None = None


def profiles_for(pack_id: str, part: str) -> GraphProfiles:
    """The row of a graph. Raises `ProfileError` for one that TensorRT is not meant to run."""
    row = _TABLE.get((pack_id, part))
    if row is None:
        known = ", ".join(f"{p} {q}" for p, q in _TABLE)
        raise ProfileError(f"there is no profile for {part} of {pack_id}; there are: {known}")
    return row


def validate(profiles: Sequence[Profile], inputs: Mapping[str, Sequence[int]]) -> None:
    """Raise `ProfileError` unless the profiles fit a graph.

    `inputs`: name -> dimensions as the graph declares them, -1 for a free one. Every input with a free dimension needs
    shapes in every profile; least <= usual <= most; fixed dimensions are as declared; no other names.
    """
    free = {name for name, dims in inputs.items() if -1 in dims}
    if free and not profiles:
        raise ProfileError(f"no profile, but these inputs have free dimensions: {', '.join(sorted(free))}")
    for number, profile in enumerate(profiles):
        if unknown := sorted(profile.keys() - inputs.keys()):
            raise ProfileError(
                f"profile {number} names {', '.join(unknown)}; the graph's inputs are {', '.join(inputs)}"
            )
        if missing := sorted(free - profile.keys()):
            raise ProfileError(f"profile {number} has no shapes for {', '.join(missing)}, whose dimensions are free")
        for name, span in profile.items():
            _check(number, name, span, inputs[name])


def covering(profiles: Sequence[Profile], shapes: Mapping[str, Sequence[int]]) -> int:
    """Index of the first profile that covers the shapes. `UncoveredShapeError` says what the widest takes."""
    for number, profile in enumerate(profiles):
        if all(span.covers(shapes[name]) for name, span in profile.items()):
            return number
    outside = [
        f"{name} {list(shapes[name])} (least {list(span.least)}, most {list(span.most)})"
        for name, span in (profiles[-1] if profiles else {}).items()
        if not span.covers(shapes[name])
    ]
    raise UncoveredShapeError(f"no profile covers {'; '.join(outside) or 'these shapes together'}")


def _check(number: int, name: str, span: Span, dims: Sequence[int]) -> None:
    where = f"profile {number}, input {name}"
    for shape in (span.least, span.usual, span.most):
        if len(shape) != len(dims):
            raise ProfileError(f"{where}: {list(shape)} has {len(shape)} dimensions, the graph's input {len(dims)}")
        if any(fixed not in (-1, n) for fixed, n in zip(dims, shape, strict=True)):
            raise ProfileError(f"{where}: {list(shape)} does not fit the graph's {list(dims)}")
    for low, usual, high in zip(span.least, span.usual, span.most, strict=True):
        if not 0 <= low <= usual <= high:
            raise ProfileError(
                f"{where}: least {list(span.least)}, usual {list(span.usual)}, most {list(span.most)} are not in order"
            )


# ---- the table ------------------------------------------------------------------------------------

_LAYERS: Final = 8
_HEADS: Final = 8
_HEAD_DIM: Final = 52
_LATENT: Final = 192
"""Channels of the voice's latent frames."""


def _span(least: Shape, usual: Shape, most: Shape) -> Span:
    return Span(least, usual, most)


def _audio(least: int, usual: int, most: int) -> Profile:
    return {"audio": _span((1, least), (1, usual), (1, most))}


def _decoding(batch: tuple[int, int, int], tokens: tuple[int, int, int], longest: int = 199) -> Profile:
    """`batch` rows of `tokens` new tokens on a past of up to `longest`; 199 are 30 s of speech."""
    past, frames = (0, 16, longest), (1, 146, 1280)
    rows: dict[str, Span] = {
        "ids": _span(*((b, n) for b, n in zip(batch, tokens, strict=True))),
        "rows": _span((batch[0],), (batch[1],), (batch[2],)),
    }
    for i in range(_LAYERS):
        for c in "kv":
            rows[f"past_{c}.{i}"] = _span(*((b, _HEADS, t, _HEAD_DIM) for b, t in zip(batch, past, strict=True)))
            rows[f"cross_{c}.{i}"] = _span(*((1, _HEADS, f, _HEAD_DIM) for f in frames))
    return rows


def _frames(name: str, channels: int, least: int, usual: int, most: int) -> dict[str, Span]:
    return {name: _span((1, channels, least), (1, channels, usual), (1, channels, most))}


def _masked(frames: int) -> Profile:
    return {**_frames("latent", _LATENT, *(frames,) * 3), **_frames("mask", 1, *(frames,) * 3)}


_TABLE: Final[Mapping[tuple[str, str], GraphProfiles]] = {
    # A command with its half second of silence behind: up to 4 s, 10 s, 30.5 s (the recogniser's cap). The least is
    # what the convolutions stand on.
    ("moonshine-base-en", "encoder"): GraphProfiles(
        (_audio(895, 48_000, 72_000), _audio(895, 96_000, 168_000), _audio(895, 240_000, 488_000))
    ),
    # One token after the other, in commands of up to 9 s (which keeps a session's state small) and longer; several at
    # once; beams. Past and frames: 6.5 tokens and 41.7 frames a second.
    ("moonshine-base-en", "decoder"): GraphProfiles(
        (
            _decoding((1, 1, 1), (1, 1, 1), longest=63),
            _decoding((1, 1, 1), (1, 1, 1)),
            _decoding((1, 1, 1), (1, 4, 16)),
            _decoding((1, 5, 8), (1, 1, 1)),
        )
    ),
    # Lengths that `ChunkPlan` asks for: 55 first, then 139, 164 to 184. TensorRT-RTX refuses the flow with a free
    # length (Myelin, convolution_common.cpp), so it comes in fixed ones.
    ("piper-en-us-joe", "flow"): GraphProfiles(
        (_masked(64), _masked(144), _masked(192)), Padding(2, ("latent", "mask"), ("spectral",))
    ),
    # 23 and 46 first, then 62, then 82 for every chunk; a plan with larger ones may come.
    ("piper-en-us-joe", "vocoder"): GraphProfiles(
        (
            _frames("spectral", _LATENT, 1, 23, 46),
            _frames("spectral", _LATENT, 47, 82, 82),
            _frames("spectral", _LATENT, 83, 122, 256),
        )
    ),
    # Both in one, for a plan of fixed chunks: 34 frames before, 28 behind.
    ("piper-en-us-joe", "decoder"): GraphProfiles((_masked(43), _masked(77), _masked(122))),
    ("silero-vad", "vad"): GraphProfiles(()),
}
