"""Sentences of the home's people: whatever they like to say, for a command that Wren knows ("movie time")."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from hassil.expression import Alternative, Expression, Group, Permutation, TextChunk
from hassil.parse_expression import parse_sentence

from appliance.intent.language import Language
from appliance.intent.normalise import normalise_tracked, without_courtesy
from appliance.intent.types import HomeView

__all__ = ["MAX_WAYS", "OwnSentences", "ways_of"]

MAX_WAYS: Final = 200
"""Of one sentence with its alternatives; a slip of brackets makes millions."""


def ways_of(template: str) -> tuple[str, ...]:
    """Every way to say a sentence with `(one|another)` and `[perhaps]`. Raises ValueError that says what is wrong."""
    try:
        expression = parse_sentence(template).expression
    except Exception:  # noqa: BLE001 - hassil tells of slips by errors and assertions of several kinds
        raise ValueError("it cannot be read: a bracket is not closed, never opened, or empty") from None
    ways = [" ".join(way.split()) for way in islice(_ways(expression), MAX_WAYS + 1)]
    if len(ways) > MAX_WAYS:
        raise ValueError(f"it can be said in more than {MAX_WAYS} ways: leave alternatives out")
    if not all(ways):
        raise ValueError("it can be said without a word")
    return tuple(dict.fromkeys(ways))


class OwnSentences:
    """Looks up what a text stands for. Immutable; made anew where a home's sentences change."""

    def __init__(self, view: HomeView, language: Language) -> None:
        self._language = language
        self._means: dict[str, str] = {}
        for sentence in view.sentences:
            for way in sentence.say:
                self._means.setdefault(normalise_tracked(way, language, keep_lead=True).text, sentence.means)

    def meaning(self, text: str) -> str | None:
        """The command that a text stands for; None where it is no sentence of the home's own."""
        if not self._means:
            return None
        whole = normalise_tracked(text, self._language, keep_lead=True)
        plain = normalise_tracked(text, self._language)
        for said in (whole, plain, without_courtesy(plain, self._language)):
            if (means := self._means.get(said.text)) is not None:
                return means
        return None


def _ways(expression: Expression) -> Iterator[str]:
    if isinstance(expression, TextChunk):
        yield expression.text
    elif isinstance(expression, Alternative):
        for item in expression.items:
            yield from _ways(item)
    elif isinstance(expression, Group) and not isinstance(expression, Permutation):
        if not expression.items:
            yield ""
            return
        first, rest = expression.items[0], Group(items=expression.items[1:])
        for head in _ways(first):
            for tail in _ways(rest):
                yield head + tail
    else:
        raise ValueError("only words, (one|another) and [perhaps] can be used: no {lists}, <rules> or (one;another)")
