"""One microWakeWord model, run by tensorflow-lite on buffers that are kept.

pymicro-wakeword's own way makes a dozen arrays a run and takes its mean in fractions: on a small machine that is twice
the price of the model. What is computed here is the same, number by number (a test holds the two together).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pymicro_wakeword import MicroWakeWord

__all__ = ["WakeModel"]

Features = npt.NDArray[np.float64]
"""What the extractor makes of 10 ms, any shape of [bins] elements."""


class WakeModel:
    """A streaming part: `stride` features in, the mean probability over the model's window out. Not thread-safe."""

    def __init__(self, name: str) -> None:
        """Load one of the words that come with pymicro-wakeword."""
        # Imported here: it loads a native library, which a process that only converts models does not need.
        from pymicro_wakeword import MicroWakeWord, Model

        self.name = name
        self._model: MicroWakeWord = MicroWakeWord.from_builtin(Model(name))
        self._lib: Any = self._model.lib
        self._size = self._lib.TfLiteTensorByteSize(self._model.input_tensor)
        self._scaled = np.empty(self._size, dtype=np.float64)
        self._input = np.empty(self._size, dtype=self._model.input_dtype)
        self._output = np.empty(1, dtype=self._model.output_dtype)
        self._pointers = [ctypes.c_void_p(each.ctypes.data) for each in (self._input, self._output)]
        self._probabilities: deque[float] = deque(maxlen=self._model.sliding_window_size)

    @property
    def stride(self) -> int:
        """Features that a run takes."""
        return int(self._model.stride)

    @property
    def cutoff(self) -> float:
        """Mean probability from which its makers take the word for said, 0..1."""
        return float(self._model.probability_cutoff)

    def push(self, features: Sequence[Features]) -> float:
        """Take `stride` features, oldest first; the mean of the newest probabilities, 0 until there are enough."""
        model, lib, (input_at, output_at) = self._model, self._lib, self._pointers
        scaled = self._scaled
        np.concatenate([each.ravel() for each in features], out=scaled)
        np.divide(scaled, model.input_scale, out=scaled)
        np.add(scaled, model.input_zero_point, out=scaled)
        self._input[:] = np.rint(scaled, out=scaled)
        lib.TfLiteTensorCopyFromBuffer(model.input_tensor, input_at, self._size)
        lib.TfLiteInterpreterInvoke(model.interpreter)
        lib.TfLiteTensorCopyToBuffer(model.output_tensor, output_at, self._output.nbytes)
        probabilities = self._probabilities
        probabilities.append((int(self._output[0]) - model.output_zero_point) * model.output_scale)
        # Of numbers on a grid of 1/256: exact however they are added.
        return sum(probabilities) / len(probabilities) if len(probabilities) == probabilities.maxlen else 0.0

    def reset(self) -> None:
        """Forget all sound heard so far (the interpreter has no cheaper way than to be made again)."""
        self._probabilities.clear()
        self._model.reset()
