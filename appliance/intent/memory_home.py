"""A home that lives in memory: for the demo, for tests, and wherever no real home is connected."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final

from appliance.intent.effects import after
from appliance.intent.home_file import load_home_file, parse_home
from appliance.intent.types import ActResult, HomeCommand, HomeView, UtteranceId

__all__ = ["MemoryHome", "default_home"]

_REMEMBERED_KEYS: Final = 1000
"""Utterances whose result is kept, so that a repeated one does not act again."""


class MemoryHome:
    """Keeps the state of a home; every command takes effect at once. Implements `Home`."""

    def __init__(self, view: HomeView) -> None:
        self._view = view
        self._done: OrderedDict[UtteranceId, ActResult] = OrderedDict()

    @classmethod
    def from_file(cls, path: str | Path) -> MemoryHome:
        """The home of a home file. Raises HomeFileError."""
        return cls(load_home_file(path))

    def view(self) -> HomeView:
        """The present picture."""
        return self._view

    async def act(self, command: HomeCommand, key: UtteranceId) -> ActResult:
        """Carry out a command; one key acts once, a repetition gets the first result."""
        if key in self._done:
            return replace(self._done[key], repeated=True)
        targets = frozenset(command.targets)
        entities = tuple(after(e, command) if e.id in targets else e for e in self._view.entities)
        changed = tuple(new.id for new, old in zip(entities, self._view.entities, strict=True) if new != old)
        if changed:
            self._view = replace(self._view, version=self._view.version + 1, entities=entities)
        result = ActResult(ok=True, changed=changed)
        self._done[key] = result
        if len(self._done) > _REMEMBERED_KEYS:
            self._done.popitem(last=False)
        await asyncio.sleep(0)  # a real home takes time: let nobody rely on this one being instant
        return result


def default_home() -> MemoryHome:
    """The small home of `make demo`, our own invention."""
    file = resources.files("appliance.intent") / "data" / "default_home.json"
    return MemoryHome(parse_home(file.read_bytes(), "default_home.json"))
