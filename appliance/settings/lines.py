"""Where in a TOML text a key is set, for messages that name a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["line_of"]

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE: Final = re.compile(rf"\s*\[\s*({_DOTTED})\s*\]")
_KEY: Final = re.compile(rf"\s*({_DOTTED})\s*=")
_LONG: Final = re.compile(r'"""|' + r"'''")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Line number (from 1) where a key, or the innermost table around it that is there, is set."""
    best: tuple[int, int] | None = None
    table: tuple[str, ...] = ()
    inside_long = False
    for number, line in enumerate(text.split("\n"), 1):
        begins_inside = inside_long
        inside_long ^= len(_LONG.findall(line)) % 2 == 1
        if begins_inside:
            continue
        here = None
        if header := _TABLE.match(line):
            here = table = _parts(header[1])
        elif key := _KEY.match(line):
            here = (*table, *_parts(key[1]))
        if here is not None and here == tuple(path[: len(here)]) and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return None if best is None else best[1]


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))
