"""Piper's VITS voice, streamed: a front end makes a sentence's latent frames, flow and vocoder make sound of them.

Flow and vocoder are stacks of convolutions, so what they make of a frame depends on a bounded number of neighbours:
given those (the margins), working in chunks equals working on the whole, and the first chunk is out long before the
last. The flow reaches 32 frames to each side and the vocoder 11; cut in two they need less overlap than as one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from appliance.audio.frame import Samples
from appliance.errors import SpeechError
from appliance.voice.asr.protocol import Cancel
from appliance.voice.tts.cache import ReplyCache, ReplyKey
from appliance.voice.tts.pace import LARGEST_FRAMES, Ahead, VoicePace
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
    join_frames: int = 0
    """Frames over which a chunk fades into the next, where margins are too small to make them meet exactly."""

    def trimmed(self) -> ChunkPlan:
        """With smaller margins: a tenth less work, and an error of 3e-3 of full scale at most where chunks meet."""
        return replace(self, flow_margin=24, vocoder_margin=9, join_frames=2)

    @property
    def overlap_frames(self) -> int:
        """Frames' worth of work that each chunk costs besides its own: a frame of flow is a quarter of the work."""
        return 2 * self.vocoder_margin + self.flow_margin // 2

    def planned(self, number: int) -> int:
        """New frames of a sentence's chunk."""
        return self.first[number] if number < len(self.first) else self.rest

    def chunks(self, frames: int) -> Iterator[tuple[int, int]]:
        """(first new frame, last new frame + 1) of each chunk on a quiet machine; they tile 0..frames."""
        at, number = 0, 0
        while at < frames:
            end = min(at + self.planned(number), frames)
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
    pace: VoicePace = field(init=False)
    """What all its sessions have seen of its speed."""

    def __post_init__(self) -> None:
        pace = VoicePace(self.hop / self.config.rate_hz, self.plan.overlap_frames)
        object.__setattr__(self, "pace", pace)


class PiperSynthesiser:
    """Text to sound for one session; chunks of [n] float32 at `rate_hz`."""

    def __init__(
        self, voice: PiperVoice, cache: ReplyCache | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` times what is made: the size of the chunks follows it."""
        self._voice = voice
        self._clock = clock
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
        ahead = Ahead()
        for number, sentence in enumerate(self._sentences(text)):
            cancel.check()
            if number:
                ahead.given(self._clock(), pause.size / self.rate_hz)
                yield pause
            try:
                for chunk in self._decode(sentence, cancel, ahead):
                    given_s = self._clock()
                    ahead.given(given_s, chunk.size / self.rate_hz)
                    yield chunk
                    ahead.resumed(self._clock(), self._clock() - given_s)
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

    def _decode(self, tokens: Sequence[int], cancel: Cancel, ahead: Ahead) -> Iterator[Samples]:
        voice, pace = self._voice, self._voice.pace
        made = self._frontend.run(
            {
                "phonemes": np.array([tokens], dtype=np.int64),
                "lengths": np.array([len(tokens)], dtype=np.int64),
                "scales": np.array([voice.noise_scale, voice.length_scale, voice.noise_w], dtype=np.float32),
            }
        )
        plan = voice.plan.trimmed() if pace.strained else voice.plan
        hop, margin = voice.hop, plan.vocoder_margin
        spectral = _Spectral(self._flow, plan, made["latent"], made["mask"])
        join = _Join(plan.join_frames * hop)
        at = number = 0
        while at < spectral.frames:
            cancel.check()
            began_s = self._clock()
            frames = pace.frames(plan.planned(number), plan.rest, ahead.seconds(began_s))
            end = min(at + frames, spectral.frames)
            start, stop = max(0, at - margin), min(spectral.frames, end + margin)
            sound: Array = self._vocoder.run({"spectral": spectral.upto(stop)[:, :, start:]})["audio"].reshape(-1)
            pace.made(end - at, self._clock() - began_s)
            yield join.push(sound[(at - start) * hop :], (end - at) * hop)
            at, number = end, number + 1


class _Join:
    """Fades what a chunk says of the beginning of the next into what that says itself."""

    def __init__(self, samples: int) -> None:
        self._rise = np.linspace(0.0, 1.0, samples + 2, dtype=np.float32)[1:-1]
        self._before: Samples = np.empty(0, dtype=np.float32)

    def push(self, sound: Samples, size: int) -> Samples:
        """A chunk of so many samples, and what was made beyond it."""
        chunk, beyond = sound[:size], sound[size : size + self._rise.size]
        count = min(self._before.size, size)
        if count:
            rise = self._rise[:count]
            chunk = np.concatenate((rise * chunk[:count] + (1.0 - rise) * self._before[:count], chunk[count:]))
        self._before = beyond
        return chunk


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
            # The more is needed the less is made beyond it: engines are built for chunks of a bounded length.
            beyond = min(self._plan.flow_ahead, max(0, LARGEST_FRAMES - (stop - known))) if known else 0
            until = min(self.frames, stop + beyond)
            start, end = max(0, known - margin), min(self.frames, until + margin)
            piece = {"latent": self._latent[:, :, start:end], "mask": self._mask[:, :, start:end]}
            made = self._flow.run(piece)["spectral"]
            self._made[:, :, known:until] = made[:, :, known - start : until - start]
            self._known = until
        return self._made[:, :, :stop]
