"""Models in fewer bits: every variant made, measured against FP32, judged by an injected evaluation, and reported."""

from __future__ import annotations

from models.quantize.gate import Evaluate, Score, passes
from models.quantize.parts import listening, quantisable
from models.quantize.report import PartResult, QuantiseReport, VariantResult
from models.quantize.run import Options, open_quantised, quantise
from models.quantize.sound import Material
from models.quantize.tensorrt_rules import check_tensorrt_qdq
from models.quantize.variants import VARIANTS, Variant

__all__ = [
    "VARIANTS",
    "Evaluate",
    "Material",
    "Options",
    "PartResult",
    "QuantiseReport",
    "Score",
    "Variant",
    "VariantResult",
    "check_tensorrt_qdq",
    "listening",
    "open_quantised",
    "passes",
    "quantisable",
    "quantise",
]
