"""Every graph in every precision that a GPU may run: as this machine's store keeps it, else made here of the FP32 one.

Quantising with its gates takes the better part of an hour, and a fresh machine has not done it. Making the same graphs
with a small calibration, and with what the gates left in float, takes half a minute for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx

from models import Store
from models.convert.artefact import MANIFEST, Artefact, ArtefactFile, Manifest
from models.errors import ModelsError
from models.files import sha256_of
from models.quantize import open_quantised
from models.quantize.kept import VERSION, folder_of, tools
from models.quantize.parts import groups_of
from models.quantize.sites import load
from models.quantize.sound import Material
from models.quantize.table import VARIANTS
from models.quantize.variants import Source

_WANTED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "moonshine-base-en": tuple((part, v) for part in ("encoder", "decoder") for v in ("fp16", "int8-trt")),
    "piper-en-us-joe": tuple((part, v) for part in ("flow", "vocoder") for v in ("fp16", "int8-trt")),
    "silero-vad": tuple(("vad", v) for v in ("fp16", "int8-trt", "int8-cpu-static", "int8-cpu-dynamic")),
}
_KEEP_FLOAT: Final[Mapping[str, tuple[str, ...]]] = {
    "encoder": ("conv1", "conv2", "conv3"),
    "vad": (
        "F0::If_0_then_branch__Inline_0__/stft/Conv",
        "F0::If_0_then_branch__Inline_0__/encoder/0/reparam_conv/Conv",
    ),
}
"""What the sensitivity run leaves in float in static INT8 (docs/quantisation.md): the first convolutions of sound."""
_CALIBRATION: Final = 8
"""Feeds of a graph; more change no digit that a test looks at."""


def store_with_variants(store: Store, pack_id: str, folder: Path) -> Store:
    """The store itself where the pack is quantised in it, else one in `folder` on the same packs in which it is."""
    try:
        kept = open_quantised(store, pack_id)[0]
        for part, variant in _WANTED[pack_id]:
            kept.path(part, variant)
    except ModelsError:
        return _made(store, pack_id, folder)
    return store


def _made(store: Store, pack_id: str, folder: Path) -> Store:
    beside = Store(folder, catalogue=store.catalogue)
    for name in ("packs", "artefacts"):
        (folder / name).symlink_to(store.root / name)
    target = folder_of(beside, pack_id)
    target.mkdir(parents=True)
    rows = []
    for part in (p for group in groups_of(beside, pack_id, Material()) for p in group.parts):
        every = max(1, len(part.calibration) // _CALIBRATION)
        source = Source(load(part.path), part.calibration[::every], part.half_edges)
        for variant in (v for v in VARIANTS if (part.name, v.name) in _WANTED[pack_id]):
            path = target / f"{part.name}.{variant.name}.onnx"
            keep = _KEEP_FLOAT.get(part.name, ()) if variant.scheme in ("qdq", "u8s8") else ()
            onnx.save(source.make(variant, keep), path)
            size, sha256 = path.stat().st_size, sha256_of(path)
            rows.append(ArtefactFile(part=part.name, precision=variant.name, name=path.name, size=size, sha256=sha256))
    manifest = Manifest(
        pack=pack_id,
        recipe_version=VERSION,
        tools=tools(),
        inputs={f.name: f.sha256 for f in store.catalogue.get(pack_id).files},
        files=tuple(rows),
        parameters={},
        checks={},
        seconds={},
    )
    (target / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    assert {(f.part, f.precision) for f in Artefact.load(target).manifest.files} == set(_WANTED[pack_id])
    return beside
