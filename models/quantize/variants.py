"""How each variant of a graph is made of the FP32 one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import onnx

from models.quantize.dynamic import quantise_dynamic, quantise_tables
from models.quantize.equalise import channel_peaks, equalise
from models.quantize.half import in_half
from models.quantize.ranges import Feed, Range, observe
from models.quantize.sites import Site, find_sites
from models.quantize.static import observed_tensors, quantise_static
from models.quantize.table import Variant
from models.quantize.tensorrt_rules import check_tensorrt_qdq

__all__ = ["Source"]


@dataclass(slots=True)
class Source:
    """An FP32 graph with what is needed to make variants of it; ranges are looked for once."""

    model: onnx.ModelProto
    calibration: Sequence[Feed]
    half_edges: Callable[[str], bool]
    _cache: dict[bool, tuple[onnx.ModelProto, dict[str, Range]]] = field(default_factory=dict)

    def sites(self, variant: Variant) -> tuple[Site, ...]:
        """What the variant may quantise.

        Dynamic quantisation takes products only, where there are any: `ConvInteger` is slower than an FP32
        convolution (2.4 times as slow in the recogniser's encoder, measured) and is tried where there is nothing else.
        """
        sites = find_sites(self.model)
        products = tuple(s for s in sites if s.kind == "MatMul")
        return products if variant.scheme == "s8-dynamic" and products else sites

    def make(self, variant: Variant, keep_float: Collection[str] = ()) -> onnx.ModelProto:
        """The variant, checked. Raises `ConversionError`, `QuantisationRefusedError`."""
        if variant.scheme == "half":
            made = in_half(self.model, self.half_edges)
        elif variant.scheme == "s8-dynamic":
            allowed = {s.name for s in self.sites(variant)}
            others = {s.name for s in find_sites(self.model)} - allowed
            made = quantise_dynamic(self.model, {*keep_float, *others})
        else:
            base, ranges = self._calibrated(variant.equalised)
            made = quantise_static(base, ranges, keep_float, tensorrt=variant.target == "tensorrt")
            if variant.target == "cpu":
                quantise_tables(made)
        if variant.target == "tensorrt":
            check_tensorrt_qdq(made)
        onnx.checker.check_model(made)
        return made

    def _calibrated(self, equalised: bool) -> tuple[onnx.ModelProto, dict[str, Range]]:
        if equalised not in self._cache:
            base = equalise(self.model, channel_peaks(self.model, self.calibration)) if equalised else self.model
            self._cache[equalised] = (base, observe(base, observed_tensors(base), self.calibration))
        return self._cache[equalised]
