"""NumPy as an inference engine: an ONNX graph becomes a list of steps over a table of operators."""

from __future__ import annotations

from models.engines.numpy.engine import NumpyEngine, NumpyStream

__all__ = ["NumpyEngine", "NumpyStream"]
