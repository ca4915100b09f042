"""Letters that a phrase consists of, whoever writes it: templates, names, a recogniser.

Case, punctuation, apostrophes and the difference between a hyphen and a space carry no sound, so they do not count.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from appliance.intent.language import Language

__all__ = ["number_words", "plain_letters"]

_SIGNS = {"%": " percent", "°": " degrees", "&": " and ", "-": " ", "‐": " ", "‑": " ", "–": " ", "—": " "}
_MEANS_SOMETHING = frozenset("/+=*#@$€£<>^~|\\")
"""Signs that are said but have no one way to be written out: what holds one is no phrase."""
_HUNDRED, _THOUSAND = 100, 1000


def plain_letters(text: str) -> str | None:
    """The letters of a text: lower case, digits and spaces kept, the rest dropped; None where it cannot be written so.

    Done piece by piece it gives the same as for the whole, but for runs of spaces, which count as one.
    """
    if text.isascii():
        folded = text.lower()
        if folded.isalpha():
            return folded
    else:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    out = []
    for char in folded:
        if char.isalnum():
            out.append(char)
        elif char.isspace():
            out.append(" ")
        elif char in _SIGNS:
            out.append(_SIGNS[char])
        elif char in _MEANS_SOMETHING or unicodedata.category(char)[0] in "CS":
            return None
    return "".join(out)


def number_words(number: int, language: Language) -> Iterator[str]:
    """Ways to say a whole number below ten thousand, one after the other; English order."""
    # Where two words mean one number ("forty", "fourty"), the first is the right one.
    words = {value: word for word, value in reversed(list(language.numbers.items()))}
    scale = {value: word for word, value in language.scales.items()}
    if number < _HUNDRED:
        yield _below_hundred(number, words)
        return
    hundreds, rest = divmod(number, _HUNDRED)
    if number < _THOUSAND or hundreds % 10:  # "twenty seven hundred"
        counts = [_below_hundred(hundreds, words)] + (["a"] if hundreds == 1 else [])
        for count in counts:
            yield from _with_rest(f"{count} {scale[_HUNDRED]}", rest, words)
    if number >= _THOUSAND:
        thousands, rest = divmod(number, _THOUSAND)
        head = f"{_below_hundred(thousands, words)} {scale[_THOUSAND]}"
        if rest < _HUNDRED:
            yield from _with_rest(head, rest, words)
        else:
            yield from (f"{head} {tail}" for tail in number_words(rest, language) if not tail.startswith("a "))


def _with_rest(head: str, rest: int, words: Mapping[int, str]) -> Iterator[str]:
    if rest == 0:
        yield head
        return
    yield f"{head} {_below_hundred(rest, words)}"
    yield f"{head} and {_below_hundred(rest, words)}"


def _below_hundred(number: int, words: Mapping[int, str]) -> str:
    if number in words:
        return words[number]
    tens, ones = divmod(number, 10)
    return f"{words[tens * 10]} {words[ones]}"
