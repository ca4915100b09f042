"""Piper's VITS voice, streamed: a front end makes a sentence's latent frames, flow and vocoder make sound of them.

Flow and vocoder are stacks of convolutions, so what they make of a frame depends on a bounded number of neighbours:
given those (the margins), working in chunks equals working on the whole, and the first chunk is out long before the
last. The flow reaches 32 frames to each side and the vocoder 11; cut in two they need less overlap than as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from appliance.audio.frame import Samples
from appliance.errors import SpeechError
from appliance.voice.asr.protocol import Cancel
from appliance.voice.tts.cache import ReplyCache, ReplyKey
from appliance.voice.tts.phonemes import clauses
from appliance.voice.tts.spoken import spoken
from models.engines.base import Array, Engine, Stream
from models.errors import EngineError

__all__ = ["ChunkPlan", "Phonemiser", "PiperSynthesiser", "PiperVoice", "VoiceConfig"]

BOS: Final = "^"
EOS: Final = "$"
PAD: Final = "_"
_SENTENCE_END: Final = frozenset(".!?")


class Phonemiser(Protocol):
    """Clause to IPA."""

    def phonemes(self, clause: str) -> str:
        """IPA of one clause, NFD."""
        ...


@dataclass(frozen=True, slots=True)
class VoiceConfig:
    """What the voice's JSON file says that synthesis needs."""

    rate_hz: int
    espeak_voice: str
    phoneme_ids: dict[str, tuple[int, ...]]

    @classmethod
    def load(cls, path: Path) -> VoiceConfig:
        """Read a Piper voice's JSON. Raises `SpeechError` where it lacks what is needed."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            ids = {phoneme: tuple(map(int, numbers)) for phoneme, numbers in data["phoneme_id_map"].items()}
            return cls(int(data["audio"]["sample_rate"]), str(data["espeak"]["voice"]), ids)
        except (KeyError, TypeError, ValueError) as error:
            raise SpeechError(f"{path}: no Piper voice ({error!r}); run `wren models verify`") from None


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """How a reply is cut. Frames are 256 samples at 22.05 kHz: 11.6 ms."""

    flow_margin: int = 32
    """Frames of context on each side that make the flow exact."""
    vocoder_margin: int = 11
    """Frames of context on each side that make the vocoder exact."""
    first: tuple[int, ...] = (12, 24, 40)
    """New frames of the first chunks: few, so that sound starts early (140 ms of it), then more, so that each chunk
    is made while the one before it is heard."""
    rest: int = 60
    """New frames of every further chunk."""
    flow_ahead: int = 60
    """Frames that the flow goes beyond what is needed, after the first chunk: its overlap is dear."""

    def chunks(self, frames: int) -> Iterator[tuple[int, int]]:
        """(first new frame, last new frame + 1) of each chunk; they tile 0..frames."""
        at, number = 0, 0
        while at < frames:
            end = min(at + (self.first[number] if number < len(self.first) else self.rest), frames)
            yield at, end
            at, number = end, number + 1


@dataclass(frozen=True, slots=True)
class PiperVoice:
    """One voice: weights and tables, shared by all sessions."""

    name: str
    digest: str
    """Of the model files: the cache's key."""
    frontend: Engine
    """`phonemes` int64 [1, n], `lengths` int64 [1], `scales` float32 [3] to `latent` [1, 192, f], `mask` [1, 1, f]."""
    flow: Engine
    """`latent`, `mask` to `spectral` float32 [1, 192, f]."""
    vocoder: Engine
    """`spectral` to `audio` float32 [1, 1, 1, f * hop]."""
    config: VoiceConfig
    phonemiser: Phonemiser
    hop: int = 256
    plan: ChunkPlan = field(default_factory=ChunkPlan)
    length_scale: float = 1.0
    """Slower above 1."""
    noise_scale: float = 0.0
    """0 makes speech the same every time: cacheable, testable, and it costs this voice nothing to the ear."""
    noise_w: float = 0.0
    """0 fixes the rhythm likewise."""
    sentence_pause_s: float = 0.15


class PiperSynthesiser:
    """Text to sound for one session; chunks of [n] float32 at `rate_hz`."""

    def __init__(self, voice: PiperVoice, cache: ReplyCache | None = None) -> None:
        self._voice = voice
        self._cache = cache
        self._frontend = voice.frontend.stream()
        self._flow = voice.flow.stream()
        self._vocoder = voice.vocoder.stream()
        self.unknown_phonemes = 0
        """Phonemes the voice has no sound for, left out, since it was made."""

    @property
    def rate_hz(self) -> int:
        """Rate of the sound."""
        return self._voice.config.rate_hz

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        """Speak a text chunk by chunk. Raises `Cancelled`, `SpeechError`, `ProgramMissingError`.

        A reply that was spoken to its end is kept in the cache and comes from there in one piece next time.
        """
        text = spoken(text)
        key = ReplyKey(text, self._voice.name, self._voice.digest)
        kept = self._cache.get(key) if self._cache is not None else None
        if kept is not None:
            yield kept
            return
        made: list[Samples] = []
        for chunk in self._synthesise(text, cancel):
            made.append(chunk)
            yield chunk
        if self._cache is not None and made:
            self._cache.put(key, np.concatenate(made))

    def whole(self, text: str) -> Samples:
        """Speak a text in one piece; a text without a word gives no samples."""
        chunks = list(self.stream(text, Cancel()))
        return np.concatenate(chunks) if chunks else np.empty(0, dtype=np.float32)

    def _synthesise(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        pause = np.zeros(int(self._voice.sentence_pause_s * self.rate_hz), dtype=np.float32)
        for number, sentence in enumerate(self._sentences(text)):
            cancel.check()
            if number:
                yield pause
            try:
                yield from self._decode(sentence, cancel)
            except EngineError as error:
                raise SpeechError(f"synthesis failed: {error}") from error

    def _sentences(self, text: str) -> Iterator[list[int]]:
        """Token ids of each sentence: phonemes between ^ and $, a pad after each, as the voice was trained."""
        ids = self._voice.config.phoneme_ids
        tokens: list[int] = []
        for clause, mark in clauses(text):
            phonemes = self._voice.phonemiser.phonemes(clause) + mark
            for phoneme in (" " + phonemes) if tokens else phonemes:
                known = ids.get(phoneme)
                if known is None:
                    self.unknown_phonemes += 1
                    continue
                tokens += [*known, *ids[PAD]]
            if mark in _SENTENCE_END and tokens:
                yield [*ids[BOS], *ids[PAD], *tokens, *ids[EOS]]
                tokens = []
        if tokens:
            yield [*ids[BOS], *ids[PAD], *tokens, *ids[EOS]]

    def _decode(self, tokens: Sequence[int], cancel: Cancel) -> Iterator[Samples]:
        voice = self._voice
        made = self._frontend.run(
            {
                "phonemes": np.array([tokens], dtype=np.int64),
                "lengths": np.array([len(tokens)], dtype=np.int64),
                "scales": np.array([voice.noise_scale, voice.length_scale, voice.noise_w], dtype=np.float32),
            }
        )
        hop, margin = voice.hop, voice.plan.vocoder_margin
        spectral = _Spectral(self._flow, voice.plan, made["latent"], made["mask"])
        for first, end in voice.plan.chunks(spectral.frames):
            cancel.check()
            start, stop = max(0, first - margin), min(spectral.frames, end + margin)
            sound: Array = self._vocoder.run({"spectral": spectral.upto(stop)[:, :, start:]})["audio"].reshape(-1)
            yield sound[(first - start) * hop : (end - start) * hop]


class _Spectral:
    """A sentence's spectral frames, made by the flow as far as they are asked for."""

    def __init__(self, flow: Stream, plan: ChunkPlan, latent: Array, mask: Array) -> None:
        self._flow, self._plan, self._latent, self._mask = flow, plan, latent, mask
        self.frames: int = latent.shape[2]
        self._made = np.empty_like(latent)
        self._known = 0

    def upto(self, stop: int) -> Array:
        """Frames 0..stop, shape [1, channels, stop]."""
        if stop > self._known:
            margin, known = self._plan.flow_margin, self._known
            until = min(self.frames, stop + (self._plan.flow_ahead if known else 0))
            start, end = max(0, known - margin), min(self.frames, until + margin)
            piece = {"latent": self._latent[:, :, start:end], "mask": self._mask[:, :, start:end]}
            made = self._flow.run(piece)["spectral"]
            self._made[:, :, known:until] = made[:, :, known - start : until - start]
            self._known = until
        return self._made[:, :, :stop]
