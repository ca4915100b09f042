"""Calibration: which values the activations take, and the scale that covers them.

The whole range is covered. Clipping to the range of least mean square error was tried: the recogniser's rare, large
activations are what its layers act on, and without them its encoder had 4 dB of signal to noise instead of 25.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort

from models.engines.base import Array
from models.errors import ConversionError
from models.quantize.sites import copy_of

__all__ = ["Affine", "Feed", "Range", "observe", "values_of"]

Feed = Mapping[str, Array]
"""Every input of a graph, states too: input name -> array."""

_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class Affine:
    """x is about (q - zero) * scale."""

    scale: float
    zero: int


@dataclass(frozen=True, slots=True)
class Range:
    """The values of one tensor over all calibration runs lie in lowest … highest; 0 is always among them."""

    lowest: float
    highest: float

    def symmetric(self) -> Affine:
        """s8 in -127 … 127 with zero at 0."""
        return Affine(max(self.highest, -self.lowest, 127 * _TINY) / 127, 0)

    def asymmetric(self) -> Affine:
        """u8 in 0 … 255; 0.0 is exact, as padding needs."""
        scale = max((self.highest - self.lowest) / 255, _TINY)
        return Affine(scale, round(min(max(-self.lowest / scale, 0.0), 255.0)))


def observe(model: onnx.ModelProto, tensors: Sequence[str], feeds: Iterable[Feed]) -> dict[str, Range]:
    """Run the FP32 model on every feed and look at the tensors. Raises `ConversionError` without feeds."""
    bounds: dict[str, tuple[float, float]] = {}
    for values in values_of(model, tensors, feeds):
        for name, value in values.items():
            low, high = bounds.get(name, (0.0, 0.0))
            bounds[name] = (min(low, float(value.min(initial=0))), max(high, float(value.max(initial=0))))
    if not bounds and tensors:
        raise ConversionError(f"{model.graph.name}: nothing to calibrate with")
    return {name: Range(*pair) for name, pair in bounds.items()}


def values_of(model: onnx.ModelProto, tensors: Sequence[str], feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
    """Inner tensors of the model for each feed."""
    probe = copy_of(model)
    inputs, own = {i.name for i in probe.graph.input}, {o.name for o in probe.graph.output}
    wanted = [t for t in dict.fromkeys(tensors) if t not in inputs]
    probe.graph.output.extend(onnx.ValueInfoProto(name=t) for t in wanted if t not in own)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    # Fusions would remove the tensors that are looked at.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for feed in feeds:
        values = dict(zip(wanted, session.run(wanted, dict(feed)), strict=True)) if wanted else {}
        yield values | {t: feed[t] for t in dict.fromkeys(tensors) if t in inputs}
