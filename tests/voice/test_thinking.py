from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from appliance.errors import SpeechError
from appliance.intent.types import UtteranceId
from appliance.voice import loop
from appliance.voice.asr.protocol import Extension, Hypothesis, Reach
from appliance.voice.parts import Fault, Message, PartialJudged, Post
from appliance.voice.thinking import Thinking
from tests.fakes import FakeThinker

WHOLE = Hypothesis("turn on the lights", -1.0, reach=Reach(True, True, Extension.NONE))
FREE = Hypothesis("turn on the lights", -1.0)


class Worker:
    """Runs what was submitted when it is told to."""

    def __init__(self) -> None:
        self.work: list[Callable[[Post], None]] = []
        self.posted: list[Message] = []

    def run(self) -> list[str]:
        for work in self.work:
            work(self.posted.append)
        self.work.clear()
        return [type(message).__name__ for message in self.posted]


@pytest.fixture
def thought() -> tuple[Thinking, FakeThinker, Worker]:
    thinker, worker = FakeThinker(), Worker()
    return Thinking(thinker, "Kitchen", worker.work.append), thinker, worker


def test_a_match_tells_the_meaning_and_then_the_reply(thought: tuple[Thinking, FakeThinker, Worker]) -> None:
    thinking, _, worker = thought
    thinking.match(3, FREE)
    assert worker.run() == ["Matched", "Foreseen"]
    matched = worker.posted[0]
    assert isinstance(matched, loop.Matched)
    assert (matched.generation, matched.accepted.understanding.area) == (3, "Kitchen")


@pytest.mark.parametrize("light", [False, True])
def test_what_a_lighter_recogniser_heard_is_not_sure(
    thought: tuple[Thinking, FakeThinker, Worker], light: bool
) -> None:
    thinking, _, worker = thought
    phrase = Hypothesis("gibberish", -1.0, phrase="turn on the lights", phrase_logp=-1.5, light=light)
    for number, hypothesis in enumerate((replace(FREE, light=light), phrase)):
        thinking.match(number, hypothesis)
    worker.run()
    meanings = [m.accepted.understanding for m in worker.posted if isinstance(m, loop.Matched)]
    assert [(m.text, m.unsure) for m in meanings] == [("turn on the lights", light)] * 2


def test_of_a_partial_only_a_sure_sentence_is_thought_further(thought: tuple[Thinking, FakeThinker, Worker]) -> None:
    thinking, thinker, worker = thought
    thinking.judge_partial(1, FREE)
    assert worker.run() == ["PartialJudged"]
    assert thinker.previewed == 0
    thinking.judge_partial(1, WHOLE)
    assert worker.run() == ["PartialJudged", "PartialJudged", "Foreseen"]
    assert isinstance(worker.posted[0], PartialJudged)


def test_what_is_cancelled_is_dropped_and_later_thoughts_are_not(
    thought: tuple[Thinking, FakeThinker, Worker],
) -> None:
    thinking, thinker, worker = thought
    thinking.match(1, FREE)
    thinking.match(2, FREE)
    thinking.match(3, FREE)
    thinking.cancel(2)
    worker.run()
    assert [m.generation for m in worker.posted if isinstance(m, loop.Matched)] == [3]
    assert len(thinker.matched) == 1


def test_a_deed_that_fails_is_a_fault_and_a_preview_that_fails_is_none(
    thought: tuple[Thinking, FakeThinker, Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking, thinker, worker = thought

    def fail(*_: object) -> None:
        raise SpeechError("told to fail")

    monkeypatch.setattr(thinker, "preview", fail)
    thinking.match(1, FREE)
    assert worker.run() == ["Matched"]
    monkeypatch.setattr(thinker, "commit", fail)
    thinking.commit(1, thinker.match("turn on the lights"), UtteranceId("u"))
    assert worker.run() == ["Matched", "Fault"]
    assert worker.posted[1] == Fault(1, "commit", "voice", "told to fail")
