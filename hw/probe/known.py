"""Access to `known.toml`: chips, modules, releases and cores by their names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["known", "precision_support", "version", "x86_name"]


@cache
def known() -> Mapping[str, Any]:
    """The tables."""
    return tomllib.loads(resources.files("hw.probe").joinpath("known.toml").read_text(encoding="utf-8"))


def version(text: str) -> tuple[int, ...]:
    """`10.3.0.30-1+cuda12.5` as (10, 3, 0, 30): the leading numbers, to compare by. Empty where there are none."""
    numbers = []
    for part in re.split(r"[-+~]", text, maxsplit=1)[0].split("."):
        if not (part.isascii() and part.isdigit() and len(part) < 10):
            break
        numbers.append(int(part))
    return tuple(numbers)


def precision_support(sm: str) -> dict[str, bool] | None:
    """What a GPU of that compute capability multiplies; None for one older than the table."""
    wanted, best = version(sm), None
    for row in known()["precision"]:
        first = version(row["from"])
        if first == wanted or (first < wanted and not row.get("only")):
            best = row
    return None if best is None else {name: best[name] for name in ("fp16", "int8", "fp8", "bf16")}


def x86_name(vendor: str, family: int, model: int, stepping: int) -> str | None:
    """Name of an x86 micro-architecture."""
    for table in known()["x86"]:
        if (table["vendor"], table["family"]) != (vendor, family):
            continue
        for row in table["rows"]:
            low, high = row.get("stepping", (0, 15))
            models = row.get("models") or range(row["from"], row["to"] + 1)
            if model in models and low <= stepping <= high:
                return str(row["name"])
    return None
