"""The slow tests with real peers on the real clock may be run once more: this machine may be busy with other things.

Once, and told in the summary (`-rR`): a test that fails twice has failed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.flaky(reruns=1))
