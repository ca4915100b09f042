"""Models in fewer bits: every variant made, measured against FP32, judged by an injected evaluation, and reported.

Names are looked up when they are first used: to open what was made, nothing that makes it need be loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from models.quantize.gate import Evaluate, Score, passes
    from models.quantize.kept import open_quantised
    from models.quantize.parts import RECOGNISERS, listening, quantisable
    from models.quantize.report import PartResult, QuantiseReport, VariantResult
    from models.quantize.run import Options, quantise
    from models.quantize.sound import Material
    from models.quantize.table import VARIANTS, WORTH_IT, Variant
    from models.quantize.tensorrt_rules import check_tensorrt_qdq

__all__ = [
    "RECOGNISERS",
    "VARIANTS",
    "WORTH_IT",
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

_HOMES: Final = {
    "models.quantize.gate": ("Evaluate", "Score", "passes"),
    "models.quantize.kept": ("open_quantised",),
    "models.quantize.parts": ("RECOGNISERS", "listening", "quantisable"),
    "models.quantize.report": ("PartResult", "QuantiseReport", "VariantResult"),
    "models.quantize.run": ("Options", "quantise"),
    "models.quantize.sound": ("Material",),
    "models.quantize.table": ("VARIANTS", "WORTH_IT", "Variant"),
    "models.quantize.tensorrt_rules": ("check_tensorrt_qdq",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The façade's names (PEP 562)."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'models.quantize' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
