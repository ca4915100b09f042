"""The real graphs in every precision, and fakes that are let go."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from models import Store
from tests.models.engines.fakes import FakeFaults
from tests.models.engines.variants import store_with_variants

StoreOf = Callable[[str], Store]


@pytest.fixture(scope="session")
def store_of(real_store: Store, tmp_path_factory: pytest.TempPathFactory) -> StoreOf:
    """Pack -> a store that has it in every precision; what is missing is made once a session, half a minute for all."""

    @functools.cache
    def store_of(pack_id: str) -> Store:
        return store_with_variants(real_store, pack_id, tmp_path_factory.mktemp(f"{pack_id}-variants"))

    return store_of


@pytest.fixture
def released() -> Iterator[list[FakeFaults]]:
    """Faults whose hanging calls are let go at the end."""
    made: list[FakeFaults] = []
    yield made
    for faults in made:
        faults.release.set()
