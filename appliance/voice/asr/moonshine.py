"""Moonshine (Useful Sensors, MIT): raw 16 kHz sound of any length to text, so cost follows length.

Encoder: sound [1, n] to the cross keys and values of the decoder's layers. Decoder: token ids [1, 1] and its own
growing key/value cache to logits [1, 1, vocabulary] (`rows` names the cache's row to go on from). Greedy, guarded
against silence, loops and length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.errors import SpeechError
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis, Partial
from appliance.voice.asr.tokenizer import Tokenizer
from models.engines.base import Array, Engine
from models.errors import EngineError

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
    repeat_tokens: int = 12
    """Longest run that counts as a loop when it comes again and again."""
    repeat_times: int = 4


@dataclass(frozen=True, slots=True)
class MoonshineModel:
    """The weights and tables that all sessions share."""

    encoder: Engine
    decoder: Engine
    tokenizer: Tokenizer
    bos_id: int = 1
    eos_id: int = 2
    limits: DecodingLimits = DecodingLimits()


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
        del bias  # the biased search comes with the endpoint work; until then the text is free
        sound = self._sound[: min(until_sample, self._heard)]
        limits = self._model.limits
        if sound.size < limits.min_samples or not _audible(sound, limits.silence_rms):
            return Hypothesis("", 0.0)
        padded = np.zeros((1, sound.size + int(limits.pad_s * RATE_HZ)), dtype=np.float32)
        padded[0, : sound.size] = sound
        try:
            cross = self._encoder.run({"audio": padded})
            cancel.check()
            return self._decode(cross, int(sound.size / RATE_HZ * limits.tokens_per_s) + limits.spare_tokens, cancel)
        except EngineError as error:
            raise SpeechError(f"recognition failed: {error}") from error

    def flush(self) -> Hypothesis:
        """Decode all that was heard."""
        return self.hypothesise(self._heard, None, Cancel())

    def reset(self) -> None:
        """A new utterance. The old sound is let go, not overwritten: a worker may still be reading it."""
        self._sound: Samples = np.empty(self._capacity, dtype=np.float32)
        self._heard = 0

    def _decode(self, cross: Mapping[str, Array], max_tokens: int, cancel: Cancel) -> Hypothesis:
        model, limits = self._model, self._model.limits
        self._decoder.reset()
        ids: list[int] = []
        logp, cut = 0.0, "length"
        first_row = np.zeros(1, dtype=np.int64)
        token = model.bos_id
        for _ in range(max_tokens):
            cancel.check()
            logits = self._decoder.run({"ids": np.array([[token]], dtype=np.int64), "rows": first_row, **cross})[
                "logits"
            ][0, -1]
            token = int(logits.argmax())
            logp += _log_probability(logits, token)
            if token == model.eos_id:
                cut = ""
                break
            ids.append(token)
            loop = repeats(ids, limits.repeat_tokens, limits.repeat_times)
            if loop:
                ids = ids[: len(ids) - loop * (limits.repeat_times - 1)]
                cut = "repetition"
                break
        return Hypothesis(model.tokenizer.decode(ids), logp, len(ids), cut=cut or None)


def repeats(ids: Sequence[int], longest: int, times: int) -> int:
    """Length of the run that the ids end with `times` times in a row; 0 where there is none."""
    for length in range(1, longest + 1):
        if len(ids) < length * times:
            return 0
        tail = ids[-length:]
        if all(ids[-length * (k + 1) : -length * k] == tail for k in range(1, times)):
            return length
    return 0


_AUDIBLE_WINDOW: Final = 10 * FRAME_SAMPLES


def _audible(sound: Samples, rms: float) -> bool:
    whole = sound[: sound.size // _AUDIBLE_WINDOW * _AUDIBLE_WINDOW].reshape(-1, _AUDIBLE_WINDOW)
    return bool(whole.size) and bool((np.einsum("ij,ij->i", whole, whole) / _AUDIBLE_WINDOW).max() > rms * rms)


def _log_probability(logits: Array, token: int) -> float:
    top = float(logits.max())
    return float(logits[token]) - top - float(np.log(np.exp(logits - top).sum()))
