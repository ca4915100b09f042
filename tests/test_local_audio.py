"""What the page is told of this machine's own sound."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from appliance import running
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


def test_a_loss_of_the_night_is_no_news_in_the_morning(local: LocalAudio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody opens the page meanwhile."""
    now_s = 0.0
    monkeypatch.setattr(local._dropped, "_clock", lambda: now_s)
    monkeypatch.setattr(running, "LOSSES_S", 0.01)
    looks: list[tuple[int, int]] = []
    losses = local.losses
    monkeypatch.setattr(local, "losses", lambda: looks.append(losses()))

    async def night() -> None:
        nonlocal now_s
        watch = asyncio.create_task(running._watch_losses(local))
        local._runner.dropped_frames = 12
        while not looks or looks[-1] != (12, 0):
            await asyncio.sleep(0.01)
        now_s = 8 * 3600.0
        watch.cancel()

    asyncio.run(asyncio.wait_for(night(), 10.0))
    monkeypatch.undo()
    monkeypatch.setattr(local._dropped, "_clock", lambda: now_s)
    assert local.state().degraded == ()
