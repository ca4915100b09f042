"""One sentence template, and what can be told of it without parsing: the words and lists it cannot do without."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hassil.expression import Sentence
from hassil.intents import IntentData

from appliance.intent.edges import beginnings, endings

__all__ = ["Template"]

_INNERMOST_GROUP = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]|\{[^{}]*\}|<[^<>]*>")
_INNERMOST_CHOICE = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]")
_LIST_NAME = re.compile(r"\{([^{}:]+)")
_CUT = "\0"


class Template:
    """One sentence template; parsed when its turn first comes."""

    __slots__ = ("_beginnings", "_endings", "data", "domains", "intent", "lists", "required")

    def __init__(self, intent: str, data: IntentData) -> None:
        self.intent = intent
        self.data = data
        """hassil's own form, which parses itself on first use."""
        (sentence,) = data.sentence_texts
        self.required = _required_pieces(sentence)
        """Pieces of text without which it cannot match, the longest first."""
        self.lists = _required_lists(sentence)
        """Lists of which a value must be said."""
        domains = data.requires_context.get("domain", ()) if "name" in self.lists else ()
        self.domains = frozenset(domains)
        """Domains of the things it takes by name; empty: any, or it takes none."""
        self._beginnings: tuple[str, ...] | None = None
        self._endings: tuple[str, ...] = ()

    @property
    def has_beginning(self) -> bool:
        """True where it begins with one of a few words; known once `can_match` was asked."""
        return bool(self._beginnings)

    def can_match(self, texts: tuple[str, ...], rules: Mapping[str, Sentence]) -> bool:
        """Whether any of these forms of a text begins and ends as it does; when in doubt, yes."""
        if self._beginnings is None:
            (sentence,) = self.data.sentences
            self._endings = endings(sentence, rules)
            self._beginnings = beginnings(sentence, rules)
        return any(
            (not self._beginnings or text.startswith(self._beginnings))
            and (not self._endings or text.endswith(self._endings))
            for text in texts
        )


def _required_pieces(sentence: str) -> tuple[str, ...]:
    """Text that stands outside every group, rule and list of a template: it must be said.

    Pieces next to a group are kept as they are ("hour" of "hour[s]"), so they are looked for anywhere in the text.
    """
    rest = sentence.casefold()
    while (cut := _INNERMOST_GROUP.sub(_CUT, rest)) != rest:
        rest = cut
    pieces = set(re.split(rf"[\s{_CUT}]+", rest)) - {""}
    return tuple(sorted(pieces, key=lambda piece: (-len(piece), piece)))


def _required_lists(sentence: str) -> frozenset[str]:
    """Lists that stand outside every option and alternative of a template: one of their values must be said."""
    rest = sentence
    while (cut := _INNERMOST_CHOICE.sub(_choice, rest)) != rest:
        rest = cut
    return frozenset(_LIST_NAME.findall(rest))


def _choice(group: re.Match[str]) -> str:
    """Drop what may be left out; keep what only groups, or may change places."""
    inside = group[0][1:-1]
    return " " if group[0].startswith("[") or "|" in inside else f" {inside} "
