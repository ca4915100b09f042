"""Where nothing was understood: find what came nearest, and say which part of it this home does not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hassil.models import UnmatchedRangeEntity, UnmatchedTextEntity
from hassil.recognize import MISSING_ENTITY, RecognizeResult

from appliance.intent.grammar import NO_AREA, Grammar
from appliance.intent.lexicon import Lexicon
from appliance.intent.normalise import Normalised
from appliance.intent.problems import Problem, sentence_for

__all__ = ["explain"]

MAX_WORDS: Final = 14
"""Longer texts are talk: looking for unknown names in them would find them everywhere."""
MAX_UNKNOWN_WORDS: Final = 4
"""A longer stretch is no name."""
MIN_SENTENCE_CHARS: Final = len("open")
"""Less of the sentence's own words is no command."""
MAX_ECHO_CHARS: Final = 80
"""No more than this of what was heard is said back."""

COMMANDS: Final = frozenset(
    {
        "HassTurnOn",
        "HassTurnOff",
        "HassLightSet",
        "HassSetPosition",
        "HassFanSetSpeed",
        "HassClimateSetTemperature",
        "HassClimateGetTemperature",
        "HassSetVolume",
        "HassGetState",
        "HassGetWeather",
    }
)
"""Intents whose near misses are worth an explanation: the others say too little to tell them from talk."""


@dataclass(frozen=True, slots=True)
class _NearMiss:
    unknown: int
    """Characters that nothing in the sentence or the home accounts for."""
    order: int
    problem: Problem


def explain(grammar: Grammar, lexicon: Lexicon, plain: Normalised, area: str | None) -> str:
    """The sentence that says what was not understood."""
    misses = []
    if 0 < len(plain.words) <= MAX_WORDS:
        results = grammar.near_misses(plain.text, lexicon, area, COMMANDS)
        for order, result in enumerate(results):
            miss = _near_miss(result, lexicon, plain, order)
            if miss is not None:
                misses.append(miss)
    if misses:
        problem = min(misses, key=lambda m: (m.unknown, m.order)).problem
    elif plain.words:
        problem = Problem("not_understood", {"text": _shortened(plain.original)})
    else:
        problem = Problem("not_heard")
    return sentence_for(problem, grammar)


def _near_miss(result: RecognizeResult, lexicon: Lexicon, plain: Normalised, order: int) -> _NearMiss | None:
    """What one reading lacks, if it lacks exactly one thing and the rest of it is clearly a command."""
    lacking = [
        lack
        for lack in result.unmatched_entities_list
        if not (isinstance(lack, UnmatchedTextEntity) and lack.text == MISSING_ENTITY)
    ]
    if len(lacking) != 1 or result.text_chunks_matched < MIN_SENTENCE_CHARS or result.response == "one":
        return None  # "one" answers "what is …", and anything can be asked that way
    lack = lacking[0]
    if isinstance(lack, UnmatchedRangeEntity):
        number = int(lack.value) if float(lack.value).is_integer() else lack.value
        return _NearMiss(0, order, Problem("out_of_range", {"number": number}))
    if not isinstance(lack, UnmatchedTextEntity) or lack.name not in ("name", "area", "floor"):
        return None
    unknown = lack.text.strip()
    if not 0 < len(unknown.split()) <= MAX_UNKNOWN_WORDS or any(c.isdecimal() for c in unknown):
        return None
    start = plain.text.find(unknown)
    said = plain.as_said(start, start + len(unknown)) or unknown
    found = {name: e.value for name, e in result.entities.items() if e.value != NO_AREA and e.text}
    if lack.name != "name":
        problem = Problem(f"no_{lack.name}", {lack.name: said})
    elif any(list_name == "name" for list_name, _ in lexicon.values.get(unknown, ())):
        problem = Problem("wrong_kind", {"entity": said})
    elif "area" in found:
        problem = Problem("no_entity_in_area", {"entity": said, "area": found["area"]})
    elif "floor" in found:
        problem = Problem("no_entity_in_floor", {"entity": said, "floor": found["floor"]})
    else:
        problem = Problem("no_entity", {"entity": said})
    return _NearMiss(len(unknown), order, problem)


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_ECHO_CHARS else f"{words[:MAX_ECHO_CHARS].rsplit(' ', 1)[0]} …"
