"""The façade of understanding: text in, meaning and reply out; acting only on commit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import uuid4

from appliance.intent.decide import Skills, decide
from appliance.intent.effects import after
from appliance.intent.grammar import Grammar, load_grammar
from appliance.intent.guarded import too_unsure
from appliance.intent.lexicon import Lexicon, build_lexicon, naming
from appliance.intent.matcher import understand
from appliance.intent.names import spoken_forms
from appliance.intent.outcome import Outcome
from appliance.intent.own_sentences import OwnSentences
from appliance.intent.problems import Problem, sentence_for
from appliance.intent.replies import reply_text
from appliance.intent.skills.lists import ListBook
from appliance.intent.skills.timers import Timer, TimerBook, local_now
from appliance.intent.types import Entity, Home, HomeView, Reply, Understanding, UtteranceId

__all__ = ["Assistant"]

_REMEMBERED_KEYS: Final = 1000
"""Utterances whose reply is kept for a repeated commit."""


class Assistant:
    """Understands sentences about one home, acts on them once, and answers.

    `match` and `preview` change nothing, so they may be speculated with; `commit` acts.
    """

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], datetime] = local_now,
        timers: TimerBook | None = None,
        lists: ListBook | None = None,
    ) -> None:
        """Raises IntentError where the home's language has no grammar."""
        self._home = home
        self.timers = TimerBook(clock) if timers is None else timers
        self.lists = ListBook() if lists is None else lists
        self._skills = Skills(self.timers, self.lists, clock)
        view = home.view()
        self._take(view)
        self._version = view.version
        self._run = uuid4().hex
        """Keeps the keys of this run's timers apart from those that a home remembers of an earlier run."""
        self._replies: OrderedDict[UtteranceId, asyncio.Future[Reply]] = OrderedDict()

    def view(self) -> HomeView:
        """The home as it is now."""
        return self._home.view()

    def match(self, text: str, area: str | None = None) -> Understanding:
        """What a text means, spoken in `area` (default: where the home has its microphone). Pure; never raises."""
        self.refresh()
        if area is None:
            area = self._home.view().satellite_area
        else:
            forms = spoken_forms(area, self._grammar.language)
            area = next((self._lexicon.areas[f] for f in forms if f in self._lexicon.areas), None)
        means = self._own.meaning(text)
        if means is None:
            return understand(self._grammar, self._lexicon, text, area)
        return replace(understand(self._grammar, self._lexicon, means, area), text=text)

    def preview(self, understanding: Understanding) -> Reply:
        """The reply that `commit` would give; changes nothing."""
        if understanding.intent is None:
            return self._sorry(understanding)
        outcome = self._decide(understanding, self._skills.copy())
        if outcome.command is not None:
            command = outcome.command
            outcome = replace(outcome, entities=tuple(after(e, command) for e in outcome.entities))
        return self._reply(understanding, outcome)

    async def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        """Act on what was understood, once per key, and answer; a repeated key gets the first reply."""
        known = self._replies.get(key)
        if known is not None:
            return await asyncio.shield(known)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[key] = future
        try:
            reply = await self._act(understanding, key)
        except BaseException as error:
            # Whoever waits for the same key learns of it; a later try asks the home again, which knows the key.
            del self._replies[key]
            if isinstance(error, Exception):
                future.set_exception(error)
                future.exception()  # read it here: often nobody else waits
            else:
                future.cancel()
            raise
        future.set_result(reply)
        while len(self._replies) > _REMEMBERED_KEYS:
            self._replies.popitem(last=False)
        return reply

    def refresh(self) -> None:
        """Take in a changed home. Called by `match`; cheap where only states changed."""
        view = self._home.view()
        if view.version == self._version:
            return
        if self._lexicon.naming != naming(view):
            self._take(view)
        self._version = view.version

    def _take(self, view: HomeView) -> None:
        self._grammar: Grammar = load_grammar(view.language)
        self._lexicon: Lexicon = build_lexicon(view, self._grammar.language)
        self._own = OwnSentences(view, self._grammar.language)
        self.lost_sentences = tuple(
            f"“{sentence.say[0]}” stands for “{sentence.means}”, which is no command in this home"
            for sentence in view.sentences
            if understand(self._grammar, self._lexicon, sentence.means, view.satellite_area).intent is None
        )
        """Of the home's own, those that can do nothing (any more)."""

    async def tick(self) -> list[tuple[Timer, Reply | None]]:
        """Timers that have ended since the last call. What was to be done later is done now; its reply comes along,
        None for a timer that only rings."""
        ended: list[tuple[Timer, Reply | None]] = []
        for timer in self.timers.due():
            reply = None
            if timer.command is not None:
                understanding = self.match(timer.command, timer.area)
                key = UtteranceId(f"timer-{self._run}-{timer.id}")
                reply = await self.commit(understanding, key)
            ended.append((timer, reply))
        return ended

    async def _act(self, understanding: Understanding, key: UtteranceId) -> Reply:
        if understanding.intent is None:
            return self._sorry(understanding)
        outcome = self._decide(understanding, self._skills)
        if outcome.command is not None:
            result = await self._home.act(outcome.command, key)
            if not result.ok:
                problem = result.problem or sentence_for(Problem("failed"), self._grammar)
                return Reply(problem, False, understanding)
            outcome = replace(outcome, entities=_as_they_are(outcome.entities, self._home.view()))
        return self._reply(understanding, outcome)

    def _decide(self, understanding: Understanding, skills: Skills) -> Outcome:
        """What it comes to; where it was not surely heard, nothing that guards the home, now or later."""
        view = self._home.view()
        if understanding.unsure:
            later = understanding.slots.get("conversation_command")
            meant = understanding if later is None else self.match(str(later), understanding.area)
            foreseen = decide(view, meant, skills.copy())
            if foreseen.command is not None and (problem := too_unsure(foreseen.entities)) is not None:
                return Outcome(problem=problem)
        return decide(view, understanding, skills)

    def _reply(self, understanding: Understanding, outcome: Outcome) -> Reply:
        text = reply_text(self._grammar, understanding, outcome)
        return Reply(text, outcome.problem is None, understanding)

    def _sorry(self, understanding: Understanding) -> Reply:
        return Reply(understanding.sorry or "", False, understanding)


def _as_they_are(entities: tuple[Entity, ...], view: HomeView) -> tuple[Entity, ...]:
    now = {e.id: e for e in view.entities}
    return tuple(now.get(e.id, e) for e in entities)
