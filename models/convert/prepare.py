"""Converting a pack once: cached by what went in, locked, published whole, checked against the original."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from models import files, usage
from models.convert.artefact import MANIFEST, Artefact, ArtefactFile, Manifest
from models.convert.build import Build
from models.errors import ArtefactError, ConversionError, PackCorruptError, PackMissingError
from models.progress import Progress, silent
from models.store import InstalledPack, Store

__all__ = ["Recipe", "needs_conversion", "open_artefact", "prepare"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A conversion: a module with `convert(pack: InstalledPack, work: Path, build: Build) -> None`.

    `convert` writes graphs into the build, uses `work` for files on the way, and raises `ConversionError` if the
    graphs do not do what the shipped model does.
    """

    module: str
    """Imported only when something must be converted, for `onnx` is heavy."""
    version: int
    """Goes up with every change of what comes out."""
    work_bytes: int
    """Disk space that the result and the files on the way need."""


_RECIPES = {
    "moonshine-base-en": Recipe("models.convert.moonshine", version=2, work_bytes=480_000_000),
    "moonshine-tiny-en": Recipe("models.convert.moonshine", version=1, work_bytes=400_000_000),
    "piper-en-us-joe": Recipe("models.convert.piper", version=2, work_bytes=70_000_000),
}
_TOOLS = ("numpy", "onnx", "onnxruntime")


def needs_conversion(pack_id: str) -> bool:
    """Whether engines run something made from the pack (`prepare`), or its files as they are."""
    return pack_id in _RECIPES


def open_artefact(store: Store, pack_id: str) -> Artefact:
    """What was made of the pack, if it was made from its present files by the present tools; converts nothing.

    A file's checksum is read when `Artefact.path` first gives it out. Raises `PackMissingError`, `PackCorruptError`,
    `ArtefactError` where the pack needs no conversion.
    """
    folder = _folder(store, pack_id)
    if not folder.is_dir():
        raise PackMissingError(f"model pack {pack_id} has not been converted yet; run: wren models fetch {pack_id}")
    usage.mark_used(store.root, pack_id)
    return Artefact.load(folder)


def prepare(store: Store, pack_id: str, progress: Progress = silent, *, verify: bool = False) -> Artefact:
    """The converted pack: made now if that has not been done, else opened. Several processes may call this at once.

    The pack must be in the store (`Store.ensure`). With `verify`, every checksum is read now and a damaged artefact
    is made anew; without, only sizes are looked at. Raises what `Store.open` and `open_artefact` raise, and
    `StoreFullError`, `ConversionError`.
    """
    folder = _folder(store, pack_id)

    def opened() -> Artefact | None:
        with contextlib.suppress(PackMissingError, PackCorruptError):
            artefact = open_artefact(store, pack_id)
            if verify:
                artefact.verify()
            return artefact
        return None

    if (artefact := opened()) is not None:
        return artefact
    title = store.catalogue.get(pack_id).title
    with store.locked(pack_id, title, progress):
        if (artefact := opened()) is not None:
            return artefact
        if folder.is_dir():
            progress(f"the conversion of {pack_id} is damaged: making it anew", 0, None)
        _make(store, store.open(pack_id), folder, progress)
        for other in folder.parent.iterdir():
            if other != folder:
                files.remove_tree(other)
    return open_artefact(store, pack_id)


def _folder(store: Store, pack_id: str) -> Path:
    """Where the artefact of the pack's files, this recipe and these tools belongs."""
    pack = store.catalogue.get(pack_id)
    if not needs_conversion(pack_id):
        raise ArtefactError(f"pack {pack_id} is used as it is shipped; it has no conversion")
    key = json.dumps([pack.digest, _RECIPES[pack_id].version, _tools()], sort_keys=True)
    return store.root / "artefacts" / pack_id / hashlib.sha256(key.encode()).hexdigest()[:16]


def _tools() -> dict[str, str]:
    return {name: files.version_of(name) for name in _TOOLS}


def _make(store: Store, pack: InstalledPack, folder: Path, progress: Progress) -> None:
    recipe, what = _RECIPES[pack.pack.id], f"the conversion of {pack.pack.title}"
    with files.disk_errors_named(store.root, recipe.work_bytes, what), store.scratch(pack.pack.id) as work:
        files.require_room(work, recipe.work_bytes, what)
        store.make_room(recipe.work_bytes // 2, what, progress)
        result = work / "artefact"
        result.mkdir()
        build = Build(result, progress)
        _load(recipe, what).convert(pack, work, build)
        manifest = _manifest(pack, recipe.version, _tools(), build)
        (result / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        files.publish(result, folder)


def _load(recipe: Recipe, what: str) -> ModuleType:
    try:
        return importlib.import_module(recipe.module)
    except ImportError as error:
        raise ConversionError(
            f"{what} cannot be made: {error}. Converting needs ONNX Runtime; without it NumPy runs what was converted "
            "before, and there is nothing. Run: wren doctor"
        ) from error


def _manifest(pack: InstalledPack, version: int, tools: Mapping[str, str], build: Build) -> Manifest:
    rows = []
    for (part, precision), path in build.graphs.items():
        size, sha256 = path.stat().st_size, files.sha256_of(path)
        rows.append(ArtefactFile(part=part, precision=precision, name=path.name, size=size, sha256=sha256))
    return Manifest(
        pack=pack.pack.id,
        recipe_version=version,
        tools=dict(tools),
        inputs={f.name: f.sha256 for f in pack.pack.files},
        files=tuple(rows),
        parameters=build.parameters,
        checks=build.checks,
        seconds=build.seconds,
    )
