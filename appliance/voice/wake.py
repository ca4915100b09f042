"""Wake words: several microWakeWord models over one feature extractor, with threshold and refractory time.

Models and features come from pymicro-wakeword (Apache-2.0). Its classes are not thread-safe and hold the
recurrent state inside the interpreter (80 kB), so every session has its own.

The models run on every third frame only; the two before are kept until then, for three frames together cost little more
than one: where a processor comes from its rest every 10 ms, whatever it touches has to be fetched anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, Frame
from appliance.errors import UsageError
from appliance.voice.wake_model import Features, WakeModel

if TYPE_CHECKING:
    from appliance.voice.meter import WakeListener

__all__ = ["WAKE_WORDS", "OwnVoice", "WakeDetector", "WakeHit", "WakeSettings", "wake_words"]

WAKE_WORDS: Final = ("okay_nabu", "hey_jarvis", "alexa", "hey_mycroft")

OWN_THRESHOLD: Final = 0.4
"""Of Wren's own voice, as it was played: below every model's cutoff, so that it is told before its echo fires."""
OWN_S: Final = 1.0
"""An echo fires this much later than what was played, at most."""
_INT16_SCALE: Final = 32767.0


@dataclass(frozen=True, slots=True)
class WakeSettings:
    """Which words, and how sure the detector must be."""

    words: tuple[str, ...] = ("okay_nabu",)
    threshold: float | None = None
    """Mean probability that fires, 0..1; None takes each model's own cutoff."""
    refractory_s: float = 1.5
    """After a hit nothing fires for this long: one spoken word must not wake twice."""


@dataclass(frozen=True, slots=True)
class WakeHit:
    """A wake word was heard."""

    name: str
    score: float
    """Mean probability over the model's window, 0..1."""
    time_s: float
    """Capture time just after the frame in which it fired."""


class WakeDetector:
    """A streaming part: frames in, hits out. Of several words that fire in one frame the surest wins."""

    def __init__(self, settings: WakeSettings = WakeSettings()) -> None:
        # Imported here: it loads a native library, which a process that only converts models does not need.
        from pymicro_wakeword import MicroWakeWordFeatures

        self._settings = settings
        self._extractor = MicroWakeWordFeatures()
        self._models = [WakeModel(name) for name in wake_words(settings.words)]
        self._strides = math.gcd(*(model.stride for model in self._models)) or 1
        longest = max((model.stride for model in self._models), default=1)
        self._sound = np.empty(longest * FRAME_SAMPLES, dtype=np.float32)
        self._pcm = np.empty(longest * FRAME_SAMPLES, dtype="<i2")
        self._quiet_until_s = -np.inf
        self._waiting: list[Frame] = []
        self._due = 1
        """Frames until a model runs."""
        self._given = 0
        """Features made so far."""
        self._gathered: list[list[Features]] = [[] for _ in self._models]

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the words listened for."""
        return tuple(model.name for model in self._models)

    def push(self, frame: Frame) -> Sequence[WakeHit]:
        """Hear 10 ms; at most one hit."""
        self._waiting.append(frame)
        if len(self._waiting) < self._due:
            return ()
        hit: WakeHit | None = None
        for features in self._extractor.process_streaming(self._take()):
            self._given += 1
            for model, gathered in zip(self._models, self._gathered, strict=True):
                gathered.append(features)
                if len(gathered) < model.stride:
                    continue
                score = model.push(gathered)
                gathered.clear()
                cutoff = model.cutoff if self._settings.threshold is None else self._settings.threshold
                if score > cutoff and frame.end_s >= self._quiet_until_s and (hit is None or score > hit.score):
                    hit = WakeHit(model.name, score, frame.end_s)
        # The extractor's first window is longer than a frame; from then on a frame gives one feature.
        self._due = self._strides - self._given % self._strides if self._given else 1
        if hit is None:
            return ()
        self._quiet_until_s = frame.end_s + self._settings.refractory_s
        return (hit,)

    def flush(self) -> Sequence[WakeHit]:
        """Nothing is held back that could be a hit: no model would run on the frames that wait."""
        return ()

    def reset(self) -> None:
        """Forget all sound heard so far."""
        self._extractor.reset()
        for model in self._models:
            model.reset()
        self._quiet_until_s = -np.inf
        self._waiting.clear()
        self._due, self._given = 1, 0
        for gathered in self._gathered:
            gathered.clear()

    def _take(self) -> bytes:
        """The frames that waited, as the extractor wants them."""
        size = len(self._waiting) * FRAME_SAMPLES
        sound, pcm = self._sound[:size], self._pcm[:size]
        np.concatenate([frame.samples for frame in self._waiting], out=sound)
        self._waiting.clear()
        np.minimum(sound, 1.0, out=sound)
        np.maximum(sound, -1.0, out=sound)
        np.multiply(sound, _INT16_SCALE, out=sound)
        pcm[:] = sound
        return pcm.tobytes()


class OwnVoice:
    """Whether a wake word that the microphone heard was said by Wren: the same models listen to what is played.

    A streaming part beside a detector. Costs nothing while Wren is silent.
    """

    def __init__(self) -> None:
        self._detector: WakeDetector | None = None
        self._heard: dict[str, float] = {}
        self._playing = False
        self.dismissed = 0
        """Wake words that were Wren's own."""

    def push(self, played: Frame | None, beside: WakeListener) -> None:
        """Hear what was played in 10 ms (None: silence), listening for the words of the microphone's detector."""
        if played is None:
            self._playing = False
            return
        if self._detector is None or beside.words != self._detector.words:
            self._detector = WakeDetector(WakeSettings(beside.words, OWN_THRESHOLD, refractory_s=0.0))
        elif not self._playing:
            self._detector.reset()
        self._playing = True
        for hit in self._detector.push(played):
            self._heard[hit.name] = hit.time_s

    def said(self, hit: WakeHit) -> bool:
        """Whether this hit is an echo of Wren's own voice."""
        own = hit.time_s - self._heard.get(hit.name, -np.inf) <= OWN_S
        self.dismissed += own
        return own


def wake_words(words: Iterable[str]) -> tuple[str, ...]:
    """Names as the detector knows them ("okay nabu" is okay_nabu), each once. Raises `UsageError` for others."""
    names = list(dict.fromkeys(word.strip().lower().replace(" ", "_") for word in words))
    for name in names:
        if name not in WAKE_WORDS:
            raise UsageError(f"no wake word {name!r}; there are {', '.join(WAKE_WORDS)}")
    return tuple(names)
