"""Wake words: several microWakeWord models over one feature extractor, with threshold and refractory time.

Models and features come from pymicro-wakeword (Apache-2.0). Its classes are not thread-safe and hold the
recurrent state inside the interpreter (80 kB), so every session has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from appliance.audio.frame import Frame
from appliance.errors import UsageError

if TYPE_CHECKING:
    from pymicro_wakeword import MicroWakeWord

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
        self._features = MicroWakeWordFeatures()
        self._models = [(name, _load(name)) for name in wake_words(settings.words)]
        self._quiet_until_s = -np.inf

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the words listened for."""
        return tuple(name for name, _ in self._models)

    def push(self, frame: Frame) -> Sequence[WakeHit]:
        """Hear 10 ms; at most one hit."""
        pcm = (np.clip(frame.samples, -1.0, 1.0) * _INT16_SCALE).astype("<i2").tobytes()
        hit: WakeHit | None = None
        for features in self._features.process_streaming(pcm):
            for name, model in self._models:
                score = model.process_streaming_prob(features) or 0.0
                cutoff = model.probability_cutoff if self._settings.threshold is None else self._settings.threshold
                if score > cutoff and frame.end_s >= self._quiet_until_s and (hit is None or score > hit.score):
                    hit = WakeHit(name, score, frame.end_s)
        if hit is None:
            return ()
        self._quiet_until_s = frame.end_s + self._settings.refractory_s
        return (hit,)

    def flush(self) -> Sequence[WakeHit]:
        """Nothing is held back: a hit needs whole frames, and they have been judged."""
        return ()

    def reset(self) -> None:
        """Forget all sound heard so far (the interpreter has no cheaper way than to be made again)."""
        self._features.reset()
        for _, model in self._models:
            model.reset()
        self._quiet_until_s = -np.inf


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


def _load(name: str) -> MicroWakeWord:
    from pymicro_wakeword import MicroWakeWord, Model

    return MicroWakeWord.from_builtin(Model(name))
