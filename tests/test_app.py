"""The parts put together: what was opened is let go of where another part cannot be."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appliance import app, shared_assistant
from appliance.app import Wren, WrenSettings
from appliance.engines import EngineOpener
from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome, default_home
from appliance.intent.types import ActResult, HomeCommand, UtteranceId
from appliance.shared_assistant import SharedAssistant
from appliance.voice.limits import StageTimeoutError, TimeLimits
from hw.thermal import Heat, advise
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


@pytest.mark.models
def test_a_hot_machine_takes_steps_of_the_ladder_and_a_cool_one_undoes_them(
    wren: Wren, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineOpener, "heat", lambda *_: None)  # opening all engines again is its own test
    assert wren.strain.share("local") == 1.0
    wren.heat(advise(Heat.HOT))
    assert wren.strain.share("local") == 0.0
    assert any("the machine is hot" in sentence for sentence in wren.degraded)
    wren.heat(advise(Heat.WARM))
    assert wren.strain.share("local") == 1.0
    assert not any("hot" in sentence for sentence in wren.degraded)


class FakeHangingHome(MemoryHome):
    """Answers when it is let go."""

    def __init__(self) -> None:
        super().__init__(default_home().view())
        self.hangs = True

    async def act(self, command: HomeCommand, key: UtteranceId) -> ActResult:
        if self.hangs:
            await asyncio.sleep(30.0)
        return await super().act(command, key)


def test_a_home_that_does_not_answer_is_given_up_and_keeps_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_assistant, "LIMITS", TimeLimits(home_s=0.3))
    home = FakeHangingHome()
    assistant = SharedAssistant(Assistant(home))
    understanding = assistant.match("turn on the kitchen lights")
    assert understanding.intent is not None
    with pytest.raises(StageTimeoutError, match=r"did not answer within 0\.3 s"):
        assistant.commit(understanding, UtteranceId("u1"))
    home.hangs = False
    assert assistant.commit(understanding, UtteranceId("u1")).ok, "the same command may be tried again"
    with assistant._lock:  # another session's command
        waiting: list[str] = []

        def wait() -> None:
            try:
                assistant.commit(understanding, UtteranceId("u2"))
            except StageTimeoutError as error:
                waiting.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(10.0)
    assert "busy with another command" in waiting[0]
