"""Fakes that are let go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.engines.fakes import FakeFaults


@pytest.fixture
def released() -> Iterator[list[FakeFaults]]:
    """Faults whose hanging calls are let go at the end."""
    made: list[FakeFaults] = []
    yield made
    for faults in made:
        faults.release.set()
