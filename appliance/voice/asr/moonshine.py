"""Moonshine (Useful Sensors, MIT): raw 16 kHz sound of any length to text, so cost follows length.

Encoder: sound [1, n] to the cross keys and values of the decoder's layers. Decoder: token ids [1, 1] and its own
growing key/value cache to logits [1, 1, vocabulary] (`rows` names the cache's row to go on from, so that several
texts are followed in one batch: see beam.py). Guarded against silence, loops and length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.errors import SpeechError
from appliance.intent.phrase_text import plain_letters
from appliance.voice.asr.beam import BeamSettings, Decoding, decode, repeats
from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis, Partial
from appliance.voice.asr.reading import hypothesis_of
from appliance.voice.asr.tokenizer import Tokenizer
from models.engines.base import Array, Engine
from models.errors import EngineError, StreamLostError

__all__ = ["DecodingLimits", "MoonshineModel", "MoonshineRecogniser", "repeats"]


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Guards of the decoder."""

    max_utterance_s: float = 30.0
    """Sound beyond this is not kept; the endpoint ends the utterance before."""
    tokens_per_s: float = 6.5
    """Moonshine's own rule for the longest answer to a length of sound."""
    spare_tokens: int = 4
    min_samples: int = 1600
    """Shorter sound holds no word, and the encoder's convolutions need some to stand on."""
    pad_s: float = 0.5
    """Digital silence put behind the sound. Without it the model often says a short sentence twice (word error
    rate on the recorded commands 30 % without, 21 % with; see docs/benchmarks.md)."""
    silence_rms: float = 10 ** (-75 / 20)
    """Sound that nowhere (in 100 ms) is louder than -75 dBFS is silence: models invent words on it."""
    second_look_s: float = 0.3
    """Where nothing was read in audible sound, it is read once more without this much of its beginning: a click or
    chime in front of the words makes the model end at once. A phrase counts then only if both looks find it."""
    repeat_tokens: int = 12
    """Longest run that counts as a loop when it comes again and again."""
    repeat_times: int = 4


@dataclass(frozen=True)
class MoonshineModel:
    """The weights and tables that all sessions share."""

    encoder: Engine
    decoder: Engine
    tokenizer: Tokenizer
    bos_id: int = 1
    eos_id: int = 2
    limits: DecodingLimits = DecodingLimits()
    beam: BeamSettings = field(default_factory=BeamSettings)

    @cached_property
    def decoding(self) -> Decoding:
        """What the search needs of the model; made when first asked for (0.1 s for the letters of all tokens)."""
        limits = self.limits
        letters = Letters(self.tokenizer.texts())
        return Decoding(self.bos_id, self.eos_id, limits.repeat_tokens, limits.repeat_times, letters, self.beam)


class MoonshineRecogniser:
    """One session's hearing; see `Recogniser`."""

    def __init__(self, model: MoonshineModel) -> None:
        self._model = model
        self._encoder = model.encoder.stream()
        self._decoder = model.decoder.stream()
        self._capacity = int(model.limits.max_utterance_s * RATE_HZ)
        self.dropped_samples = 0
        """Samples beyond the length cap that were not kept, since the recogniser was made."""
        self.reset()

    @property
    def samples(self) -> int:
        """Samples heard since `reset`."""
        return self._heard

    def push(self, frame: Frame) -> Sequence[Partial]:
        """Keep 10 ms; this model reads whole utterances, so it gives no partials by itself."""
        return self.push_samples(frame.samples)

    def push_samples(self, samples: Samples) -> Sequence[Partial]:
        """Keep any number of samples, shape [n]."""
        room = min(samples.size, self._capacity - self._heard)
        self._sound[self._heard : self._heard + room] = samples[:room]
        self._heard += room
        self.dropped_samples += samples.size - room
        return ()

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        """Decode what was heard up to a sample; see `Recogniser`."""
        sound = self._sound[: min(until_sample, self._heard)]
        limits = self._model.limits
        if sound.size < limits.min_samples or not _audible(sound, limits.silence_rms):
            return Hypothesis("", 0.0, reach=None if bias is None else bias.look(""))
        try:
            heard = self._read(sound, bias, cancel)
            later = sound[int(limits.second_look_s * RATE_HZ) :]
            if heard.text or later.size < limits.min_samples:
                return heard
            again = self._read(later, bias, cancel)
            return heard if not again.text and _same_phrase(heard, again) else again
        except EngineError as error:
            raise SpeechError(f"recognition failed: {error}") from error

    def flush(self) -> Hypothesis:
        """Decode all that was heard."""
        return self.hypothesise(self._heard, None, Cancel())

    def reset(self) -> None:
        """A new utterance. The old sound is let go, not overwritten: a worker may still be reading it."""
        self._sound: Samples = np.empty(self._capacity, dtype=np.float32)
        self._heard = 0

    def _read(self, sound: Samples, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        try:
            return self._read_once(sound, bias, cancel)
        except StreamLostError:
            # A device took the stream with it; the sound is still here, and another rung serves by now.
            return self._read_once(sound, bias, cancel)

    def _read_once(self, sound: Samples, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        limits = self._model.limits
        padded = np.zeros((1, sound.size + int(limits.pad_s * RATE_HZ)), dtype=np.float32)
        padded[0, : sound.size] = sound
        cross = self._encoder.run({"audio": padded})
        cancel.check()
        most = int(sound.size / RATE_HZ * limits.tokens_per_s) + limits.spare_tokens
        return self._decode(cross, most, bias, cancel)

    def _decode(self, cross: Mapping[str, Array], max_tokens: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        decoder = self._decoder
        decoder.reset()

        def step(tokens: Sequence[int], rows: Sequence[int]) -> Array:
            ids = np.array(tokens, dtype=np.int64)[:, None]
            return decoder.run({"ids": ids, "rows": np.array(rows, dtype=np.int64), **cross})["logits"][:, -1]

        found = decode(step, self._model.decoding, max_tokens, cancel, bias)
        return hypothesis_of(found, self._model.tokenizer.decode, bias, found.cut)


def _same_phrase(a: Hypothesis, b: Hypothesis) -> bool:
    """Whether two looks at the same sound agree on a phrase."""
    return a.phrase is not None and b.phrase is not None and plain_letters(a.phrase) == plain_letters(b.phrase)


_AUDIBLE_WINDOW: Final = 10 * FRAME_SAMPLES


def _audible(sound: Samples, rms: float) -> bool:
    whole = sound[: sound.size // _AUDIBLE_WINDOW * _AUDIBLE_WINDOW].reshape(-1, _AUDIBLE_WINDOW)
    return bool(whole.size) and bool((np.einsum("ij,ij->i", whole, whole) / _AUDIBLE_WINDOW).max() > rms * rms)
