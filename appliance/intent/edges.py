"""How the sentences of a template can begin and end: a cheap test before the real match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hassil.expression import (
    Alternative,
    Expression,
    Group,
    Permutation,
    RuleReference,
    Sentence,
    TextChunk,
)

__all__ = ["beginnings", "endings"]

_MAX_DEPTH = 24
"""Guards against rules that refer to each other."""


class _Open(Exception):
    """Raised where a sentence can begin (end) with anything: a name, a number, free text."""


def beginnings(sentence: Sentence, rules: Mapping[str, Sentence]) -> tuple[str, ...]:
    """What every sentence of the template begins with, one of these; empty where it can be anything."""
    return _edges(sentence, rules, iter, _first_word)


def endings(sentence: Sentence, rules: Mapping[str, Sentence]) -> tuple[str, ...]:
    """What every sentence of the template ends with, one of these; empty where it can be anything."""
    return _edges(sentence, rules, reversed, _last_word)


def _edges(
    sentence: Sentence,
    rules: Mapping[str, Sentence],
    order: Callable[[list[Expression]], Iterable[Expression]],
    word: Callable[[str], str],
) -> tuple[str, ...]:
    def look(expression: Expression, depth: int) -> tuple[set[str], bool]:
        """The words it can begin with, and whether it can be empty."""
        if depth > _MAX_DEPTH:
            raise _Open
        if isinstance(expression, TextChunk):
            found = word(expression.text.casefold())
            return ({found}, False) if found else (set(), True)
        if isinstance(expression, RuleReference) and expression.rule_name in rules:
            return look(rules[expression.rule_name].expression, depth + 1)
        if isinstance(expression, (Alternative, Permutation)):
            each = [look(item, depth + 1) for item in expression.items]
            can_be_empty = [empty for _, empty in each]
            joined = any(can_be_empty) if isinstance(expression, Alternative) else all(can_be_empty)
            return set().union(*(words for words, _ in each)), joined
        if isinstance(expression, Group):
            words: set[str] = set()
            for item in order(expression.items):
                more, empty = look(item, depth + 1)
                words |= more
                if not empty:
                    return words, False
            return words, True
        raise _Open

    try:
        words, empty = look(sentence.expression, 0)
    except _Open:
        return ()
    return () if empty else tuple(sorted(words))


def _first_word(text: str) -> str:
    return text.split(maxsplit=1)[0] if text.strip() else ""


def _last_word(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1] if text.strip() else ""
