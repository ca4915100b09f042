"""Recipe: Moonshine's shipped weights into two lean graphs, each in FP32 and INT8 (see `moonshine_graphs`)."""

from __future__ import annotations

from pathlib import Path

import onnx

from models.catalogue import AsrParameters
from models.convert.build import Build
from models.convert.moonshine_check import Original, check
from models.convert.moonshine_graphs import MoonshineShape, decoder_graph, encoder_graph
from models.convert.shipped import ShippedWeights, save_as_onnx
from models.convert.unquantise import with_float_products
from models.store import InstalledPack

__all__ = ["convert"]

_STAGES = 4


def convert(pack: InstalledPack, work: Path, build: Build) -> None:
    """See `models.convert.prepare.Recipe`."""
    p = pack.pack.parameters_as(AsrParameters)
    shape = MoonshineShape(p.layers, p.heads, p.head_dim, p.vocabulary)
    with build.stage(1, _STAGES, "read the shipped weights"):
        encoder, first = _weights(pack.path("encoder_model.ort"), work / "encoder.onnx")
        decoder, second = _weights(pack.path("decoder_model_merged.ort"), work / "decoder.onnx")
    for number, precision in ((2, "fp32"), (3, "int8")):
        with build.stage(number, _STAGES, f"write {precision} graphs"):
            # One at a time: each is held in memory twice while it is written.
            int8 = precision == "int8"
            onnx.save(encoder_graph(shape, encoder, decoder, int8=int8), build.graph("encoder", precision))
            onnx.save(decoder_graph(shape, decoder, int8=int8), build.graph("decoder", precision))
    del encoder, decoder
    with build.stage(4, _STAGES, "compare with the original"):
        check(pack, Original(first, second), build)


def _weights(shipped: Path, saved: Path) -> tuple[ShippedWeights, Path]:
    """The weights, and the model to compare with: the shipped one, its rounding of what comes in taken out."""
    save_as_onnx(shipped, saved)
    model = onnx.load(saved)
    if not with_float_products(model):
        return ShippedWeights(model), shipped
    onnx.save(model, saved)
    return ShippedWeights(model), saved
