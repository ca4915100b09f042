"""The spoken commands' transcripts, and talk that is no command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome
from tests.intent.shared import shared

pytestmark = pytest.mark.shared


@dataclass(frozen=True)
class Clip:
    transcript: str
    intent: str | None
    slots: dict[str, Any]


def clips(folder: str) -> Iterator[Clip]:
    for line in shared("speech", folder, "manifest.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        _, transcript, intent, slots = line.split("\t")[:4]
        if transcript:
            yield Clip(transcript, intent or None, json.loads(slots) if slots else {})


@pytest.fixture(scope="module")
def who() -> Assistant:
    return Assistant(MemoryHome.from_file(shared("speech", "commands", "home.json")))


def is_right(clip: Clip, who: Assistant, text: str) -> bool:
    understood = who.match(text)
    extra = {n: v for n, v in understood.slots.items() if n not in clip.slots}
    return (
        understood.intent == clip.intent
        and all(understood.slots.get(n) == v for n, v in clip.slots.items())
        and all(n == "domain" or (n, v) == ("area", "Kitchen") for n, v in extra.items())
    )


def test_every_command_is_understood_and_every_look_alike_is_not(who: Assistant) -> None:
    all_clips = list(clips("commands"))
    assert [c for c in all_clips if not is_right(c, who, c.transcript)] == []
    assert sum(c.intent is not None for c in all_clips) == 90


def test_commands_survive_how_a_recogniser_writes_them(who: Assistant) -> None:
    def written(text: str) -> str:
        text = text.replace("percent", "%").replace(" %", "%").replace("'", "’")
        return f"Uh, {text[0].upper()}{text[1:]}."

    assert [c for c in clips("commands") if not is_right(c, who, written(c.transcript))] == []


def test_every_command_gets_a_reply(who: Assistant) -> None:
    silent = [c.transcript for c in clips("commands") if not who.preview(who.match(c.transcript)).text]
    assert silent == ["nevermind"]


@pytest.mark.parametrize("folder", ["negatives", "other_languages"])
def test_ordinary_talk_and_other_languages_mean_nothing(who: Assistant, folder: str) -> None:
    heard = list(clips(folder))
    assert heard
    assert [c.transcript for c in heard if who.match(c.transcript).intent is not None] == []
