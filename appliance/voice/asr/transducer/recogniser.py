"""One session's hearing with a streaming transducer: the encoder works while the sound comes in.

Sound is cut into windows of feature frames; each runs through the encoder once, whose state goes on from window to
window. What has not filled a window yet is read with silence behind it, on another stream that goes on from a copy of
the state: so looking consumes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from appliance.audio.frame import RATE_HZ, Frame, Samples
from appliance.errors import SpeechError
from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis, Partial
from appliance.voice.asr.reading import hypothesis_of
from appliance.voice.asr.transducer.features import HOP_SAMPLES, frames_of, samples_for
from appliance.voice.asr.transducer.metadata import TransducerMetadata
from appliance.voice.asr.transducer.networks import Encoded, Encoder, Predictor
from appliance.voice.asr.transducer.search import Search, SearchSettings, SearchState
from appliance.voice.asr.transducer.tokens import Labels
from models.engines.base import Engine, State
from models.errors import EngineError, StreamLostError

__all__ = ["TransducerLimits", "TransducerModel", "TransducerRecogniser"]


@dataclass(frozen=True, slots=True)
class TransducerLimits:
    """Bounds, and what is put behind the sound."""

    max_utterance_s: float = 30.0
    """Sound beyond this is not kept; the endpoint ends the utterance before."""
    tail_s: float = 0.66
    """Digital silence read behind the sound: such models give a word some tenths of a second after it was said. What
    sherpa-onnx's own examples put there."""
    kept_windows: int = 8
    """States kept, of the last windows, to look from: those of a large model are some megabytes each."""


@dataclass(frozen=True)
class TransducerModel:
    """The weights and tables that all sessions share."""

    metadata: TransducerMetadata
    encoder: Engine
    decoder: Engine
    joiner: Engine
    labels: Labels
    search: SearchSettings = field(default_factory=SearchSettings)
    limits: TransducerLimits = field(default_factory=TransducerLimits)

    @cached_property
    def letters(self) -> Letters:
        """What the labels stand for in a grammar."""
        return Letters(self.labels.tokenizer.texts())

    @cached_property
    def writes_capitals(self) -> bool:
        """Whether it knows no small letter, as models trained on LibriSpeech: then its text is made small."""
        return not any(piece is not None and piece != piece.upper() for piece in self.labels.tokenizer.texts())

    def text(self, ids: Sequence[int]) -> str:
        """Labels as text."""
        text = " ".join(self.labels.tokenizer.decode(ids).split())
        return text.lower() if self.writes_capitals else text

    def searching(self, predictor: Predictor, bias: Bias | None) -> Search:
        """A search in this model's labels."""
        meta, unknown = self.metadata, self.labels.unknown
        return Search(
            predictor,
            self.search,
            blank=meta.blank,
            unknown=unknown if meta.max_symbols == 1 else None,
            context=meta.context,
            max_symbols=meta.max_symbols,
            letters=None if bias is None else self.letters,
            bias=bias,
        )


@dataclass(eq=False)
class _Utterance:
    """What was heard. The pushing thread alone adds to it, under the recogniser's lock."""

    sound: Samples
    heard: int = 0
    encoded: list[Encoded] = field(default_factory=list)
    """Encoder frames of each whole window."""
    states: dict[int, State] = field(default_factory=dict)
    """Number of a window -> the encoder's state before it, for the last ones."""
    failure: EngineError | None = None
    """Why nothing is encoded any more."""


@dataclass(frozen=True, slots=True)
class _Followed:
    """A search that has gone on with the whole windows, so that the next look need not begin anew."""

    utterance: _Utterance
    search: Search
    bias: Bias | None
    windows: int
    state: SearchState


class TransducerRecogniser:
    """One session's hearing; see `Recogniser`."""

    def __init__(self, model: TransducerModel) -> None:
        self._model = model
        self._encoder = Encoder(model.metadata, model.encoder)
        self._looking = Encoder(model.metadata, model.encoder)
        self._predictor = Predictor(model.metadata, model.decoder, model.joiner)
        self._looking_predictor = Predictor(model.metadata, model.decoder, model.joiner)
        self._search = model.searching(self._predictor, None)
        self._capacity = int(model.limits.max_utterance_s * RATE_HZ)
        self._lock = threading.Lock()
        """Over the utterance; held for moments."""
        self._look_lock = threading.Lock()
        """Over the streams and the search that look: one look at a time."""
        self._followed: _Followed | None = None
        self.dropped_samples = 0
        """Samples beyond the length cap that were not kept, since the recogniser was made."""
        self.reset()

    @property
    def samples(self) -> int:
        """Samples heard since `reset`."""
        return self._utterance.heard

    def push(self, frame: Frame) -> Sequence[Partial]:
        """Take 10 ms. Every some frames a window is full and the encoder runs, on the caller's thread.

        Where it fails, nothing more is read, and `hypothesise` says so: a stage fails where it is asked.
        """
        return self.push_samples(frame.samples)

    def push_samples(self, samples: Samples) -> Sequence[Partial]:
        """Take any number of samples, shape [n]."""
        utterance = self._utterance
        room = min(samples.size, self._capacity - utterance.heard)
        with self._lock:
            utterance.sound[utterance.heard : utterance.heard + room] = samples[:room]
            utterance.heard += room
        self.dropped_samples += samples.size - room
        partials = []
        try:
            while utterance.failure is None and (end := self._end_of(len(utterance.encoded))) <= utterance.heard:
                self._encode_next(utterance)
                if (text := self._written(utterance)) is not None:
                    partials.append(Partial(text, end))
        except EngineError as error:
            utterance.failure = error
        return partials

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        """Read what was heard up to a sample, and silence behind it; see `Recogniser`.

        A sample from before the states that are kept (`kept_windows`) is taken for the end of the oldest of them.
        """
        with self._lock:
            utterance = self._utterance
            until = min(until_sample, utterance.heard)
            windows = min(self._windows_in(until), len(utterance.encoded))
            # There is one for the next window always, or there was no window at all.
            windows = max(windows, min(utterance.states, default=0))
            encoded = utterance.encoded[:windows]
            state = utterance.states.get(windows)
            sound = utterance.sound[: max(until, self._shift * windows * HOP_SAMPLES)]
        try:
            if utterance.failure is not None:
                raise utterance.failure
            with self._look_lock:
                search, found = self._follow(utterance, encoded, bias, cancel)
                for frames in self._rest(sound, windows, state, cancel):
                    found = self._advanced(search, found, frames, cancel)
                return hypothesis_of(search.found(found), self._model.text, bias)
        except EngineError as error:
            raise SpeechError(f"recognition failed: {error}") from error

    def flush(self) -> Hypothesis:
        """Read all that was heard."""
        return self.hypothesise(self.samples, None, Cancel())

    def reset(self) -> None:
        """A new utterance. The old one is let go, not overwritten: a worker may still be reading it.

        Where the engines fail, `hypothesise` says so, as in `push`.
        """
        utterance = _Utterance(np.empty(self._capacity, dtype=np.float32))
        try:
            self._encoder.reset()
            utterance.states[0] = self._encoder.snapshot()
            self._found = self._search.start()
        except EngineError as error:
            utterance.failure = error
        with self._lock:
            self._utterance = utterance
        self._text = ""

    # ---- the pushing thread ---------------------------------------------------------------------------------------

    @property
    def _shift(self) -> int:
        return self._model.metadata.shift

    def _end_of(self, window: int) -> int:
        """Samples that a window needs."""
        return samples_for(window * self._shift + self._model.metadata.window)

    def _windows_in(self, samples: int) -> int:
        """Windows that lie wholly in so many samples."""
        spare = samples - self._end_of(0)
        return 0 if spare < 0 else spare // (self._shift * HOP_SAMPLES) + 1

    def _encode_next(self, utterance: _Utterance) -> None:
        number = len(utterance.encoded)
        try:
            frames = self._encoded(self._encoder, utterance.sound, number)
        except StreamLostError:
            # A device took the state with it; the sound is still here, and another rung serves by now.
            self._encoder.reset()
            for before in range(number):
                self._encoded(self._encoder, utterance.sound, before)
            frames = self._encoded(self._encoder, utterance.sound, number)
        state = self._encoder.snapshot()
        with self._lock:
            utterance.encoded.append(frames)
            utterance.states[number + 1] = state
            utterance.states.pop(number + 1 - self._model.limits.kept_windows, None)

    def _written(self, utterance: _Utterance) -> str | None:
        """The text so far, where the newest window has changed it."""
        self._found = self._search.advance_all(self._found, utterance.encoded[-1])
        text = self._model.text(self._search.best(self._found).ids)
        if text == self._text:
            return None
        self._text = text
        return text

    # ---- looking --------------------------------------------------------------------------------------------------

    def _encoded(self, encoder: Encoder, sound: Samples, window: int) -> Encoded:
        meta = self._model.metadata
        kind: Final = "kaldi" if meta.family == "zipformer2" else "nemo"
        return encoder.run(frames_of(sound[: self._end_of(window)], window * meta.shift, kind, meta.bins))

    def _follow(
        self, utterance: _Utterance, encoded: Sequence[Encoded], bias: Bias | None, cancel: Cancel
    ) -> tuple[Search, SearchState]:
        """The search over the whole windows, from where the last look left it if that was in the same grammar."""
        last = self._followed
        if last is None or last.utterance is not utterance or last.bias is not bias or last.windows > len(encoded):
            search = self._model.searching(self._looking_predictor, bias)
            last = _Followed(utterance, search, bias, 0, search.start())
        found = last.state
        for frames in encoded[last.windows :]:
            found = self._advanced(last.search, found, frames, cancel)
        self._followed = replace(last, windows=len(encoded), state=found)
        return last.search, found

    def _rest(self, sound: Samples, windows: int, state: State | None, cancel: Cancel) -> list[Encoded]:
        """Encoder frames of what is behind the whole windows, and of the silence after it."""
        assert state is not None
        tail = int(self._model.limits.tail_s * RATE_HZ)
        last = -(-(sound.size + tail) // (self._shift * HOP_SAMPLES))
        padded = np.zeros(max(self._end_of(last), sound.size), dtype=np.float32)
        padded[: sound.size] = sound
        try:
            return self._read(padded, windows, last, state, cancel)
        except StreamLostError:
            return self._read(padded, windows, last, state, cancel)

    def _read(self, sound: Samples, first: int, last: int, state: State, cancel: Cancel) -> list[Encoded]:
        self._looking.restore(state)
        found = []
        for window in range(first, last):
            cancel.check()
            found.append(self._encoded(self._looking, sound, window))
        return found

    def _advanced(self, search: Search, found: SearchState, frames: Encoded, cancel: Cancel) -> SearchState:
        for frame in frames:
            cancel.check()
            found = search.advance(found, frame)
        return found
