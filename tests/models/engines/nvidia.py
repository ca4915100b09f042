"""NVIDIA's packages that run without a GPU: the extra `tensorrt-check`."""

from __future__ import annotations

import importlib
import os
import platform
from typing import Any

import pytest


def needed(module: str) -> Any:
    """The module. Skip where it is absent; fail in CI, where it must be there if there are wheels for the machine."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = f"{module} cannot be loaded ({error}): pip install .[tensorrt-check]"
    if os.environ.get("CI") and (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        pytest.fail(message)
    pytest.skip(message, allow_module_level=True)
