"""Fakes by role, for tests in which the real part is not the point. Named so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from appliance.audio.frame import FRAME_SAMPLES, Frame, Framer, Samples
from appliance.errors import SpeechError
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.voice import loop
from appliance.voice.asr.protocol import Bias, Cancel, Hypothesis, Partial, Reach
from appliance.voice.runner import LiveRunner
from models.engines.base import Array, State

RATE_HZ = 16_000


class FakeVadEngine:
    """An engine that hears speech wherever there is sound; its state counts windows."""

    def stream(self) -> FakeVadStream:
        return FakeVadStream()

    def close(self) -> None:
        return None


class FakeVadStream:
    """Probability 1 for windows louder than -40 dBFS, else 0."""

    def __init__(self) -> None:
        self.windows = 0

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        self.windows += 1
        new = inputs["input"][0, 64:]
        return {"output": np.array([[float(np.sqrt(np.mean(new**2)) > 0.01)]], np.float32)}

    def snapshot(self) -> State:
        return {"windows": np.array(self.windows)}

    def restore(self, state: State) -> None:
        self.windows = int(state["windows"])

    def reset(self) -> None:
        self.windows = 0


class FakeRecogniser:
    """Hears whatever it is told to; counts what it is asked."""

    def __init__(self, text: str = "turn on the lights") -> None:
        self.text = text
        self.reach: Reach | None = None
        self.fail = False
        self.asked: list[int] = []
        self.sound: list[Samples] = []
        self._samples = 0

    @property
    def samples(self) -> int:
        return self._samples

    def push(self, frame: Frame) -> Sequence[Partial]:
        self._samples += frame.samples.size
        self.sound.append(frame.samples)
        return ()

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        cancel.check()
        self.asked.append(until_sample)
        if self.fail:
            raise SpeechError("the fake recogniser was told to fail")
        return Hypothesis(self.text, -1.0, 4, reach=self.reach)

    def flush(self) -> Hypothesis:
        return self.hypothesise(self._samples, None, Cancel())

    def reset(self) -> None:
        self._samples = 0
        self.sound = []


class FakeThinker:
    """Understands every text but "gibberish"; remembers what it committed."""

    def __init__(self, reply: str = "Done.") -> None:
        self.reply = reply
        self.committed: list[UtteranceId] = []
        self.matched: list[str] = []
        self.previewed = 0

    def match(self, text: str, area: str | None = None) -> Understanding:
        self.matched.append(text)
        return Understanding(text, None if text in ("", "gibberish") else "HassTurnOn", area=area)

    def preview(self, understanding: Understanding) -> Reply:
        self.previewed += 1
        return Reply(self.reply, understanding.intent is not None, understanding)

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        self.committed.append(key)
        return Reply(self.reply, understanding.intent is not None, understanding)


class FakeSynthesiser:
    """Speaks each word as a tenth of a second of tone."""

    rate_hz = 22_050

    def __init__(self) -> None:
        self.fail = False
        self.spoken: list[str] = []
        """Texts begun."""
        self.made = 0
        """Pieces made of all of them."""

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        self.spoken.append(text)
        for _ in text.split():
            cancel.check()
            if self.fail:
                raise SpeechError("the fake synthesiser was told to fail")
            self.made += 1
            yield np.full(2205, 0.1, np.float32)


class FakePlayer:
    """Has played everything the moment it is complete; or never says so."""

    silent = False

    def __init__(self, runner: LiveRunner) -> None:
        self._runner = runner
        self._generation = 0

    def begin(self, generation: int, rate_hz: int) -> None:
        self._generation = generation

    def write(self, samples: Samples) -> None:
        return None

    def finish(self) -> None:
        if not self.silent:
            self._runner.post(loop.Played(self._generation))

    def stop(self) -> None:
        return None


def speech(seconds: float, seed: int = 0) -> Samples:
    """Sound that the fake detector takes for speech."""
    return (0.1 * np.random.default_rng(seed).standard_normal(int(seconds * RATE_HZ))).astype(np.float32)


def silence(seconds: float) -> Samples:
    """Sound that nobody takes for speech."""
    return (1e-4 * np.random.default_rng(9).standard_normal(int(seconds * RATE_HZ))).astype(np.float32)


def frames(*parts: Samples) -> list[Frame]:
    """Frames of parts of sound, one after the other."""
    framer = Framer()
    sound = np.concatenate(parts)
    return framer.push(sound[: sound.size // FRAME_SAMPLES * FRAME_SAMPLES])
