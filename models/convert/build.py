"""What a recipe fills in as it goes: graphs, figures, durations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from models.progress import Progress

__all__ = ["Build"]


@dataclass(slots=True)
class Build:
    """One run of a recipe."""

    folder: Path
    """Where the graphs are written."""
    progress: Progress
    graphs: dict[tuple[str, str], Path] = field(default_factory=dict)
    """(part, precision) -> file."""
    parameters: dict[str, int | float | str] = field(default_factory=dict)
    """What was found out about driving the graphs."""
    checks: dict[str, int | float | str] = field(default_factory=dict)
    """The self-check's figures."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage -> duration."""

    def graph(self, part: str, precision: str) -> Path:
        """Where to write a graph (and, later, to read it)."""
        return self.graphs.setdefault((part, precision), self.folder / f"{part}.{precision}.onnx")

    @contextlib.contextmanager
    def stage(self, number: int, of: int, what: str) -> Iterator[None]:
        """Report and time one stage of the recipe."""
        self.progress(f"convert: {what}", number - 1, of)
        started = time.perf_counter()
        yield
        self.seconds[what] = round(time.perf_counter() - started, 3)
        self.progress(f"convert: {what}", number, of)
