"""Converting a pack once: cached by what went in, locked, published whole, checked against the original."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from models import files
from models.convert.artefact import MANIFEST, Artefact, ArtefactFile, Manifest
from models.errors import ArtefactError, PackCorruptError
from models.progress import Progress, silent
from models.store import InstalledPack, Store

__all__ = ["Build", "Recipe", "prepare"]

_RECIPES = {
    "moonshine-base-en": "models.convert.moonshine",
    "piper-en-us-joe": "models.convert.piper",
}
"""Pack -> module with its recipe; imported only when it is needed, for `onnx` is heavy."""
_TOOLS = ("numpy", "onnx", "onnxruntime")


@dataclass(slots=True)
class Build:
    """What a recipe hands back, filled in as it goes."""

    folder: Path
    """Where the files are written."""
    progress: Progress
    steps: int
    """How many stages the recipe has."""
    graphs: dict[tuple[str, str], str] = field(default_factory=dict)
    """(part, precision) -> file name."""
    parameters: dict[str, int | float | str] = field(default_factory=dict)
    checks: dict[str, float | str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Report and time one stage."""
        self.progress(f"convert: {what}", len(self.seconds), self.steps)
        started = time.perf_counter()
        yield
        self.seconds[what] = round(time.perf_counter() - started, 3)
        self.progress(f"convert: {what}", len(self.seconds), self.steps)

    def target(self, part: str, precision: str) -> Path:
        """Where to write a graph."""
        name = f"{part}.{precision}.onnx"
        self.graphs[part, precision] = name
        return self.folder / name


class Recipe(Protocol):
    """A conversion, as a module: `VERSION` goes up with every change of what comes out."""

    VERSION: int
    BYTES: int
    """Disk space that the result and the work need."""

    def convert(self, pack: InstalledPack, work: Path, build: Build) -> None:
        """Write the graphs; raise `ConversionError` if they do not match the original."""
        ...


def prepare(store: Store, pack_id: str, progress: Progress = silent, *, verify: bool = False) -> Artefact:
    """The converted pack: made now if it has not been made from these files by these tools, else opened.

    The pack must be in the store. With `verify`, every file's checksum is read now, and a damaged artefact made anew;
    without, a file's checksum is read when `Artefact.path` first gives it out. Raises `PackMissingError`,
    `PackCorruptError`, `StoreFullError`, `ConversionError`, and `ArtefactError` where a pack needs no conversion.
    """
    pack = store.catalogue.get(pack_id)
    if pack_id not in _RECIPES:
        raise ArtefactError(f"pack {pack_id} is used as it is shipped; it has no conversion")
    recipe: Recipe = importlib.import_module(_RECIPES[pack_id])  # type: ignore[assignment]
    tools = {name: importlib.metadata.version(name) for name in _TOOLS}
    key = json.dumps([pack.digest, recipe.VERSION, tools], sort_keys=True)
    folder = store.root / "artefacts" / pack_id / hashlib.sha256(key.encode()).hexdigest()[:16]
    with contextlib.suppress(ArtefactError, PackCorruptError):
        return _opened(folder, verify=verify)
    with store.locked(pack_id, pack.title, progress):
        with contextlib.suppress(ArtefactError, PackCorruptError):
            return _opened(folder, verify=verify)
        _make(store, store.open(pack_id), recipe, tools, folder, progress)
        for other in folder.parent.iterdir():
            if other != folder:
                files.remove_tree(other)
    return _opened(folder, verify=False)


def _opened(folder: Path, *, verify: bool) -> Artefact:
    artefact = Artefact.load(folder)
    if verify:
        artefact.verify()
    return artefact


def _make(
    store: Store, pack: InstalledPack, recipe: Recipe, tools: Mapping[str, str], folder: Path, progress: Progress
) -> None:
    what = f"the conversion of {pack.pack.title}"
    with files.full_disk_named(store.root, recipe.BYTES, what), store.scratch(pack.pack.id) as work:
        files.require_room(work, recipe.BYTES, what)
        result = work / "artefact"
        result.mkdir()
        build = Build(result, progress, steps=1)
        recipe.convert(pack, work, build)
        rows = []
        for (part, precision), name in build.graphs.items():
            path = result / name
            row = ArtefactFile(
                part=part, precision=precision, name=name, size=path.stat().st_size, sha256=files.sha256_of(path)
            )
            rows.append(row)
        manifest = Manifest(
            pack=pack.pack.id,
            recipe=recipe.__name__ if hasattr(recipe, "__name__") else type(recipe).__name__,
            recipe_version=recipe.VERSION,
            tools=dict(tools),
            inputs={f.name: f.sha256 for f in pack.pack.files},
            files=tuple(rows),
            parameters=build.parameters,
            checks=build.checks,
            seconds=build.seconds,
        )
        (result / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        files.publish(result, folder)
