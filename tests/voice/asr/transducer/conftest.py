"""Small models, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.audio.frame import Samples
from tests.voice.asr.transducer.small_models import changing_sound, write_nemo, write_zipformer

WRITERS = {"zipformer2": write_zipformer, "nemo": write_nemo}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Family -> a folder as sherpa-onnx publishes them."""
    root = tmp_path_factory.mktemp("transducers")
    return {family: write(root / family) for family, write in WRITERS.items()}


@pytest.fixture(params=sorted(WRITERS))
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    """The same of one family after the other."""
    return folders[request.param]


@pytest.fixture(scope="session")
def sound() -> Samples:
    """See `changing_sound`."""
    return changing_sound(2.3)
