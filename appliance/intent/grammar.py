"""The sentences of one language: the intents package's and our own, parsed only when one might match.

Parsing all 1,300 templates takes a third of a second and most are never needed, so each keeps the words it cannot
do without, read off its text, and is handed to hassil only when all of them stand in the utterance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hassil.expression import Sentence
from hassil.intents import Intent, IntentData, Intents, RangeSlotList, SlotList, TextSlotList
from hassil.recognize import RecognizeResult, recognize_all
from hassil.util import remove_skip_words

from appliance.errors import IntentError
from appliance.intent.edges import beginnings
from appliance.intent.language import Language, load_language
from appliance.intent.lexicon import HOME_LISTS, Lexicon, Spoken
from appliance.intent.template import Template

__all__ = ["NO_AREA", "Grammar", "load_grammar"]

NO_AREA = "\0"
"""Stands in for the microphone's area where it is unknown: hassil refuses area sentences without one."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """All sentences and replies of one language."""

    language: Language
    templates: Mapping[str, tuple[Template, ...]]
    """By their longest required piece; under "" those that require none."""
    slot_lists: dict[str, SlotList]
    rules: dict[str, Sentence]
    skip_words: list[str]
    replies: Mapping[str, Mapping[str, str]]
    """Reply templates by intent and key, the package's overlaid with our own."""
    problems: Mapping[str, str]
    """Sentences that say what went wrong, likewise."""
    first_words: Mapping[str, tuple[str, ...]]
    """By word list: what its values begin with."""
    wildcards: frozenset[str]
    """Lists that take free text."""

    def matches(self, text: str, lexicon: Lexicon, area: str | None) -> Iterable[RecognizeResult]:
        """Every reading of a normalised text, unordered."""
        texts = self._forms(text)
        spoken = lexicon.spoken_in(texts)
        absent = spoken.absent | self._absent_lists(text)
        templates = (
            t
            for t in self._with_pieces(text)
            if absent.isdisjoint(t.lists)
            and not (t.domains and t.domains.isdisjoint(spoken.domains))
            and t.can_match(texts, self.rules)
        )
        return self._recognise(text, templates, spoken, area, unmatched=False)

    def near_misses(
        self, text: str, lexicon: Lexicon, area: str | None, intents: frozenset[str]
    ) -> Iterable[RecognizeResult]:
        """Readings of a text that name something the home lacks, in sentences of these intents.

        Sentences that take free text, or can begin with a name, are left out: they would read anything.
        """
        texts = self._forms(text)
        templates = (
            t
            for t in self._with_pieces(text)
            if t.intent in intents
            and self.wildcards.isdisjoint(t.lists)
            and t.can_match(texts, self.rules)
            and t.has_beginning
        )
        return self._recognise(text, templates, lexicon.spoken_in(texts), area, unmatched=True)

    def _forms(self, text: str) -> tuple[str, ...]:
        """hassil tries a text with its skip words and without."""
        return tuple(dict.fromkeys((text, remove_skip_words(text, self.skip_words, ignore_whitespace=False))))

    def _with_pieces(self, text: str) -> Iterator[Template]:
        """Templates all of whose required pieces stand in the text."""
        for piece, templates in self.templates.items():
            if piece in text:
                yield from (t for t in templates if all(p in text for p in t.required))

    def _absent_lists(self, text: str) -> frozenset[str]:
        """Word and number lists of which no value stands in the text."""
        number = any(c.isdecimal() for c in text)
        return frozenset(
            name
            for name, slot_list in self.slot_lists.items()
            if (isinstance(slot_list, RangeSlotList) and not number)
            or (name in self.first_words and not any(w in text for w in self.first_words[name]))
        )

    def _recognise(
        self, text: str, templates: Iterable[Template], spoken: Spoken, area: str | None, *, unmatched: bool
    ) -> Iterable[RecognizeResult]:
        chosen: dict[str, Intent] = {}
        for template in templates:
            chosen.setdefault(template.intent, Intent(template.intent)).data.append(template.data)
        if not chosen:
            return ()
        return recognize_all(
            text,
            Intents(
                language=self.language.code,
                intents=chosen,
                slot_lists=self.slot_lists,
                expansion_rules=self.rules,
                skip_words=self.skip_words,
            ),
            slot_lists=spoken.slot_lists,
            intent_context={"area": area or NO_AREA},
            allow_unmatched_entities=unmatched,
        )


@cache
def load_grammar(code: str) -> Grammar:
    """Load a language's grammar once. Raises IntentError where the package or Wren has none for it."""
    from home_assistant_intents import get_intents

    language = load_language(code)
    package = get_intents(code)
    if package is None:
        raise IntentError(f"home-assistant-intents has no sentences for the language {code!r}")
    ours = language.grammar
    lists = {**package["lists"], **ours["lists"]}
    for name, (low, high) in language.ranges.items():
        lists[name]["range"] |= {"from": low, "to": high}
    for entry in lists.values():
        if "range" in entry:
            # Normalised text has digits; without this hassil builds a table of number words for every range.
            entry["range"]["words"] = False
    # Places are looked up in the home: as free text, "who is the president" would be a question about people.
    wildcards = {n for n, entry in lists.items() if entry.get("wildcard")} - set(HOME_LISTS)
    parsed = Intents.from_dict(
        {
            "language": code,
            "intents": {},
            "lists": lists,
            "expansion_rules": {**package["expansion_rules"], **ours["expansion_rules"]},
        }
    )
    blocks = [
        (intent, block)
        for source in (package, ours)
        for intent, body in source["intents"].items()
        for block in body["data"]
    ]
    by_piece: dict[str, list[Template]] = {}
    for intent, block in blocks:
        for template in _templates(intent, block, wildcards):
            by_piece.setdefault(next(iter(template.required), ""), []).append(template)
    first_words = {
        name: words
        for name, slot_list in parsed.slot_lists.items()
        if isinstance(slot_list, TextSlotList) and (words := _first_words(slot_list, parsed.expansion_rules))
    }
    return Grammar(
        language=language,
        templates={piece: tuple(templates) for piece, templates in by_piece.items()},
        slot_lists=parsed.slot_lists,
        rules=parsed.expansion_rules,
        skip_words=[*package["skip_words"], *language.skip_words],
        replies=_overlaid(package["responses"]["intents"], language.replies),
        problems={**package["responses"]["errors"], **language.problems},
        first_words=first_words,
        wildcards=frozenset(wildcards),
    )


def _templates(intent: str, block: Mapping[str, Any], wildcards: set[str]) -> Iterator[Template]:
    for sentence in block["sentences"]:
        data = IntentData(
            sentence_texts=[sentence],
            slots=block.get("slots", {}),
            response=block.get("response", "default"),
            requires_context=block.get("requires_context", {}),
            wildcard_list_names=wildcards,
        )
        yield Template(intent, data)


def _first_words(slot_list: TextSlotList, rules: Mapping[str, Sentence]) -> tuple[str, ...]:
    """What the values of a list begin with; empty where one can begin with anything."""
    words: set[str] = set()
    for value in slot_list.values:
        starts = beginnings(Sentence(value.text_in), rules)
        if not starts:
            return ()
        words.update(starts)
    return tuple(sorted(words))


def _overlaid(
    package: Mapping[str, Mapping[str, str]], ours: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    return {intent: {**package.get(intent, {}), **ours.get(intent, {})} for intent in {**package, **ours}}
