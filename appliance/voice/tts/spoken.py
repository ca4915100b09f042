"""Replies as they are read out: clock times, years, units and abbreviations in words that espeak-ng gets right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["MAX_REPLY_CHARS", "spoken"]

MAX_REPLY_CHARS: Final = 2_000
"""Longer text is cut at a word: two minutes of speech is nobody's reply."""


def _clock(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    if minute == 0:
        return str(hour) if match[3] else f"{hour} o'clock"
    return f"{hour} oh {minute}" if minute < 10 else f"{hour} {minute}"


def _year(match: re.Match[str]) -> str:
    century, rest = int(match[1]), int(match[2])
    if rest == 0:
        return match[0] if century == 20 else f"{century} hundred"
    if century == 20 and rest < 10:
        return f"two thousand {rest}"
    return f"{century} oh {rest}" if rest < 10 else f"{century} {rest}"


_RULES: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"\b(\d{1,2}):([0-5]\d)\b(?=\s*([AaPp]\.?[Mm]\b)?)"), _clock),
    (re.compile(r"(?<=\d)\s*([AP])M\b"), r" \1 M"),
    (re.compile(r"(?<=\d(?:st|nd|rd|th), )(1[5-9]|20)(\d\d)\b"), _year),
    (re.compile(r"(?<!\S)[-−](?=\d)"), "minus "),
    (re.compile(r"\s*°\s*[CF]\b"), " degrees"),
    (re.compile(r"\s*°"), " degrees"),
    (re.compile(r"\b1 degrees\b"), "1 degree"),
    (re.compile(r"(?<=\d)\s*km/h\b"), " kilometers per hour"),
    (re.compile(r"(?<=\d)\s*mph\b"), " miles per hour"),
    (re.compile(r"(?<=\d)\s*kWh\b"), " kilowatt hours"),
    (re.compile(r"(?<=\d)\s*W\b"), " watts"),
    (re.compile(r"(?<=\d)\s*hPa\b"), " hectopascals"),
    (re.compile(r"(?<=\d)\s*ppm\b"), " parts per million"),
    (re.compile(r"(?<=\d)\s*lx\b"), " lux"),
    (re.compile(r"\b(Dr|Mr|Mrs|Ms|St)\.(?=\s)"), r"\1"),
)


def spoken(text: str) -> str:
    """Text to read out: total on any text, bounded in length."""
    if len(text) > MAX_REPLY_CHARS:
        text = text[:MAX_REPLY_CHARS].rsplit(" ", 1)[0]
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
