"""Recipe: Moonshine's shipped weights into two lean graphs, each in FP32 and INT8."""

from __future__ import annotations

from pathlib import Path

import onnx

from models.catalogue import AsrParameters
from models.convert.moonshine_check import check
from models.convert.moonshine_graphs import MoonshineShape, decoder_graph, encoder_graph
from models.convert.prepare import Build
from models.convert.shipped import ShippedWeights, save_as_onnx
from models.store import InstalledPack

VERSION = 1
BYTES = 480_000_000
"""Graphs 385 MB, the shipped weights saved as ONNX 64 MB."""

_SHIPPED = {"encoder": "encoder_model.ort", "decoder": "decoder_model_merged.ort"}


def convert(pack: InstalledPack, work: Path, build: Build) -> None:
    """See `models.convert.prepare.Recipe`."""
    p = pack.pack.parameters_as(AsrParameters)
    shape = MoonshineShape(p.layers, p.heads, p.head_dim, p.vocabulary)
    build.steps = 4
    with build.stage("read the shipped weights"):
        weights = {part: _weights(pack.path(name), work / f"{part}.onnx") for part, name in _SHIPPED.items()}
    for precision in ("fp32", "int8"):
        with build.stage(f"write {precision} graphs"):
            int8 = precision == "int8"
            encoder = encoder_graph(shape, weights["encoder"], weights["decoder"], int8=int8)
            onnx.save(encoder, build.target("encoder", precision))
            del encoder
            onnx.save(decoder_graph(shape, weights["decoder"], int8=int8), build.target("decoder", precision))
    del weights
    with build.stage("compare with the original"):
        build.checks |= check(pack, build.folder)


def _weights(shipped: Path, saved: Path) -> ShippedWeights:
    save_as_onnx(shipped, saved)
    return ShippedWeights(onnx.load(saved))
