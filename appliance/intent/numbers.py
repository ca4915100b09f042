"""Number words and spoken durations, written the way the grammar takes them: digits, hours, minutes, seconds.

The number words are the language's; the little words between them (and, a, point, half) and their order are English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from appliance.intent.language import Language
from appliance.intent.words import Word

__all__ = ["digits_for_number_words", "plain_durations"]

_DIGITS = re.compile(r"\d+")
_LARGEST = 1_000_000
"""Nothing in a home is counted beyond it."""
_ABOVE_GROUP = {100: 100, 1000: 1000}
"""What may stand before "hundred" and "thousand" is below this."""
_DECIMALS = 6
"""Digits after the point."""

_SUBUNIT = {"hour": "minutes", "minute": "seconds"}
_HALVES = ("half", "1/2")
_ARTICLES = ("a", "an")


def digits_for_number_words(words: Sequence[Word], language: Language) -> list[Word]:
    """Write number words as digits: "seventy five" → 75, "a hundred" → 100, "twenty point five" → 20.5."""
    out: list[Word] = []
    i = 0
    while i < len(words):
        whole, n = _integer(words[i:], language)
        decimals, m = _decimals(words[i + n :], language) if n else ("", 0)
        already_digits = n == 1 and m == 0 and _DIGITS.fullmatch(words[i].text)
        if n == 0 or already_digits:
            out.append(words[i])
            i += 1
            continue
        span = words[i : i + n + m]
        out.append(Word(f"{whole}{decimals}", span[0].start, span[-1].end))
        i += n + m
    return out


def _integer(words: Sequence[Word], language: Language) -> tuple[int, int]:
    """The whole number that the words begin with, and how many words it takes (0: none)."""
    total = 0  # the thousands
    group = 0  # below a thousand
    room = _LARGEST  # what comes next must be smaller: "twenty five" is one number, "five twenty" are two
    n = 0
    if _text(words, 0) in _ARTICLES and _text(words, 1) in language.scales:  # "a hundred"
        group, n = 1, 1
    while n < len(words):
        text = words[n].text
        if text in language.scales:
            scale = language.scales[text]
            if n == 0:
                group = 1
            if not 0 < group < _ABOVE_GROUP[scale] or (total and scale > 100):
                break
            group *= scale
            room = scale
            if scale > 100:
                total, group = group, 0
        elif text == "and":
            if room not in language.scales.values() or not language.numbers.get(_text(words, n + 1)):
                break
        else:
            value = _small(text, n == 0, language)
            if value is None or value >= room:
                break
            group += value
            room = 10 if value >= 20 and value % 10 == 0 and value < 100 else 0
        n += 1
    return total + group, n


def _small(text: str, first: bool, language: Language) -> int | None:
    if text in language.numbers:
        return language.numbers[text]
    # "27 hundred", "2 point 5": a recogniser may write the first part in digits.
    return int(text) if first and len(text) <= 3 and _DIGITS.fullmatch(text) else None


def _decimals(words: Sequence[Word], language: Language) -> tuple[str, int]:
    """ "point five" → ".5", and how many words it takes."""
    if _text(words, 0) != "point":
        return "", 0
    digits = ""
    while len(digits) < _DECIMALS:
        text = _text(words, 1 + len(digits))
        value = int(text) if text.isdecimal() and len(text) == 1 else language.numbers.get(text, 10)
        if value > 9:
            break
        digits += str(value)
    return (f".{digits}", 1 + len(digits)) if digits else ("", 0)


def plain_durations(words: Sequence[Word]) -> list[Word]:
    """Write durations in whole units: "half an hour" → 30 minutes, "an hour and a half" → 1 hour and 30 minutes."""
    out = list(words)
    for rule in _RULES:
        i = 0
        while i < len(out):
            change = rule(out, i)
            if change is None:
                i += 1
                continue
            n, texts = change
            span = out[i : i + n]
            out[i : i + n] = [Word(t, span[0].start, span[-1].end) for t in texts]
            i += len(texts)
    return out


_Rule = Callable[[Sequence[Word], int], tuple[int, list[str]] | None]


def _half_between(words: Sequence[Word], i: int) -> tuple[int, list[str]] | None:
    """2 and a half hours; 2 1/2 hours; 2.5 hours; 21 and a half [degrees]."""
    text = words[i].text
    if text.endswith(".5") and _DIGITS.fullmatch(text[:-2]) and (unit := _unit(words, i + 1)):
        return 2, _whole_and(text[:-2], unit, "30")
    if not _DIGITS.fullmatch(text):
        return None
    n = 1
    n += _text(words, i + n) == "and"
    n += _text(words, i + n) in _ARTICLES
    if _text(words, i + n) in _HALVES and (unit := _unit(words, i + n + 1)):
        return n + 2, _whole_and(text, unit, "30")
    counted = n == 3 or _text(words, i + n + 1) in ("degree", "degrees", "percent")
    return (n + 1, [f"{text}.5"]) if counted and _text(words, i + n) in _HALVES else None


def _part_of_one(words: Sequence[Word], i: int) -> tuple[int, list[str]] | None:
    """half an hour; a half hour; a quarter of an hour; 3 quarters of an hour."""
    n = int(_text(words, i) in _ARTICLES)
    part = _text(words, i + n)
    parts = {"half": "30", "1/2": "30", "quarter": "15", "1/4": "15", "3/4": "45"}.get(part)
    if part == "3" and _text(words, i + n + 1) == "quarters":
        parts, n = "45", n + 1
    if parts is None:
        return None
    n += 1
    n += _text(words, i + n) == "of"
    n += _text(words, i + n) in _ARTICLES
    if unit := _unit(words, i + n):
        return n + 1, [parts, _SUBUNIT[unit]]
    return None


def _and_a_part(words: Sequence[Word], i: int) -> tuple[int, list[str]] | None:
    """1 hour and a half; an hour and a quarter."""
    number = "1" if _text(words, i) in _ARTICLES else _text(words, i)
    unit = _unit(words, i + 1)
    if unit is None or not _DIGITS.fullmatch(number) or _text(words, i + 2) != "and":
        return None
    part = {"half": "30", "quarter": "15"}.get(_text(words, i + 4))
    if part is None or _text(words, i + 3) not in _ARTICLES or _unit(words, i + 5):
        return None
    return 5, _whole_and(number, unit, part)


def _one(words: Sequence[Word], i: int) -> tuple[int, list[str]] | None:
    """an hour; a minute."""
    if _text(words, i) in _ARTICLES and _text(words, i + 1) in ("hour", "minute", "second"):
        return 2, ["1", words[i + 1].text]
    return None


_RULES: tuple[_Rule, ...] = (_half_between, _and_a_part, _part_of_one, _one)


def _whole_and(number: str, unit: str, parts: str) -> list[str]:
    if int(number) == 0:
        return [parts, _SUBUNIT[unit]]
    return [number, unit if int(number) == 1 else f"{unit}s", "and", parts, _SUBUNIT[unit]]


def _text(words: Sequence[Word], i: int) -> str:
    return words[i].text if i < len(words) else ""


def _unit(words: Sequence[Word], i: int) -> str | None:
    singular = _text(words, i).removesuffix("s")
    return singular if singular in _SUBUNIT else None
