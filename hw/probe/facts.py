"""Facts as they are found: value, source, and for what is missing the reason."""

from __future__ import annotations

import threading
from typing import Any

from hw.probe.machine import FIELDS, Machine
from hw.probe.root import printable

__all__ = ["Facts"]


class Facts:
    """Collects what gatherers find. May be read while a gatherer still works (see `hw.probe.gather`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._warnings: list[str] = []

    def put(self, name: str, value: object, source: str) -> None:
        """A fact and where it came from."""
        assert name in FIELDS, name
        with self._lock:
            self._values[name] = value
            self._sources[name] = _safe(source)
            self._unknown.pop(name, None)

    def absent(self, name: str, reason: str) -> None:
        """There is no such thing on this machine: nothing to warn about."""
        assert name in FIELDS, name
        with self._lock:
            self._sources[name] = _safe(reason)

    def unknown(self, name: str, reason: str) -> None:
        """It could not be found out; the reason becomes a warning."""
        assert name in FIELDS, name
        with self._lock:
            self._sources[name] = f"unknown: {_safe(reason)}"
            self._unknown[name] = _safe(reason)

    def warn(self, text: str) -> None:
        """Something that is odd, or that two sources disagree about."""
        text = _safe(text)
        with self._lock:
            if text not in self._warnings:
                self._warnings.append(text)

    def get(self, name: str) -> Any:
        """The value found so far, or None."""
        return self._values.get(name)

    def machine(self, left: str = "nothing was found about it") -> Machine:
        """Everything so far; `left` is the reason for facts that no gatherer has spoken about."""
        with self._lock:
            for name in FIELDS:
                if name not in self._sources:
                    self._sources[name] = f"unknown: {left}"
                    self._unknown[name] = left
            reasons = [f"{name} is unknown: {self._unknown[name]}" for name in FIELDS if name in self._unknown]
            return Machine(
                **self._values,
                warnings=(*self._warnings, *reasons),
                sources={name: self._sources[name] for name in FIELDS},
            )


_LONGEST = 500
"""Characters of a sentence about a fact."""


def _safe(text: str) -> str:
    """Names of files and what programs said are the machine's, not ours: nothing of them reaches a terminal raw."""
    return printable(text, _LONGEST)
