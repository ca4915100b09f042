"""A page of its own for each test, over the engines that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.app import Wren
from tests.web.running import RunningPage, running_page


@pytest.fixture
def page(wren: Wren) -> Iterator[RunningPage]:
    """Served on a free port."""
    with running_page(wren) as running:
        yield running
