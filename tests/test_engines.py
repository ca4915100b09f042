"""The engines that serve: what the plan chose, what runs instead where it cannot, fewer threads in the heat."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance import engines
from appliance.engines import EngineOpener
from appliance.events import EngineChanged, Event
from appliance.planning import current_plan
from hw.plan import Override, Overrides, Plan
from hw.probe import Machine
from hw.thermal import Heat, advise
from models import Store
from models.engines import Engine
from models.engines.ladder import LadderEngine
from models.engines.rungs import open_task

pytestmark = pytest.mark.models

X86 = Machine(arch="x86_64", chip="x86_64", cpu={"name": "x", "avx2": True}, cpu_cores=4, usable_cores=4)
WINDOW = {"input": np.zeros((1, 576), dtype=np.float32)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The real models, with a quarantine and plans of our own."""
    real = Store()
    for name in ("packs", "artefacts"):
        (tmp_path / name).symlink_to(real.root / name)
    return Store(tmp_path)


def plan(store: Store, **override: object) -> Plan:
    user = Overrides(tasks=dict.fromkeys(("asr", "tts"), Override(**override)))  # type: ignore[arg-type]
    return current_plan(store, X86, user=user)


def test_what_the_plan_chose_runs(store: Store) -> None:
    opener = EngineOpener(store, plan(store, precision="int8", threads=1))
    told: list[Event] = []
    opener.emit = told.append
    opener.open("asr")
    opener.open("vad")
    settled = opener.settled
    assert (settled["asr"].backend, settled["asr"].precision, settled["asr"].threads) == ("ort-cpu", "int8", 1)
    assert settled["vad"].precision == "fp32"
    assert opener.degraded == ()
    assert told == []
    opener.close()


def test_what_two_ask_for_at_once_is_opened_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, both = [], threading.Barrier(2)

    def open_slowly(*given: Any, **options: Any) -> dict[str, LadderEngine]:
        opened.append(options)
        time.sleep(0.1)  # the other one asks meanwhile
        return open_task(*given, **options)

    def ask() -> Mapping[str, Engine]:
        both.wait(10.0)
        return opener.opened("vad")

    monkeypatch.setattr(engines, "open_task", open_slowly)
    opener = EngineOpener(store, plan(store))
    with ThreadPoolExecutor(2) as pool:
        first, second = (asked.result() for asked in [pool.submit(ask), pool.submit(ask)])
    assert len(opened) == 1
    assert first is second
    opener.close()


def test_what_cannot_run_here_is_said_and_the_next_rung_serves(store: Store) -> None:
    wanted = plan(store, threads=1)
    asr = dataclasses.replace(wanted.tasks["asr"], backend="tensorrt", precision="int8", scheme="qdq")
    opener = EngineOpener(store, dataclasses.replace(wanted, tasks={**wanted.tasks, "asr": asr}))
    told: list[Event] = []
    opener.emit = told.append
    engines = opener.open("asr")
    row = opener.settled["asr"]
    assert row.backend == "ort-cpu"
    assert len(opener.degraded) == 2
    assert all("tensorrt int8 failed" in sentence for sentence in opener.degraded)
    assert {event.task for event in told if isinstance(event, EngineChanged)} == {"asr.encoder", "asr.decoder"}
    assert engines["encoder"].stream().run({"audio": np.zeros((1, 16_000), np.float32)})
    opener.close()


def test_a_hot_machine_gets_one_thread_an_engine_and_the_plan_s_again_when_cool(store: Store) -> None:
    opener = EngineOpener(store, plan(store, precision="int8", threads=2))
    opener.emit = (told := []).append
    stream = opener.open("asr")["encoder"].stream()
    sound = {"audio": np.random.default_rng(1).normal(0, 0.1, (1, 16_000)).astype(np.float32)}
    before = stream.run(sound)
    opener.heat(advise(Heat.HOT))
    assert opener.settled["asr"].threads == 1
    stream.reset()
    hot = stream.run(sound)
    np.testing.assert_allclose(hot["cross_k.0"], before["cross_k.0"], atol=1e-3)
    opener.heat(advise(Heat.HOT))  # nothing more to do
    opener.heat(advise(Heat.NORMAL))
    assert opener.settled["asr"].threads == 2
    assert {event.task for event in told} == {"asr.encoder", "asr.decoder"}
    assert len(told) == 4
    assert opener.degraded == ()
    opener.close()
