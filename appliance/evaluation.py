"""Judging a model's variants by what they are for: words heard, words understood of the voice, speech told from noise.

`models.quantize` takes these as its `Evaluate`; it knows engines, not what a home says to them. The hold-out is
recordings that calibration never hears: a folder laid out as `commands/manifest.tsv` and `negatives/manifest.tsv`
(columns `file` and `transcript`, tab separated). Without such a folder the voice's own held-out sentences stand in,
and the words that FP32 hears in them count as right.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from appliance.audio.files import read_blocks
from appliance.audio.frame import RATE_HZ, Samples
from appliance.audio.resample import MonoResampler
from appliance.errors import UsageError
from appliance.intent.normalise import normalise
from appliance.voice.asr.moonshine import MoonshineModel, MoonshineRecogniser
from appliance.voice.asr.tokenizer import Tokenizer
from models import Store
from models.engines.base import Array, Engine
from models.errors import EngineCheckError
from models.quantize import Evaluate, Material, Score, listening, passes
from models.quantize.sound import PROBE_SENTENCES, own_voice, phoneme_ids

if TYPE_CHECKING:
    from models.engines.tensorrt.selfcheck import Extra

__all__ = ["Clip", "Holdout", "evaluations", "load_material", "word_errors", "words_judge"]

ASR = "moonshine-base-en"
VOICE = "piper-en-us-joe"
VAD_THRESHOLD = 0.5
VAD_CONTEXT, VAD_WINDOW = 64, 512
"""Samples: what a run gets in front of the new ones, and the new ones (models/catalogue.toml, silero-vad)."""
CALIBRATION_CLIPS = 12
"""Recordings taken for calibration; more changes the ranges little and the time much."""
_HELD_SENTENCES = (
    *PROBE_SENTENCES,
    "ðə fɹˈʌnt dˈoːɹ ɪz lˈɑːkt.",
    "mˈɪlk ænd bɹˈɛd ɑːɹ ˈɔn jʊɹ ʃˈɑːpɪŋ lˈɪst.",
    "ðə lˈɪvɪŋ ɹˈuːm lˈæmp ɪz ˈɔn.",
    "ðə tˈaɪmɚ fɔːɹ tˈɛn mˈɪnɪts hɐz stˈɑːɹɾᵻd.",
    "ɪt ɪz naɪntˈiːn dᵻɡɹˈiːz aʊtsˈaɪd.",
    "ðə ɡɚɹˈɑːʒ dˈoːɹ ɪz klˈoʊzd.",
)
"""No time of day among them: the recogniser writes “7:30” or “seven thirty” of sounds that no ear tells apart."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and what is said in it."""

    sound: Samples
    """[n] float32 at 16 kHz."""
    words: str | None
    """None: not known; what FP32 hears counts."""
    group: str


@dataclass(frozen=True, slots=True)
class Holdout:
    """What variants are judged on."""

    clips: tuple[Clip, ...]

    @classmethod
    def load(cls, store: Store, speech: Path | None) -> Holdout:
        """From a folder of recordings, or of the own voice. Raises `UsageError` if the folder is none."""
        if speech is None:
            sounds = own_voice(store, VOICE, _HELD_SENTENCES, (), seed=2)
            return cls(tuple(Clip(sound, None, "own voice") for sound in sounds))
        clips = []
        for folder, group in (("commands", "commands"), ("negatives", "reading")):
            for name, transcript in _manifest(speech / folder):
                if transcript:
                    clips.append(Clip(_read(speech / folder / name), transcript, group))
        return cls(tuple(clips))


def load_material(speech: Path | None) -> Material:
    """What calibration may hear of a folder of recordings: those without a transcript, which the hold-out has not."""
    if speech is None:
        return Material()
    rows = [name for name, transcript in _manifest(speech / "negatives") if not transcript]
    chosen = rows[:: max(1, len(rows) // CALIBRATION_CLIPS)][:CALIBRATION_CLIPS]
    noises = [name for name, _ in _manifest(speech / "noise")]
    return Material(
        clips=tuple(_read(speech / "negatives" / name) for name in chosen),
        noises=tuple(_read(speech / "noise" / name) for name in noises),
        description=f"own voice in recorded noise, the pack's recording, {len(chosen)} recordings without transcript",
    )


def evaluations(store: Store, speech: Path | None, asr: str = ASR) -> dict[str, Evaluate]:
    """A judge for each group of graphs that `models.quantize` knows; `asr` is the recogniser that is judged."""
    holdout = Holdout.load(store, speech)
    heard = _Intelligible(store)
    return {
        "asr": _WordErrors(store, holdout, asr),
        "frontend": heard,
        "flow": heard,
        "vocoder": heard,
        "vad": _SameDecisions(holdout),
    }


def words_judge(store: Store, pack_id: str, part: str) -> Extra | None:
    """Right words on golden audio: what is heard through an engine is what is heard through the CPU's FP32 graph.

    For the check of an engine that was built, which raises `EngineCheckError` where it is not so. None for the voice:
    its graphs are judged by their sound alone (whole sentences are longer than a chunk is).
    """
    group = {"encoder": "asr", "decoder": "asr", "vad": "vad"}.get(part)
    if group is None:
        return None

    def extra(engine: Engine) -> Mapping[str, float | int | str]:
        from models.engines.tensorrt.sources import reference_engines

        judge = evaluations(store, None, pack_id if group == "asr" else ASR)[group]
        engines = reference_engines(store, pack_id)
        try:
            wanted, made = judge(engines), judge({**engines, part: engine})
        finally:
            for reference in engines.values():
                reference.close()
        if not passes(made, wanted):
            raise EngineCheckError(
                f"{pack_id} {part}: {made.measure} {made.value:.2%}, by the FP32 graph on the CPU {wanted.value:.2%}"
            )
        return {made.measure: round(made.value, 4)}

    return extra


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """Words wrong (put in, left out, replaced: Levenshtein) and words said."""
    a, b = normalise(said).split(), normalise(heard).split()
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(a)


class _WordErrors:
    """Word error rate of the recogniser on the hold-out."""

    def __init__(self, store: Store, holdout: Holdout, pack: str) -> None:
        self._tokenizer = Tokenizer.load(store.open(pack).path("tokenizer.bin"))
        self._holdout = holdout
        self._own: dict[int, str] = {}
        """Clip -> what FP32, which is judged first, heard in it."""

    def __call__(self, engines: Mapping[str, Engine]) -> Score:
        recogniser = _recogniser(engines, self._tokenizer)
        counts: dict[str, tuple[int, int]] = {}
        for number, clip in enumerate(self._holdout.clips):
            heard = _hear(recogniser, clip.sound)
            said = self._own.setdefault(number, heard) if clip.words is None else clip.words
            wrong, words = word_errors(said, heard)
            before = counts.get(clip.group, (0, 0))
            counts[clip.group] = (before[0] + wrong, before[1] + words)
        wrong, words = (sum(c[i] for c in counts.values()) for i in (0, 1))
        details = {group: w / max(n, 1) for group, (w, n) in counts.items()}
        return Score("word error rate", wrong / max(words, 1), True, len(self._holdout.clips), details)


class _Intelligible:
    """Word error rate of what the recogniser hears in the voice, against what it hears in the FP32 voice."""

    def __init__(self, store: Store) -> None:
        pack = store.open(VOICE)
        config = pack.path("en_US-joe-medium.onnx.json")
        self._phonemes = [phoneme_ids(config, sentence) for sentence in _HELD_SENTENCES]
        self._recogniser = _recogniser(listening(store), Tokenizer.load(store.open(ASR).path("tokenizer.bin")))
        self._said: list[str] | None = None

    def __call__(self, engines: Mapping[str, Engine]) -> Score:
        heard = [_hear(self._recogniser, _spoken(engines, ids)) for ids in self._phonemes]
        if self._said is None:
            self._said = heard
        pairs = [word_errors(a, b) for a, b in zip(self._said, heard, strict=True)]
        rate = sum(wrong for wrong, _ in pairs) / max(sum(n for _, n in pairs), 1)
        return Score("words heard otherwise", rate, True, len(heard))


class _SameDecisions:
    """Share of windows that are taken for speech, or for none, as FP32 takes them."""

    def __init__(self, holdout: Holdout) -> None:
        self._holdout = holdout
        self._fp32: Array | None = None

    def __call__(self, engines: Mapping[str, Engine]) -> Score:
        decisions = np.concatenate([_speech_windows(engines["vad"], clip.sound) for clip in self._holdout.clips])
        if self._fp32 is None:
            self._fp32 = decisions
        return Score("windows judged as by FP32", float((decisions == self._fp32).mean()), False, decisions.size)


def _recogniser(engines: Mapping[str, Engine], tokenizer: Tokenizer) -> MoonshineRecogniser:
    return MoonshineRecogniser(MoonshineModel(engines["encoder"], engines["decoder"], tokenizer))


def _hear(recogniser: MoonshineRecogniser, sound: Samples) -> str:
    recogniser.reset()
    recogniser.push_samples(sound)
    return recogniser.flush().text


def _spoken(engines: Mapping[str, Engine], ids: Array) -> Samples:
    """A sentence by the voice's three graphs, whole, as 16 kHz."""
    lengths = np.array([ids.shape[1]], dtype=np.int64)
    scales = np.array([0, 1, 0], dtype=np.float32)
    text = engines["frontend"].stream().run({"phonemes": ids, "lengths": lengths, "scales": scales})
    spectral = engines["flow"].stream().run({"latent": text["latent"], "mask": text["mask"]})["spectral"]
    audio = np.asarray(engines["vocoder"].stream().run({"spectral": spectral})["audio"], dtype=np.float32).ravel()
    resampler = MonoResampler(22_050, RATE_HZ)
    return np.concatenate((resampler.push(audio), resampler.flush()))


def _speech_windows(engine: Engine, sound: Samples) -> Array:
    stream = engine.stream()
    padded = np.concatenate((np.zeros(VAD_CONTEXT, dtype=np.float32), sound))
    windows = [
        padded[None, at : at + VAD_CONTEXT + VAD_WINDOW]
        for at in range(0, padded.size - VAD_CONTEXT - VAD_WINDOW + 1, VAD_WINDOW)
    ]
    return np.array(
        [float(stream.run({"input": w})["output"].ravel()[0]) >= VAD_THRESHOLD for w in windows], dtype=bool
    )


def _manifest(folder: Path) -> Sequence[tuple[str, str]]:
    """(file, transcript) of each row. Raises `UsageError`."""
    try:
        with (folder / "manifest.tsv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        return [(row["file"], row.get("transcript") or "") for row in rows]
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise UsageError(f"{folder / 'manifest.tsv'} is no list of recordings: {error}") from error


def _read(path: Path) -> Samples:
    return np.concatenate([np.asarray(block, dtype=np.float32) for block in read_blocks(path)])
