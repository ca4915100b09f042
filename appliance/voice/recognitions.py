"""A session's recognitions: partials on a schedule while somebody speaks, guesses at a likely end.

They run one at a time on the session's worker. A guess takes over a partial that has heard all the speech there was:
most of the wait is over then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.audio.frame import RATE_HZ
from appliance.voice.asr.protocol import Bias, Cancel, Cancelled, Hypothesis, Recogniser
from appliance.voice.parts import Post, RecognitionMade, SessionSettings

__all__ = ["Finished", "Recognitions", "Spent"]


@dataclass(slots=True)
class _Job:
    number: int
    generation: int
    until_s: float
    """Capture time up to which it hears."""
    started_s: float
    guess: bool
    """False: a partial."""
    cancel: Cancel = field(default_factory=Cancel)


@dataclass(frozen=True, slots=True)
class Finished:
    """A recognition that is done and still of interest to somebody."""

    generation: int
    guess: bool
    hypothesis: Hypothesis | None
    error: Exception | None


@dataclass(slots=True)
class Spent:
    """What an utterance's recognitions took."""

    started: int = 0
    cost_s: float = 0.0
    last_cost_s: float = 0.0
    """Of the newest one: the one that counted, once the utterance is decided."""


class Recognitions:
    """See the module. Called on the session's thread."""

    def __init__(
        self,
        recogniser: Recogniser,
        bias: Callable[[], Bias | None],
        submit: Callable[[Callable[[Post], None]], None],
        settings: SessionSettings,
    ) -> None:
        self._recogniser = recogniser
        self._bias = bias
        self._submit = submit
        self._settings = settings
        self._count = 0
        self._job: _Job | None = None
        self._last: tuple[_Job, Hypothesis] | None = None
        self._next_partial_s = 0.0
        self._share = 1.0
        self.spent = Spent()

    @property
    def heard_until_s(self) -> float | None:
        """Up to when the present guess has heard, be it done or on its way; None where there is none."""
        if self._job is not None and self._job.guess:
            return self._job.until_s
        return self._last[0].until_s if self._last is not None and self._last[0].guess else None

    def begin(self) -> None:
        """A new utterance."""
        self.cancel()
        self.spent = Spent()

    def speech_began(self, started_s: float) -> None:
        """The first partial is due a while after this."""
        self._next_partial_s = started_s + self._settings.partial_every_s

    def guess(self, generation: int, now_s: float, until_s: float, loud_s: float | None) -> Hypothesis | None:
        """Recognise all that was heard; gives the text at once where a partial knew it already.

        `until_s` is the capture time just after the newest sample, `loud_s` that of the last speech.
        """
        reach_s = until_s if loud_s is None else min(loud_s, until_s)
        if self._last is not None and self._covers(self._last[0], generation, reach_s):
            job, hypothesis = self._last
            job.guess = True
            return hypothesis
        if self._job is not None and self._covers(self._job, generation, reach_s):
            self._job.guess = True
            return None
        self._start(generation, now_s, until_s, guess=True)
        return None

    def partial(self, generation: int, now_s: float, until_s: float, share: float = 1.0) -> None:
        """Recognise what was heard so far, where that is due and nothing else runs. With a `share` below 1 (and above
        0) the next one is due so much later."""
        self._share = share
        if self._job is not None or now_s < self._next_partial_s:
            return
        if self._recogniser.samples > self._settings.partial_until_s * RATE_HZ:
            return
        self._start(generation, now_s, until_s, guess=False)

    def made(self, message: RecognitionMade) -> Finished | None:
        """Take a result; None where nobody wants it any more."""
        job = self._job
        self.spent.cost_s += message.cost_s
        if job is None or job.number != message.number:
            return None
        self._job = None
        self.spent.last_cost_s = message.cost_s
        settings = self._settings
        # A guess shows what was said as well as a partial does: the next one is not due sooner.
        every_s = max(settings.partial_every_s, message.cost_s / settings.partial_share)
        self._next_partial_s = job.started_s + every_s / self._share
        if message.hypothesis is not None:
            self._last = (job, message.hypothesis)
        return Finished(job.generation, job.guess, message.hypothesis, message.error)

    def cancel(self) -> None:
        """Nothing that was started is wanted any more."""
        if self._job is not None:
            self._job.cancel.cancel()
            self._job = None
        self._last = None

    def _covers(self, job: _Job, generation: int, reach_s: float) -> bool:
        return job.generation == generation and job.until_s >= reach_s

    def _start(self, generation: int, now_s: float, until_s: float, *, guess: bool) -> None:
        self.cancel()
        self._count += 1
        self._job = job = _Job(self._count, generation, until_s, now_s, guess)
        self.spent.started += 1
        if not guess:
            self._next_partial_s = now_s + self._settings.partial_every_s / self._share
        recogniser, until, bias = self._recogniser, self._recogniser.samples, self._bias()

        def work(post: Post) -> None:
            started_s = time.perf_counter()
            hypothesis, error = None, None
            try:
                job.cancel.check()
                hypothesis = recogniser.hypothesise(until, bias, job.cancel)
            except Cancelled:
                pass
            except Exception as failure:  # noqa: BLE001 - a stage's fault becomes a message, whatever it is
                error = failure
            post(RecognitionMade(job.number, hypothesis, time.perf_counter() - started_s, error))

        self._submit(work)
