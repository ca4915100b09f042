"""TensorRT engines built beside the serving rung, on the labelled fake TensorRT: waited for, swapped in, or told of."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.building import EngineBuilds
from appliance.engines import EngineOpener
from appliance.events import EngineBuilding, EngineChanged, Event
from appliance.planning import current_plan
from hw.probe import Machine
from models import Progress, Store
from models.engines.tensorrt.build_process import BuildReport, BuildRequest, build
from models.engines.tensorrt.builder import BuildLimits
from models.engines.tensorrt.cache import EngineCache
from models.engines.tensorrt.pool import Pool, PoolSizes
from models.engines.tensorrt.provide import BuildAt, Provider
from models.errors import EngineBuildError, TensorRtMissingError
from tests.models.engines import fake_tensorrt

pytestmark = pytest.mark.models

WINDOW = np.random.default_rng(1).normal(0, 0.1, (1, 576)).astype(np.float32)


class FakeBuilder:
    """FAKE: builds in this process on the fake TensorRT, when it is let; fails on demand."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.cancelled: Callable[[], bool] | None = None

    def __call__(
        self, request: BuildRequest, limits: BuildLimits, progress: Progress, cancelled: Callable[[], bool]
    ) -> BuildReport:
        self.cancelled = cancelled
        for done in range(3):
            progress("tactics", done, 2)
        while not self.gate.wait(0.01):
            if cancelled():
                raise EngineBuildError("cancelled")
        if self.error is not None:
            raise self.error
        return build(request, fake_tensorrt, lambda message: None, threading.Event())  # type: ignore[arg-type]


class House:
    """The VAD planned on TensorRT, nothing built."""

    def __init__(self, folder: Path) -> None:
        real = Store()
        for name in ("packs", "artefacts"):
            (folder / name).symlink_to(real.root / name)
        store = Store(folder)
        plan = current_plan(store, Machine(arch="x86_64"))
        vad = dataclasses.replace(plan.tasks["vad"], backend="tensorrt")
        self.builder, self.events = FakeBuilder(), list[Event]()
        self.device = fake_tensorrt.FakeDevice()
        self.pool = Pool(self.device, PoolSizes(limit=1 << 30, keep=16 << 20))  # type: ignore[arg-type]
        self.opener = EngineOpener(store, dataclasses.replace(plan, tasks={**plan.tasks, "vad": vad}))
        self.opener.emit = self.events.append
        self.opener.make_provider = self._provider
        self.engine = self.opener.open("vad")["vad"]
        self.builds = EngineBuilds(self.opener, self.events.append)

    def _provider(self, store: Store) -> Provider:
        at: Any = BuildAt(fake_tensorrt, self.device, module=None, l4t=None)  # type: ignore[arg-type]
        return Provider(at, EngineCache(store.root / "engines"), self.pool, runner=self.builder)

    def probability(self) -> float:
        return float(self.engine.stream().run({"input": WINDOW})["output"][0, 0])

    def until(self, status: str) -> None:
        deadline_s = time.monotonic() + 30
        while self.builds.states[0].status != status:
            assert time.monotonic() < deadline_s, self.builds.states
            time.sleep(0.01)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.builder.gate.set()
    made.builds.close()
    made.opener.close()


def test_what_is_planned_is_built_while_the_rung_below_serves_and_then_swapped_in(house: House) -> None:
    before = house.probability()
    assert house.opener.settled["vad"].backend == "ort-cpu"
    house.builds.step()
    house.until("building")
    house.builds.step()  # one at a time
    assert house.probability() == before
    house.builder.gate.set()
    house.until("done")
    assert house.opener.settled["vad"].backend == "tensorrt"
    assert house.opener.degraded == ()
    assert house.probability() == pytest.approx(before, abs=1e-3)
    assert [event.share for event in house.events if isinstance(event, EngineBuilding)][:3] == [0.0, 0.5, 1.0]
    assert [event.engine for event in house.events if isinstance(event, EngineChanged)][-1] == "tensorrt fp32"
    house.builds.step()  # nothing is left
    assert EngineBuilds(house.opener, house.events.append).states == ()


def test_an_engine_that_decides_otherwise_than_the_cpu_is_not_swapped_in(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `wren engines build` has it: close in signal to noise is not enough."""
    monkeypatch.setattr("appliance.evaluation.passes", lambda made, wanted: False)
    house.builder.gate.set()
    house.builds.step()
    house.until("failed")
    (state,) = house.builds.states
    assert "by the FP32 graph on the CPU" in state.reason
    assert house.opener.settled["vad"].backend == "ort-cpu"


def test_a_build_that_fails_is_told_and_not_tried_again_by_itself(house: House) -> None:
    house.builder.error = EngineBuildError("the GPU has no memory left")
    house.builder.gate.set()
    house.builds.step()
    house.until("failed")
    house.builds.step()
    (state,) = house.builds.states
    assert (state.status, state.reason) == ("failed", "the GPU has no memory left")
    assert house.opener.settled["vad"].backend == "ort-cpu"


def test_closing_ends_a_build_and_leaves_nothing(house: House) -> None:
    house.builds.step()
    house.until("building")
    deadline_s = time.monotonic() + 30
    while house.builder.cancelled is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    house.builds.close()
    assert house.builder.cancelled()
    assert house.opener.settled["vad"].backend == "ort-cpu"
    assert not list((house.opener.store.root / "engines").glob("*/engine"))
    before = house.builds.states
    house.builds.step()  # from now on nothing is begun
    assert house.builds.states == before


def test_without_tensorrt_the_reason_is_the_build_s(house: House) -> None:
    def missing(store: Store) -> Provider:
        raise TensorRtMissingError("no TensorRT here: sudo apt-get install python3-libnvinfer")

    opener = EngineOpener(house.opener.store, house.opener.plan)
    opener.make_provider = missing
    opener.open("vad")
    builds = EngineBuilds(opener, house.events.append)
    builds.step()
    assert "python3-libnvinfer" in builds.states[0].reason
    opener.close()
