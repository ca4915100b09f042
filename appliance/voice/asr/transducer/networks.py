"""The three graphs of a transducer as the search needs them: sound to encoder frames, labels to predictions, and both
to the probabilities of the next label. One instance a thread: its streams take one call at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from appliance.voice.asr.transducer.features import Features
from appliance.voice.asr.transducer.metadata import TransducerMetadata
from models.engines.base import Array, Engine, State, Stream

__all__ = ["Encoded", "Encoder", "Predicted", "Predictor"]

Encoded = npt.NDArray[np.float32]
"""[frames, width]."""
LogProbabilities = npt.NDArray[np.float32]
"""[rows, labels]."""

_KEPT_CONTEXTS: Final = 4096
"""Predictions of a stateless decoder that are kept: the same two labels come again in every beam and utterance."""


class Encoder:
    """An encoder stream: windows of feature frames in, encoder frames out; the state stays in the stream."""

    def __init__(self, metadata: TransducerMetadata, engine: Engine) -> None:
        self._metadata = metadata
        self._stream = engine.stream()

    def run(self, features: Features) -> Encoded:
        """The next window, [window, bins], to its encoder frames. Raises `EngineError`."""
        meta = self._metadata
        rows = features[None]
        if meta.family == "zipformer2":
            frames = self._stream.run({meta.encoder.features: rows})[meta.encoder.frames][0]
        else:
            inputs: dict[str, Array] = {meta.encoder.features: np.ascontiguousarray(rows.transpose(0, 2, 1))}
            if meta.encoder.length is not None:
                inputs[meta.encoder.length] = np.array([meta.window], dtype=np.int64)
            frames = self._stream.run(inputs)[meta.encoder.frames][0].T
        return np.array(frames, dtype=np.float32, order="C")  # a copy: what came may be a view of the runtime's memory

    def snapshot(self) -> State:
        """See `Stream.snapshot`."""
        return self._stream.snapshot()

    def restore(self, state: State) -> None:
        """See `Stream.restore`."""
        self._stream.restore(state)

    def reset(self) -> None:
        """See `Stream.reset`."""
        self._stream.reset()


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a decoder makes of the labels so far."""

    output: npt.NDArray[np.float32]
    """[width], or [width, 1] of a recurrent one."""
    context: tuple[int, ...] = ()
    """Last labels, for one that sees only those."""
    state: tuple[npt.NDArray[np.float32], ...] = ()
    """[layers, width] each, of a recurrent one."""


class Predictor:
    """Decoder and joiner."""

    def __init__(self, metadata: TransducerMetadata, decoder: Engine, joiner: Engine) -> None:
        self._metadata = metadata
        self._decoder: Stream = decoder.stream()
        self._joiner: Stream = joiner.stream()
        self._contexts: dict[tuple[int, ...], Predicted] = {}

    def first(self) -> Predicted:
        """Before any label."""
        meta = self._metadata
        if meta.decoder_state is None:
            # icefall trains with nothing (-1) before the blank that begins every text.
            return self._of_contexts([(-1,) * (meta.context - 1) + (meta.blank,)])[0]
        layers, width = meta.decoder_state
        empty = np.zeros((layers, width), dtype=np.float32)
        return self._of_states([((empty,) * len(meta.decoder.states), meta.blank)])[0]

    def after(self, rows: Sequence[tuple[Predicted, int]]) -> list[Predicted]:
        """What each row's decoder makes of one more label."""
        if not rows:
            return []
        if self._metadata.decoder_state is None:
            return self._of_contexts([(*before.context, label)[1:] for before, label in rows])
        return self._of_states([(before.state, label) for before, label in rows])

    def logp(self, frame: npt.NDArray[np.float32], rows: Sequence[Predicted]) -> LogProbabilities:
        """Natural logarithm of the probability of every label, at an encoder frame [width]: [rows, labels]."""
        meta = self._metadata
        encoded = np.repeat(frame[None], len(rows), axis=0)
        if meta.family == "nemo":
            encoded = encoded[..., None]
        predicted = np.stack([row.output for row in rows])
        given = {meta.joiner.encoded: encoded, meta.joiner.predicted: predicted}
        logits = self._joiner.run(given)[meta.joiner.logits].reshape(len(rows), meta.vocabulary)
        top = logits.max(axis=1, keepdims=True)
        scores: LogProbabilities = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
        return scores

    def _of_contexts(self, contexts: Sequence[tuple[int, ...]]) -> list[Predicted]:
        new = [context for context in dict.fromkeys(contexts) if context not in self._contexts]
        if new:
            if len(self._contexts) + len(new) > _KEPT_CONTEXTS:
                self._contexts.clear()
                new = list(dict.fromkeys(contexts))
            names = self._metadata.decoder
            outputs = self._decoder.run({names.tokens: np.array(new, dtype=np.int64)})[names.output]
            for context, output in zip(new, outputs.reshape(len(new), -1), strict=True):
                self._contexts[context] = Predicted(np.array(output, dtype=np.float32), context)
        return [self._contexts[context] for context in contexts]

    def _of_states(self, rows: Sequence[tuple[tuple[npt.NDArray[np.float32], ...], int]]) -> list[Predicted]:
        names = self._metadata.decoder
        inputs: dict[str, Array] = {names.tokens: np.array([[label] for _, label in rows], dtype=np.int32)}
        if names.length is not None:
            inputs[names.length] = np.ones(len(rows), dtype=np.int32)
        for at, name in enumerate(names.states):
            inputs[name] = np.stack([state[at] for state, _ in rows], axis=1)
        outputs = self._decoder.run(inputs)
        states = [outputs[name] for name in names.next_states]
        return [
            Predicted(
                np.array(outputs[names.output][row], dtype=np.float32),
                state=tuple(np.array(state[:, row], dtype=np.float32) for state in states),
            )
            for row in range(len(rows))
        ]
