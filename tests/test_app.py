"""The parts put together: what was opened is let go of where another part cannot be."""

from __future__ import annotations

import pytest

from appliance import app
from appliance.app import Wren, WrenSettings
from appliance.engines import EngineOpener
from models.engines.ladder import LadderEngine
from models.errors import EngineError


@pytest.mark.models
def test_where_a_part_cannot_be_opened_the_others_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[LadderEngine] = []
    open_task = EngineOpener.open

    def kept(self: EngineOpener, task: str) -> object:
        ladders = open_task(self, task)
        opened.extend(ladders.values())  # type: ignore[arg-type]
        return ladders

    def broken(*_: object) -> None:
        raise EngineError("made to fail")

    monkeypatch.setattr(EngineOpener, "open", kept)
    monkeypatch.setattr(app, "_open_asr", broken)
    with pytest.raises(EngineError, match="made to fail"):
        Wren.open(WrenSettings())
    assert len(opened) == 4  # the voice's three graphs, and voice activity
    for ladder in opened:
        with pytest.raises(EngineError):
            ladder.stream()
