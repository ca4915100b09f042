"""What Wren adds to a language: words, sentences and replies, kept as data in `data/<language>.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from appliance.errors import IntentError

__all__ = ["Language", "known_languages", "load_language"]


@dataclass(frozen=True, slots=True)
class Language:
    """One language's own data; every table is read only."""

    code: str
    """Two letters, as in the home file."""
    fillers: frozenset[str]
    """Words that mean nothing at the start of a sentence."""
    wake_words: tuple[tuple[str, ...], ...]
    """Wake words, in words, longest first: a rest of one may stand at the start of a transcript."""
    rewrites: Mapping[str, tuple[str, ...]]
    """One word as recognisers write it, and the words the grammar takes for it."""
    unit_words: Mapping[str, str]
    """Abbreviated units, spelled out where they follow a number."""
    numbers: Mapping[str, int]
    """Number words up to ninety."""
    scales: Mapping[str, int]
    """hundred, thousand."""
    class_words: frozenset[str]
    """Words that the grammar uses for kinds of things: a name made only of these is no name."""
    skip_words: tuple[str, ...]
    """Words dropped anywhere in a sentence, besides those of the intents package."""
    courtesies: tuple[str, ...]
    """Skip words that people say behind a sentence; recognition expects them there."""
    grammar: Mapping[str, Any]
    """Our own sentences, in the form of the intents package: lists, expansion_rules, intents."""
    phrase_rules: Mapping[str, str]
    """More ways to say what an expansion rule stands for, as recognisers write them ("half an hour"): the grammar
    itself reads only their normalised form ("30 minutes")."""
    ranges: Mapping[str, tuple[int, int]]
    """Number ranges of the package that are widened."""
    places: tuple[str, ...]
    """Where people can be, besides the home's own areas and zones."""
    replies: Mapping[str, Mapping[str, str]]
    """Reply templates by intent and key, instead of or besides the package's."""
    problems: Mapping[str, str]
    """Sentences that say why something was not done, instead of or besides the package's."""
    states: Mapping[str, Mapping[str, str]]
    """How a binary sensor's on and off are said, by device class."""


@cache
def load_language(code: str) -> Language:
    """Read a language's data once. Raises IntentError where Wren has none for it."""
    if code not in known_languages():
        raise IntentError(
            f"no sentences for the language {code!r}: set the home's language to one of {', '.join(known_languages())}"
        )
    path = resources.files("appliance.intent") / "data" / f"{code}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    words = data["words"]
    wake_words = sorted((tuple(w.split()) for w in words["wake_words"]), key=len, reverse=True)
    return Language(
        code=code,
        fillers=frozenset(words["fillers"]),
        wake_words=tuple(wake_words),
        rewrites={said: tuple(meant.split()) for said, meant in words["rewrites"].items()},
        unit_words=words["unit_words"],
        numbers=words["numbers"],
        scales=words["scales"],
        class_words=frozenset(words["class_words"]),
        skip_words=tuple(words["skip_words"]),
        courtesies=tuple(words["courtesies"]),
        grammar=data["grammar"],
        phrase_rules=data["phrase_rules"],
        ranges={name: (low, high) for name, (low, high) in data["ranges"].items()},
        places=tuple(data["places"]),
        replies=data["replies"],
        problems=data["problems"],
        states=data["states"],
    )


@cache
def known_languages() -> tuple[str, ...]:
    """Codes of the languages Wren has data for."""
    folder = resources.files("appliance.intent") / "data"
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(n.removesuffix(".json") for n in names if re.fullmatch(r"[a-z]{2}\.json", n)))
