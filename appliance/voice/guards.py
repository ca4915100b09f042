"""A session's stages with a time limit, a circuit breaker and a meter around each; degraded as the ladder asks.

What fails, hangs or is resting raises here, on the session's worker, and becomes the session's fault like any other
error of a stage: the utterance ends, the session goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from appliance.audio.frame import RATE_HZ, Frame, Samples
from appliance.errors import ApplianceError
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.voice.asr.protocol import Bias, Cancel, Cancelled, Hypothesis, Partial, Recogniser
from appliance.voice.breaker import Breakers
from appliance.voice.limits import LIMITS, StageRestingError, StageTimeoutError, TimeLimits
from appliance.voice.meter import SessionMeter
from appliance.voice.parts import Synthesiser, Thinker
from appliance.voice.relief import Relief
from appliance.voice.turns import Turns
from models.engines.watchdog import Watchdog
from models.errors import EngineHungError, ModelsError

__all__ = ["BUSY_REPLY", "Guard", "GuardedRecogniser", "GuardedSynthesiser", "GuardedThinker"]

_LOG = logging.getLogger(__name__)

BUSY_REPLY: Final = "I am very busy. The answer is on the page."
"""Said instead of a reply that would have to be made, where only what was made before is said."""

_LIGHT: Final = "light voice"
_KEPT: Final = "kept replies"
"""A stage of its own: what was made before is said while the voice rests, and does not vouch for it."""

REPORT_S: Final = 0.3
"""Speech that is made, at least, between two reports of how fast: single pieces vary."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guards of a session share with those of others."""

    meter: SessionMeter
    relief: Callable[[], Relief]
    breakers: Breakers
    turns: Turns
    watchdog: Watchdog
    head_start_s: float = 0.0
    """Of this session, in the queue for a recognition."""
    limits: TimeLimits = LIMITS

    def call(self, stage: str, work: Callable[[], T], limit_s: float) -> T:
        """The work's value, or what it raised. Raises `StageTimeoutError`, `StageRestingError`."""
        rest_s = self.breakers.allows(stage)
        if rest_s is not None:
            why = self.breakers.reason(stage)
            raise StageRestingError(f"{stage} failed again and again ({why}); it is tried again in {rest_s:.0f} s")
        try:
            value = self.watchdog.call(work, limit_s)
        except Cancelled:
            self.breakers.left(stage)
            raise
        except EngineHungError:
            late = StageTimeoutError(f"{stage} gave no answer within {limit_s:g} s, and was given up")
            self.breakers.failed(stage, str(late))
            raise late from None
        except Exception as error:
            self.breakers.failed(stage, str(error) or type(error).__name__)
            raise
        self.breakers.succeeded(stage)
        return value


class GuardedRecogniser:
    """See `Recogniser`. Which of two recognisers hears an utterance is decided when it begins."""

    def __init__(
        self, make: Callable[[], Recogniser], guard: Guard, make_light: Callable[[], Recogniser | None] | None = None
    ) -> None:
        """`make` is called again after a time-out: what was given up may still be using the old one. `make_light` is
        asked for each utterance that the lighter one is to hear, and gives None while that is not open: the planned
        one hears then."""
        self._make, self._make_light = make, make_light
        self._guard = guard
        self._light = False
        self._inner = make()
        self._lost = False

    @property
    def samples(self) -> int:
        """See `Recogniser`."""
        return self._inner.samples

    def push(self, frame: Frame) -> Sequence[Partial]:
        """See `Recogniser`."""
        return self._inner.push(frame)

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        """See `Recogniser`. Raises `StageTimeoutError`, `StageRestingError`, `CrowdedError` too."""
        guard, inner, meter, light = self._guard, self._inner, self._guard.meter, self._light
        if self._lost:
            raise StageTimeoutError("the recogniser hangs, and is made anew for the next utterance")
        heard_s = until_sample / RATE_HZ
        limit_s = guard.limits.recognition_s + guard.limits.recognition_factor * heard_s
        waiting_s = time.perf_counter()
        with guard.turns.turn(guard.head_start_s, guard.limits.turn_s, cancel):
            started_s = time.perf_counter()
            age_s = meter.work_age_s + started_s - waiting_s
            try:
                heard = guard.call(
                    "recognition",
                    lambda: inner.hypothesise(until_sample, bias, cancel),
                    limit_s * guard.relief().patience,
                )
                return replace(heard, light=light)
            except StageTimeoutError:
                cancel.cancel()
                self._lost = True
                raise
            finally:
                meter.heard_s = heard_s
                if heard_s:
                    meter.report("recognition", time.perf_counter() - started_s, heard_s, age_s)

    def flush(self) -> Hypothesis:
        """See `Recogniser`."""
        return self.hypothesise(self.samples, None, Cancel())

    def reset(self) -> None:
        """See `Recogniser`."""
        light = self._make_light() if self._make_light is not None and self._guard.relief().light_recogniser else None
        if light is not None:
            # Each time: what the last utterance was heard with may have been let go of since, and another one opened.
            self._inner, self._light = light, True
        elif self._lost or self._light:
            self._inner, self._light = self._make(), False
        self._lost = False
        self._inner.reset()


class GuardedThinker:
    """See `Thinker`."""

    def __init__(self, thinker: Thinker, guard: Guard) -> None:
        self._thinker, self._guard = thinker, guard

    def match(self, text: str, area: str | None = None) -> Understanding:
        """See `Thinker`."""
        guard, meter = self._guard, self._guard.meter
        started_s = time.perf_counter()
        try:
            return guard.call("intent", lambda: self._thinker.match(text, area), guard.limits.intent_s)
        finally:
            if meter.heard_s:
                meter.report("intent", time.perf_counter() - started_s, meter.heard_s, meter.work_age_s)

    def preview(self, understanding: Understanding) -> Reply:
        """See `Thinker`."""
        return self._guard.call("intent", lambda: self._thinker.preview(understanding), self._guard.limits.intent_s)

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        """See `Thinker`."""
        return self._guard.call("home", lambda: self._thinker.commit(understanding, key), self._guard.limits.commit_s)


class GuardedSynthesiser:
    """See `Synthesiser`: the planned voice; a lighter one where the ladder says so, or where the planned one fails
    before its first sound."""

    def __init__(
        self,
        make: Callable[[], Synthesiser],
        guard: Guard,
        *,
        kept: Callable[[str], bool],
        light: Synthesiser | None = None,
    ) -> None:
        """`kept` says whether a text needs no making; `light` must have the same rate."""
        self._make, self._guard, self._kept, self._light = make, guard, kept, light
        self._inner = make()

    @property
    def rate_hz(self) -> int:
        """See `Synthesiser`."""
        return self._inner.rate_hz

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        """See `Synthesiser`. Raises `StageTimeoutError`, `StageRestingError` too."""
        relief = self._guard.relief()
        if self._kept(text):
            yield from self._pieces(_KEPT, self._inner, text, cancel)
            return
        if relief.kept_replies and text != self._guard.meter.announced and self._kept(BUSY_REPLY):
            yield from self._pieces(_KEPT, self._inner, BUSY_REPLY, cancel)
            return
        pieces = self._spoken(text, cancel, relief)
        if not relief.whole_replies:
            for samples in pieces:
                yield samples
                if self._guard.relief().whole_replies:
                    break  # in the middle of it: one gap more, and then no others
        yield from self._whole(pieces)

    def _spoken(self, text: str, cancel: Cancel, relief: Relief) -> Iterator[Samples]:
        begun = False
        if not (relief.light_voice and self._light is not None):
            try:
                for samples in self._pieces("synthesis", self._inner, text, cancel):
                    begun = True
                    yield samples
                return
            except (ApplianceError, ModelsError) as error:
                if isinstance(error, StageTimeoutError):
                    self._inner = self._make()  # what was given up may still be using the old one
                if begun or self._light is None:
                    raise
                _LOG.warning("%s; the lighter voice speaks", error)
        assert self._light is not None
        yield from self._pieces(_LIGHT, self._light, text, cancel)

    def _pieces(self, stage: str, voice: Synthesiser, text: str, cancel: Cancel) -> Iterator[Samples]:
        guard, meter, relief = self._guard, self._guard.meter, self._guard.relief()
        pieces = voice.stream(text, cancel)
        # What comes before the first piece of the planned voice is for the whole sentence: it makes an answer late, but
        # no gap, and says little of how fast the rest is made.
        skipped = stage == _LIGHT
        cost_s = sound_s = 0.0
        while True:
            started_s = time.perf_counter()
            try:
                samples = guard.call(stage, lambda: next(pieces, None), guard.limits.piece_s)
            except StageTimeoutError:
                cancel.cancel()
                raise
            if samples is not None and skipped:
                cost_s += time.perf_counter() - started_s
                sound_s += samples.size / self.rate_hz
            skipped = True
            if stage != _KEPT and sound_s and (samples is None or sound_s >= REPORT_S):
                # A step that was taken meanwhile is for the next reply: this one says nothing of what it brings.
                if guard.relief() is relief:
                    meter.report("synthesis", cost_s, sound_s, meter.work_age_s)
                cost_s = sound_s = 0.0
            if samples is None:
                return
            yield samples

    def _whole(self, pieces: Iterator[Samples]) -> Iterator[Samples]:
        import numpy as np

        until_s = time.perf_counter() + self._guard.limits.whole_s
        made: list[Samples] = []
        for samples in pieces:
            made.append(samples)
            if time.perf_counter() > until_s:
                break
        if made:
            yield np.concatenate(made)
        yield from pieces
