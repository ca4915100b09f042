"""What a session asks of its thinker: meanings of guesses, replies that can be foreseen, the deed itself.

Everything runs on the session's worker, under the generation that asked for it, and is dropped with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from appliance.intent.types import Understanding, UtteranceId
from appliance.voice import loop
from appliance.voice.asr.acceptance import Accepted, accepted_text
from appliance.voice.asr.protocol import Cancel, Cancelled, Hypothesis
from appliance.voice.parts import PartialJudged, Post, Thinker, fault_of

__all__ = ["Thinking"]


class Thinking:
    """See the module. Called on the session's thread."""

    def __init__(self, thinker: Thinker, area: str | None, submit: Callable[[Callable[[Post], None]], None]) -> None:
        """`area` is the microphone's; `submit` runs work on the worker."""
        self._thinker = thinker
        self._area = area
        self._submit = submit
        self._cancels: dict[int, list[Cancel]] = {}

    def match(self, generation: int, hypothesis: Hypothesis) -> None:
        """Find out what was said means, and what would be answered: `Matched`, then `Foreseen`."""

        def work(cancel: Cancel, post: Post) -> None:
            accepted = self._accepted(hypothesis)
            post(loop.Matched(generation, accepted))
            self._foresee(accepted, generation, cancel, post)

        self._start("match", generation, work)

    def judge_partial(self, generation: int, hypothesis: Hypothesis) -> None:
        """The same of a text that is not over yet: `PartialJudged`. Where it is surely a whole sentence already, its
        reply is worth having ready."""

        def work(cancel: Cancel, post: Post) -> None:
            accepted = self._accepted(hypothesis)
            post(PartialJudged(generation, accepted))
            if accepted.certain:
                self._foresee(accepted, generation, cancel, post)

        self._start("match", generation, work)

    def commit(self, generation: int, understanding: Understanding, key: UtteranceId) -> None:
        """Carry it out: `Committed`."""

        def work(cancel: Cancel, post: Post) -> None:
            post(loop.Committed(generation, self._thinker.commit(understanding, key)))

        self._start("commit", generation, work)

    def cancel(self, generation: int) -> None:
        """What was asked for under this or an older generation is not wanted any more."""
        for old in [g for g in self._cancels if g <= generation]:
            for cancel in self._cancels.pop(old):
                cancel.cancel()

    def forget(self) -> None:
        """The utterance is over: there is nothing left to cancel."""
        self._cancels.clear()

    def _accepted(self, hypothesis: Hypothesis) -> Accepted:
        def understood(text: str) -> Understanding:
            # A lighter recogniser takes words for their opposites now and then: "lock" for "unlock".
            return replace(self._thinker.match(text, self._area), unsure=hypothesis.light)

        return accepted_text(hypothesis, understood)

    def _foresee(self, accepted: Accepted, generation: int, cancel: Cancel, post: Post) -> None:
        if accepted.understanding.intent is None:
            return
        cancel.check()
        try:
            text = self._thinker.preview(accepted.understanding).text
        except Exception:  # noqa: BLE001 - a courtesy: what is wrong shows, and is told, when it is committed
            return
        post(loop.Foreseen(generation, text))

    def _start(self, stage: str, generation: int, work: Callable[[Cancel, Post], None]) -> None:
        cancel = Cancel()
        self._cancels.setdefault(generation, []).append(cancel)

        def guarded(post: Post) -> None:
            try:
                cancel.check()
                work(cancel, post)
            except Cancelled:
                pass  # dropped without a trace
            except Exception as error:  # noqa: BLE001 - a stage's fault becomes a message, whatever it is
                post(fault_of(generation, stage, error))

        self._submit(guarded)
