"""The sentences of one language: the intents package's and our own, parsed only when one might match.

Parsing all 1,300 templates takes a third of a second and most are never needed, so each keeps the words it cannot
do without, read off its text, and is handed to hassil only when all of them stand in the utterance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hassil.expression import Sentence
from hassil.intents import Intent, IntentData, Intents, SlotList
from hassil.recognize import RecognizeResult, recognize_all

from appliance.errors import IntentError
from appliance.intent.language import Language, load_language

__all__ = ["NO_AREA", "Grammar", "load_grammar"]

NO_AREA = "\0"
"""Stands in for the microphone's area where it is unknown: hassil refuses area sentences without one."""

_INNERMOST_GROUP = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]|\{[^{}]*\}|<[^<>]*>")
_CUT = "\0"


@dataclass(frozen=True, slots=True)
class Template:
    """One sentence template, not yet parsed."""

    intent: str
    data: IntentData
    """hassil's own form, which parses itself on first use."""
    required: tuple[str, ...]
    """Pieces of text without which it cannot match."""
    wildcards: bool
    """True where it takes free text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """All sentences and replies of one language."""

    language: Language
    templates: tuple[Template, ...]
    slot_lists: dict[str, SlotList]
    rules: dict[str, Sentence]
    skip_words: list[str]
    replies: Mapping[str, Mapping[str, str]]
    """Reply templates by intent and key, the package's overlaid with our own."""
    problems: Mapping[str, str]
    """Sentences that say what went wrong, likewise."""

    def matches(
        self,
        text: str,
        slot_lists: dict[str, SlotList],
        area: str | None,
        *,
        intents: frozenset[str] | None = None,
        unmatched: bool = False,
    ) -> Iterator[RecognizeResult]:
        """Every reading of a normalised text, unordered.

        `intents` narrows the sentences tried; `unmatched` also yields readings with names that the home lacks, and
        leaves out sentences that take free text, which would read anything.
        """
        chosen: dict[str, Intent] = {}
        for template in self.templates:
            if intents is not None and template.intent not in intents:
                continue
            if unmatched and (template.wildcards or not template.required):
                continue
            if all(piece in text for piece in template.required):
                intent = chosen.setdefault(template.intent, Intent(template.intent))
                intent.data.append(template.data)
        if not chosen:
            return iter(())
        return iter(
            recognize_all(
                text,
                Intents(
                    language=self.language.code,
                    intents=chosen,
                    slot_lists=self.slot_lists,
                    expansion_rules=self.rules,
                    skip_words=self.skip_words,
                ),
                slot_lists=slot_lists,
                intent_context={"area": area or NO_AREA},
                allow_unmatched_entities=unmatched,
            )
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
    # The zone list is built from the home: as free text, "who is the president" would be a question about people.
    wildcards = {n for n, entry in lists.items() if entry.get("wildcard")} - {"zone"}
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
    return Grammar(
        language=language,
        templates=tuple(t for intent, block in blocks for t in _templates(intent, block, wildcards)),
        slot_lists=parsed.slot_lists,
        rules=parsed.expansion_rules,
        skip_words=[*package["skip_words"], *language.skip_words],
        replies=_overlaid(package["responses"]["intents"], language.replies),
        problems={**package["responses"]["errors"], **language.problems},
    )


def _templates(intent: str, block: Mapping[str, Any], wildcards: set[str]) -> Iterator[Template]:
    for sentence in block["sentences"]:
        yield Template(
            intent=intent,
            data=IntentData(
                sentence_texts=[sentence],
                slots=block.get("slots", {}),
                response=block.get("response", "default"),
                requires_context=block.get("requires_context", {}),
                wildcard_list_names=wildcards,
            ),
            required=_required(sentence),
            wildcards=any(f"{{{name}}}" in sentence or f"{{{name}:" in sentence for name in wildcards),
        )


def _required(sentence: str) -> tuple[str, ...]:
    """Text that stands outside every group, rule and list of a template: it must be said.

    Pieces next to a group are kept as they are ("hour" of "hour[s]"), so they are looked for anywhere in the text.
    """
    rest = sentence.casefold()
    while True:
        cut = _INNERMOST_GROUP.sub(_CUT, rest)
        if cut == rest:
            break
        rest = cut
    return tuple(sorted(set(re.split(rf"[\s{_CUT}]+", rest)) - {""}, key=len, reverse=True))


def _overlaid(
    package: Mapping[str, Mapping[str, str]], ours: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    return {intent: {**package.get(intent, {}), **ours.get(intent, {})} for intent in {**package, **ours}}
