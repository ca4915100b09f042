"""Fixtures that many tests share: the shared folder, and Wren opened once with its real models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.app import Wren, WrenSettings

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody's settings and state but ours: whoever runs the tests may have a Wren of their own."""
    folder = tmp_path_factory.mktemp("own")
    os.environ["WREN_CONFIG"] = str(folder / "wren.toml")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and suites beside the repository."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        message = f"{folder} is absent: tests on its recordings cannot run here"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def wren() -> Iterator[Wren]:
    """All engines, real, opened once."""
    with Wren.open(WrenSettings()) as opened:
        opened.wait_for_bias()
        yield opened
