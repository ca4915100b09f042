"""Between recogniser and grammar: a transcript written the way the sentence templates are.

Numbers become digits, units words, punctuation goes, and what people say before they begin ("uh, okay so") is
dropped. Homophones ("for", "four") are never guessed at: a wrong guess would act.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from appliance.intent.language import Language, load_language
from appliance.intent.numbers import digits_for_number_words, plain_durations
from appliance.intent.words import Word, clean_words

__all__ = ["MAX_CHARS", "Normalised", "normalise", "normalise_name", "normalise_tracked", "without_courtesy"]

MAX_CHARS = 600
"""Longest text looked at, and longest text returned: no command is longer, and talk may be."""

_LONGEST_REWRITE = 2  # words on the left side of a rewrite
_ROUNDS = 5
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)([^\W\d_]+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OUTER_PUNCTUATION = " \t\r\n.,;:!?…"


@dataclass(frozen=True, slots=True)
class Normalised:
    """A normalised text that remembers which words of the original it stands for."""

    original: str
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The words, one space between them."""
        return " ".join(w.text for w in self.words)

    def as_said(self, start: int, end: int) -> str:
        """The original words behind `text[start:end]`, without the punctuation around them."""
        at = 0
        inside = []
        for word in self.words:
            if at < end and at + len(word.text) > start:
                inside.append(word)
            at += len(word.text) + 1
        if not inside:
            return ""
        return self.original[inside[0].start : inside[-1].end].strip(_OUTER_PUNCTUATION)


def normalise(text: str, language: str = "en") -> str:
    """The text as the grammar takes it: lower case, digits, no punctuation, no fillers in front.

    Total and idempotent; never longer than MAX_CHARS.
    """
    return normalise_tracked(text, load_language(language)).text


def normalise_name(name: str, language: Language) -> str:
    """A name of the home written the way a normalised text writes it; nothing in it is a filler."""
    return " ".join(w.text for w in _rewritten(name, language))


def normalise_tracked(text: str, language: Language, *, keep_lead: bool = False) -> Normalised:
    """As `normalise`, but remembers the original words; `keep_lead` leaves fillers and wake words standing."""
    text = text[:MAX_CHARS]
    words: Sequence[Word] = _rewritten(text, language)
    if not keep_lead:
        words = _without_lead(words, language)
    kept = []
    length = -1
    for word in words:
        length += len(word.text) + 1
        if length > MAX_CHARS:
            break
        kept.append(word)
    return Normalised(text, tuple(kept))


def without_courtesy(plain: Normalised, language: Language) -> Normalised:
    """The text without the "please" or "thank you" at its end; itself where there is none."""
    texts = tuple(w.text for w in plain.words)
    for courtesy in language.courtesies:
        said = tuple(courtesy.split())
        if texts[-len(said) :] == said:
            return Normalised(plain.original, plain.words[: -len(said)])
    return plain


def _rewritten(text: str, language: Language) -> list[Word]:
    words = clean_words(text)
    # One rule may make the beginning of another ("point an hour" → "point 1 hour"); two rounds are the most seen.
    for _ in range(_ROUNDS):
        before = words
        words = _apart(_spelled_out(words, language), language)
        words = plain_durations(_long_units(digits_for_number_words(words, language), language))
        if words == before:
            break
    return words


def _spelled_out(words: Sequence[Word], language: Language) -> list[Word]:
    """Apply the table of rewrites, the longer ones first."""
    out: list[Word] = []
    i = 0
    while i < len(words):
        for n in range(_LONGEST_REWRITE, 0, -1):
            said = words[i : i + n]
            meant = language.rewrites.get(" ".join(w.text for w in said))
            if meant is not None:
                out.extend(Word(m, said[0].start, said[-1].end) for m in meant)
                i += len(said)
                break
        else:
            out.append(words[i])
            i += 1
    return out


def _apart(words: Sequence[Word], language: Language) -> list[Word]:
    """ "5min" → "5 minutes"."""
    out: list[Word] = []
    for word in words:
        joined = _NUMBER_AND_UNIT.fullmatch(word.text)
        if joined and joined[2] in language.unit_words:
            out.append(Word(joined[1], word.start, word.end))
            out.append(Word(language.unit_words[joined[2]], word.start, word.end))
        else:
            out.append(word)
    return out


def _long_units(words: Sequence[Word], language: Language) -> list[Word]:
    """ "5 min" → "5 minutes"; only after a number, where nothing else can be meant."""
    out: list[Word] = []
    for word in words:
        after_number = out and _NUMBER.fullmatch(out[-1].text)
        text = language.unit_words.get(word.text, word.text) if after_number else word.text
        out.append(Word(text, word.start, word.end))
    return out


def _without_lead(words: Sequence[Word], language: Language) -> Sequence[Word]:
    """Drop fillers and left-over wake words in front."""
    while words:
        texts = tuple(w.text for w in words)
        woken = next((w for w in language.wake_words if texts[: len(w)] == w), ())
        n = len(woken) or int(texts[0] in language.fillers)
        if n == 0:
            break
        words = words[n:]
    return words
