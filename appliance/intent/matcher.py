"""From text to meaning: every reading the grammar allows, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hassil.models import MatchEntity
from hassil.recognize import RecognizeResult

from appliance.intent.grammar import NO_AREA, Grammar
from appliance.intent.lexicon import Lexicon
from appliance.intent.normalise import Normalised, normalise_tracked, without_courtesy
from appliance.intent.sorry import explain
from appliance.intent.types import SlotValue, Understanding

__all__ = ["MAX_WORDS", "understand"]

MAX_WORDS = 60
"""Longer talk is no command; matching it against free text would take long."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One way to read a text."""

    intent: str
    slots: Mapping[str, SlotValue]
    said: Mapping[str, str]
    response: str
    entity: tuple[str, str | None] | None
    """Id and area of the entity named."""
    here: bool
    """True where the area comes from the context."""
    rank: tuple[int | str, ...]
    """Smaller is better."""


def understand(grammar: Grammar, lexicon: Lexicon, text: str, area: str | None) -> Understanding:
    """What a text means in a home, or why it means nothing. Pure; does not raise, whatever the text."""
    plain = normalise_tracked(text, grammar.language)
    found = _best(grammar, lexicon, plain, area)
    if found is None and (asked := without_courtesy(plain, grammar.language)) is not plain:
        # hassil drops its skip words everywhere or nowhere: "what can you do, please" would become "what do".
        found = _best(grammar, lexicon, asked, area)
    if found is None:
        whole = normalise_tracked(text, grammar.language, keep_lead=True)
        if len(whole.words) > len(plain.words):  # something in the home may be called "Jarvis"
            found = _best(grammar, lexicon, whole, area)
    if found is None:
        return Understanding(text, None, area=area, sorry=explain(grammar, lexicon, plain, area))
    reading, named = found
    return Understanding(
        text=text,
        intent=reading.intent,
        slots=reading.slots,
        response_key=reading.response,
        area=area,
        said=reading.said,
        named=named,
        here=reading.here,
    )


def _best(
    grammar: Grammar, lexicon: Lexicon, plain: Normalised, area: str | None, *, for_later: bool = False
) -> tuple[_Reading, tuple[str, ...]] | None:
    """The best reading, with the entities its name may mean. A command `for_later` cannot be put off again."""
    if not 0 < len(plain.words) <= MAX_WORDS:
        return None
    readings = [_reading(result, plain) for result in grammar.matches(plain.text, lexicon, area)]
    readings.sort(key=lambda r: r.rank)
    for best in readings:
        later = best.slots.get("conversation_command")
        # "Soup in five minutes" is no command put off: what shall be done later must itself be one.
        if later is None or (not for_later and _is_command(grammar, lexicon, str(later), area)):
            return _with_all_named(best, readings, area)
    return None


def _is_command(grammar: Grammar, lexicon: Lexicon, text: str, area: str | None) -> bool:
    plain = normalise_tracked(text, grammar.language)
    return _best(grammar, lexicon, plain, area, for_later=True) is not None


def _with_all_named(best: _Reading, readings: Iterable[_Reading], area: str | None) -> tuple[_Reading, tuple[str, ...]]:
    """The best reading, and every entity that its name may mean: the nearest ones where some are near."""
    if best.entity is None:
        return best, ()
    rivals = [
        r for r in readings if r.entity and r.rank == best.rank and r.intent == best.intent and _rest(r) == _rest(best)
    ]
    for near in (best.slots.get("area"), area):
        nearest = [r for r in rivals if r.entity and r.entity[1] == near]
        if near is not None and nearest:
            rivals = nearest
            break
    return rivals[0], tuple(dict.fromkeys(r.entity[0] for r in rivals if r.entity))


def _rest(reading: _Reading) -> dict[str, SlotValue]:
    return {name: value for name, value in reading.slots.items() if name != "name"}


def _reading(result: RecognizeResult, plain: Normalised) -> _Reading:
    slots: dict[str, SlotValue] = {}
    said: dict[str, str] = {}
    wildcards = wildcard_chars = 0
    entity = None
    name_chars = stretch = 0
    here = False
    for match in result.entities_list:
        here |= match.name == "area" and match.text_span is None
        if match.value == NO_AREA:
            continue
        words = _as_said(match, plain)
        slots[match.name] = _value(match, words)
        if words is not None:
            said[match.name] = words
        if match.is_wildcard:
            wildcards += 1
            wildcard_chars += len(match.text)
        elif match.name == "name" and match.metadata:
            entity = (str(match.metadata["id"]), match.metadata["area"])
            name_chars = len(match.text)
            stretch = int(match.metadata["stretch"])
    return _Reading(
        intent=result.intent.name,
        slots=slots,
        said=said,
        response=result.response or "default",
        entity=entity,
        here=here,
        # A thing called by its name comes first, the longest and truest name before others; then the reading that
        # takes less as free text and more as words of the sentence (as hassil ranks); then the one with fewer and
        # longer slots: "garage door" is one thing, not a door in the garage.
        rank=(
            entity is None,
            -name_chars,
            stretch,
            wildcards,
            -result.text_chunks_matched,
            wildcard_chars,
            len(said),
            result.intent.name,
        ),
    )


def _as_said(match: MatchEntity, plain: Normalised) -> str | None:
    """The speaker's words for a slot; None where the slot was not said."""
    if match.text_span is None:
        return None
    start, end = match.text_span
    spoken = match.text.strip()
    if plain.text[start:end].strip() != spoken:
        start = plain.text.find(spoken)
        end = start + len(spoken)
    return (plain.as_said(start, end) if start >= 0 else "") or spoken


def _value(match: MatchEntity, words: str | None) -> SlotValue:
    if match.is_wildcard:
        return words or match.text.strip()
    if isinstance(match.value, float) and match.value.is_integer():
        return int(match.value)
    if isinstance(match.value, (str, int, float)):
        return match.value
    return str(match.value)
