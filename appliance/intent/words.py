"""From characters to words: one text cut into clean words that remember where they stood."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Word", "clean_words"]

_TOKEN = re.compile(r"\S+")
_INITIALISM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?\.?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_TRAILING = ",;:!?…\"')]}"

_SAME = str.maketrans(
    {
        **dict.fromkeys("’‘ʼʹ´`＇‛", "'"),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        "⁄": "/",
        "\ufe0f": None,  # asks for the coloured form of the emoji before it
    }
)
_SPOKEN = {"%": "percent", "°": "degrees", "&": "and", "+": "plus"}
_FRACTIONS = str.maketrans({"½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 "})


@dataclass(frozen=True, slots=True)
class Word:
    """A clean word, and the stretch of the original text that it came from."""

    text: str
    start: int
    end: int


def clean_words(text: str) -> list[Word]:
    """Cut a text into lower-case words without punctuation; total, for any Unicode."""
    words: list[Word] = []
    for token in _TOKEN.finditer(text):
        words.extend(Word(w, token.start(), token.end()) for w in _clean(token[0]))
    return words


def _clean(token: str) -> list[str]:
    folded = token.translate(_FRACTIONS)
    # Folding can make characters that fold further (U+0345, fullwidth ligatures); three rounds settle all.
    for _ in range(3):
        folded = unicodedata.normalize("NFKC", folded).casefold()
    folded = unicodedata.normalize("NFKC", folded).translate(_SAME)
    return [word for part in folded.split() for word in _split(part)]


def _split(part: str) -> list[str]:
    bare = part.rstrip(_TRAILING)
    if _INITIALISM.fullmatch(bare):  # a.m., A.C.
        return [bare.replace(".", "")]
    part = _DECIMAL_COMMA.sub(".", _THOUSANDS.sub("", part))
    return "".join(_characters(part)).split()


def _characters(part: str) -> Iterator[str]:
    """The characters that carry meaning; spaces where a word ends."""
    for i, char in enumerate(part):
        kind = unicodedata.category(char)
        before = part[i - 1] if i else " "
        after = part[i + 1] if i + 1 < len(part) else " "
        if char in _SPOKEN:
            yield f" {_SPOKEN[char]} "
        elif kind[0] in "LMN":
            yield char
        elif char == "'":
            yield char if _in_word(before) and _in_word(after) else " "
        elif char in ".:/":
            yield char if before.isdecimal() and after.isdecimal() else " "
        elif char == "-":
            # Between letters it joins two words; before a number it is a sign.
            yield "-" if after.isdecimal() and not _in_word(before) and before != "-" else " "
        elif kind in ("So", "Sc"):  # emoji and currencies are words of their own
            yield f" {char} "
        elif kind != "Cf":
            yield " "


def _in_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"
