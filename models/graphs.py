"""Which file of the store holds a model's graph at a precision: what conversion made, and what quantising added.

A precision may leave some of a model's graphs in FP32, where fewer bits did not pay: a voice's INT8 is its flow alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from models.convert import Artefact, open_artefact
from models.errors import ModelsError, PackMissingError
from models.store import Store

if TYPE_CHECKING:
    from models.quantize import QuantiseReport

__all__ = ["Form", "form_of", "forms"]

_FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a model lies in the store."""

    precision: Literal["fp32", "fp16", "int8"]
    scheme: str | None
    """How INT8 is done, as a plan names it (`s8-dynamic`, `u8s8`, `qdq`); None for floats."""
    target: Literal["any", "cpu", "tensorrt"]
    """What runs it."""
    passed: bool
    """Whether it passed the model's accuracy gate: that of conversion, or of quantising where that was done."""
    parts: Mapping[str, tuple[Artefact, str]]
    """Graph part -> where it lies, and its name there."""

    def path(self, part: str) -> Path:
        """A part's file, its checksum verified the first time. Raises `PackCorruptError`."""
        artefact, name = self.parts[part]
        return artefact.path(part, name)

    @property
    def mb(self) -> float:
        """Size of all parts together."""
        files = (
            file.size
            for part, (artefact, name) in self.parts.items()
            for file in artefact.manifest.files
            if (file.part, file.precision) == (part, name)
        )
        return round(sum(files) / 1e6, 1)

    @property
    def key(self) -> str:
        """Names the files: another conversion or quantisation gives another key."""
        return " ".join(f"{part}={artefact.folder.name}/{name}" for part, (artefact, name) in self.parts.items())


def forms(store: Store, pack_id: str, parts: Sequence[str]) -> tuple[Form, ...]:
    """All forms of a model's parts that are there; nothing is made. Empty where the pack has not been converted."""
    try:
        artefact = open_artefact(store, pack_id)
    except ModelsError:  # not fetched or not converted yet
        return ()
    fp32 = _held(artefact, parts, _FP32)
    if len(fp32) < len(parts):
        return ()
    found: dict[tuple[str, str | None], Form] = {(_FP32, None): Form("fp32", None, "any", True, fp32)}
    # Conversion refuses INT8 graphs that say other words than the shipped model, or come too far from it.
    int8 = _held(artefact, parts, "int8")
    own = Form("int8", "s8-dynamic", "cpu", True, int8) if len(int8) == len(parts) else None
    for form in _quantised(store, pack_id, parts, fp32):
        found[form.precision, form.scheme] = form
    if own is not None:
        # Quantising judges the same graphs on more speech than conversion does: its word counts, the files stay.
        judged = found.get(("int8", "s8-dynamic"))
        passed = True if judged is None else judged.passed
        found["int8", "s8-dynamic"] = Form("int8", "s8-dynamic", "cpu", passed, int8)
    return tuple(found.values())


def form_of(store: Store, pack_id: str, parts: Sequence[str], precision: str, scheme: str | None) -> Form:
    """One form. Raises `PackMissingError` where it has not been made."""
    for form in forms(store, pack_id, parts):
        if (form.precision, form.scheme) == (precision, scheme):
            return form
    how = f"{precision} {scheme}" if scheme else precision
    raise PackMissingError(
        f"{pack_id} is not here as {how}; run: wren models fetch, then wren models quantize {pack_id}"
    )


def _held(artefact: Artefact, parts: Sequence[str], name: str) -> dict[str, tuple[Artefact, str]]:
    there = {(file.part, file.precision) for file in artefact.manifest.files}
    return {part: (artefact, name) for part in parts if (part, name) in there}


def _quantised(
    store: Store, pack_id: str, parts: Sequence[str], fp32: Mapping[str, tuple[Artefact, str]]
) -> list[Form]:
    from models.quantize import VARIANTS, open_quantised

    try:
        artefact, reports = open_quantised(store, pack_id)
    except (ModelsError, ValueError, OSError):  # never quantised, or by another version: made anew when asked for
        return []
    found = []
    for variant in VARIANTS:
        taken, refused = _taken(reports, variant.name, variant.target)
        held = {part: row for part, row in _held(artefact, parts, variant.name).items() if part in taken}
        if held or refused & set(parts):
            scheme = None if variant.precision == "fp16" else variant.scheme
            found.append(Form(variant.precision, scheme, variant.target, bool(held), {**fp32, **held}))
    return found


def _taken(reports: Sequence[QuantiseReport], variant: str, target: str) -> tuple[set[str], set[str]]:
    """Parts that a variant is worth using for, and parts for which it failed the gate."""
    from models.quantize import WORTH_IT

    taken, refused = set(), set()
    for report in reports:
        for result in report.variants:
            if result.variant != variant:
                continue
            names = {part.part for part in result.parts}
            if not result.passed:
                refused |= names
            elif target != "cpu" or result.speed_up >= WORTH_IT:
                # Judged together, used together: a group's score holds for all its parts in this variant.
                taken |= names
    return taken, refused
