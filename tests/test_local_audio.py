"""What the page is told of this machine's own sound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appliance.app import Wren, WrenSettings
from appliance.running import LocalAudio
from appliance.service import Service
from appliance.settings import Settings
from appliance.telemetry.losses import RECENT_S

pytestmark = pytest.mark.models


@pytest.fixture
def local() -> Iterator[LocalAudio]:
    with Wren.open(WrenSettings()) as wren:
        service = Service(wren)
        made = LocalAudio(service, Settings())
        yield made
        made.close()
        service.close()


def test_sound_that_was_lost_is_told_for_a_while_and_not_for_ever(
    local: LocalAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(local._dropped, "_clock", lambda: now_s)
    assert local.state().degraded == ()
    local._runner.dropped_frames = 12
    assert [sentence.split(" were")[0] for sentence in local.state().degraded] == ["120 ms of sound"]
    now_s = RECENT_S + 1.0
    assert local.state().degraded == ()
    local._runner.dropped_frames = 13
    assert [sentence.split(" were")[0] for sentence in local.state().degraded] == ["10 ms of sound"]
