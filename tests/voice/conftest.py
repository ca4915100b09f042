"""Speech for tests: Wren's own voice at 16 kHz."""

from __future__ import annotations

import numpy as np
import pytest

from appliance.app import Wren
from appliance.audio.frame import Samples
from appliance.audio.resample import MonoResampler


def say(wren: Wren, text: str) -> Samples:
    """A text as sound, shape [n] float32 at 16 kHz."""
    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz)
    return np.concatenate((resampler.push(synthesiser.whole(text)), resampler.flush()))


@pytest.fixture(scope="session")
def spoken(wren: Wren) -> Samples:
    """“okay nabu, turn on the kitchen lights” with half a second of quiet around it."""
    quiet = (1e-4 * np.random.default_rng(4).standard_normal(8000)).astype(np.float32)
    return np.concatenate((quiet, say(wren, "okay nabu, turn on the kitchen lights"), quiet))
