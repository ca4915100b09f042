"""Where the shared material lies, and what to do where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
"""`../shared` beside the repository."""


def shared(*parts: str) -> Path:
    """A path in the shared material. Skips the test where it is absent; fails it in CI, which must have it."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        message = f"{path} is absent: put the shared material beside the repository"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path
