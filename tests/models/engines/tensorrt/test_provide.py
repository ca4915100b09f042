"""From a graph to a serving engine on the fake TensorRT: hit, miss, swap under load, and everything that can fail."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models.engines.base import Engine
from models.engines.ladder import LadderEngine, Rung
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.build_process import BuildReport, BuildRequest, build
from models.engines.tensorrt.builder import BuildLimits, run_build
from models.engines.tensorrt.cache import EngineCache
from models.engines.tensorrt.key import BuildSettings
from models.engines.tensorrt.pool import Pool
from models.engines.tensorrt.profiles import GraphProfiles
from models.engines.tensorrt.provide import BuildAt, EngineSpec, Provider
from models.engines.tensorrt.selfcheck import Golden
from models.errors import (
    DeviceError,
    DeviceMemoryError,
    EngineBuildError,
    EngineCheckError,
    EngineRefusedError,
    ProfileError,
    StoreCapError,
    TensorRtMissingError,
)
from models.progress import Progress
from tests.models.engines.tensorrt.made import CACHE, cache_graph, cache_profiles

ROOMY = BuildLimits(timeout_s=60, memory_mib=2048, leave_mib=1)


class FakeRunner:
    """FAKE: builds in this process, with what goes wrong on demand."""

    def __init__(self, fake: Any) -> None:
        self.fake, self.builds = fake, 0
        self.error: Exception | None = None
        self.gate: threading.Event | None = None

    def __call__(
        self, request: BuildRequest, limits: BuildLimits, progress: Progress, cancelled: Callable[[], bool]
    ) -> BuildReport:
        self.builds += 1
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.error is not None:
            raise self.error
        stop = threading.Event()
        if cancelled():
            stop.set()
        return build(request, self.fake, lambda message: None, stop)


@pytest.fixture
def runner(fake: Any) -> FakeRunner:
    return FakeRunner(fake)


@pytest.fixture
def provider(fake: Any, device: Any, pool: Pool, runner: FakeRunner, tmp_path: Path) -> Iterator[Provider]:
    """Whatever a test does: nothing is left on the device."""
    at = BuildAt(fake, device, module="p3767-0005", l4t="36.4.4")
    yield Provider(at, EngineCache(tmp_path / "engines"), pool, ROOMY, runner=runner)
    pool.trim()
    assert pool.used_bytes == pool.pinned_bytes == 0
    assert device.handles == 0


@pytest.fixture
def spec(cache_onnx: Path) -> EngineSpec:
    return EngineSpec("made cache fp32", cache_onnx, GraphProfiles(cache_profiles()), [CACHE])


def feed(*values: float) -> dict[str, Any]:
    data = np.repeat(np.array(values, dtype=np.float32)[None, :, None], 2, axis=2)
    return {"x": data, "w": np.ones(1, dtype=np.float32)}


def golden(spec: EngineSpec, **changed: Any) -> Golden:
    def reference() -> Engine:
        return OrtCpuEngine(spec.onnx, spec.states)

    return dataclasses.replace(Golden([feed(1), feed(2, 3), feed(4)], reference), **changed)


def test_the_first_time_it_is_built_and_the_second_time_it_is_there(
    provider: Provider, spec: EngineSpec, runner: FakeRunner
) -> None:
    assert provider.cached(spec) is None
    with contextlib.closing(provider.get(spec, golden(spec))) as engine:
        assert engine.stream().run(feed(1))["y"] == 2
    (row,) = [r for r in provider.cache.rows() if r.status == "ready" and r.name == spec.name]
    assert row.bytes > 0
    found = provider.cache.open(provider.key(spec))
    assert found is not None
    assert found.manifest.checks["worst_snr_db"] == 200.0
    for get in (lambda: provider.get(spec, golden(spec)), lambda: provider.cached(spec)):
        again = get()
        assert again is not None
        with contextlib.closing(again):
            assert again.stream().run(feed(1))["y"] == 2
    assert runner.builds == 1


def test_another_version_is_another_engine_and_the_old_one_stays(
    provider: Provider, spec: EngineSpec, runner: FakeRunner, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.get(spec, golden(spec)).close()
    monkeypatch.setattr(fake, "__version__", "10.4.0")
    assert provider.cached(spec) is None
    provider.get(spec, golden(spec)).close()
    assert runner.builds == 2
    monkeypatch.undo()
    provider.get(spec, golden(spec)).close()
    assert runner.builds == 2


def test_a_version_compatible_engine_serves_after_a_minor_upgrade(
    provider: Provider, spec: EngineSpec, runner: FakeRunner, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lasting = dataclasses.replace(spec, settings=BuildSettings(version_compatible=True))
    provider.get(lasting, golden(spec)).close()
    monkeypatch.setattr(fake, "__version__", "10.4.0")
    engine = provider.cached(spec)
    assert engine is not None
    with contextlib.closing(engine):
        assert engine.stream().run(feed(1))["y"] == 2
    assert runner.builds == 1


def test_a_plan_that_tensorrt_no_longer_takes_is_built_anew(
    provider: Provider, spec: EngineSpec, runner: FakeRunner
) -> None:
    """Right by its checksum: as after an upgrade that left the version's name as it was."""
    provider.get(spec, golden(spec)).close()
    found = provider.cache.open(provider.key(spec))
    assert found is not None
    with provider.cache.building(provider.key(spec)) as work:
        (work / "engine").write_bytes(b"another format")
        changed = {"size": 14, "sha256": hashlib.sha256(b"another format").hexdigest()}
        provider.cache.put(work / "engine", found.manifest.model_copy(update=changed))
    provider.get(spec, golden(spec)).close()
    assert runner.builds == 2


def test_an_engine_that_gives_nan_is_not_used_and_not_built_again(
    provider: Provider, spec: EngineSpec, runner: FakeRunner, fake: Any
) -> None:
    fake.faults.nan = True
    with pytest.raises(EngineCheckError, match=r"run 0, y: 1 of 1 values are not finite"):
        provider.get(spec, golden(spec))
    assert provider.cached(spec) is None
    fake.faults.nan = False
    with pytest.raises(EngineRefusedError, match=r"given up before: .*not finite.*wren engines build --again"):
        provider.get(spec, golden(spec))
    assert runner.builds == 1
    provider.cache.forget_failure(provider.key(spec))
    provider.get(spec, golden(spec)).close()


def test_an_engine_that_computes_something_else_is_not_used(
    provider: Provider, spec: EngineSpec, tmp_path: Path
) -> None:
    other = cache_graph(tmp_path / "other.onnx")
    model = onnx.load(other)
    model.graph.node[1].op_type = "ReduceMax"
    onnx.save(model, other)
    wrong = dataclasses.replace(spec, onnx=other)
    with pytest.raises(EngineCheckError, match=r"y -?\d+\.\d dB of signal to noise.* 15 dB are wanted"):
        provider.get(wrong, golden(spec))


def test_a_further_check_may_refuse_and_its_figures_are_kept(provider: Provider, spec: EngineSpec) -> None:
    def words(engine: Engine) -> dict[str, float | int | str]:
        if engine.stream().run(feed(1))["y"] != 2:
            raise EngineCheckError("other words")
        return {"words": "turn on the light"}

    provider.get(spec, golden(spec, extra=words)).close()
    found = provider.cache.open(provider.key(spec))
    assert found is not None
    assert found.manifest.checks["words"] == "turn on the light"


@pytest.mark.parametrize(
    ("error", "remembered"),
    [
        (EngineRefusedError("Could not find any implementation"), True),
        (ProfileError("no profile covers it"), True),
        (DeviceError("cudaErrorIllegalAddress (700)"), True),
        (EngineBuildError("was killed by signal 9"), False),
        (DeviceMemoryError("cudaErrorMemoryAllocation (2)"), False),
        (TensorRtMissingError("libnvinfer.so.10"), False),
    ],
)
def test_a_refusal_is_remembered_a_crash_is_not(
    provider: Provider, spec: EngineSpec, runner: FakeRunner, error: Exception, remembered: bool
) -> None:
    runner.error = error
    for attempt in range(2):
        with pytest.raises(EngineRefusedError if attempt and remembered else type(error), match=re.escape(str(error))):
            provider.get(spec, golden(spec))
    assert runner.builds == (1 if remembered else 2)
    assert (provider.cache.failure(provider.key(spec)) is not None) == remembered
    assert not list((provider.cache.folder / "tmp").iterdir())


def test_without_room_on_the_disk_the_engine_is_not_used_either(provider: Provider, spec: EngineSpec) -> None:
    provider.cache.max_bytes = 10
    with pytest.raises(StoreCapError):
        provider.get(spec, golden(spec))
    assert provider.cached(spec) is None


def test_two_that_want_the_same_engine_build_it_once(provider: Provider, spec: EngineSpec, runner: FakeRunner) -> None:
    runner.gate = threading.Event()
    engines: list[Engine] = []
    threads = [threading.Thread(target=lambda: engines.append(provider.get(spec, golden(spec)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    runner.gate.set()
    for thread in threads:
        thread.join(60)
    assert len(engines) == 3
    assert runner.builds == 1
    for engine in engines:
        engine.close()


# ---- while others serve ---------------------------------------------------------------------------


def _rung(name: str, open_it: Callable[[], Engine]) -> Rung:
    return Rung(name=name, backend=name, precision="fp32", key=name, open=open_it)


def test_the_rung_below_serves_until_the_engine_is_checked_and_then_it_is_swapped_in_under_load(
    provider: Provider, spec: EngineSpec, runner: FakeRunner, device: Any
) -> None:
    """Two sessions talk all the while; every answer of every utterance is right, and none is lost."""
    runner.gate, ready, stop = threading.Event(), threading.Event(), threading.Event()
    ladder = LadderEngine("made", [_rung("ort-cpu", lambda: OrtCpuEngine(spec.onnx, spec.states))], spec.states)
    wrong: list[str] = []
    utterances = [0, 0]

    def converse(number: int, step: float) -> None:
        stream = ladder.stream()
        while not stop.is_set():
            stream.reset()
            for n in range(1, 12):
                if stream.run(feed(step))["y"] != 2 * n * step:
                    wrong.append(f"{step}: {n}")
            utterances[number] += 1

    def swap(engine: Engine) -> None:
        assert ladder.offer(_rung("tensorrt", lambda: engine))
        ready.set()

    sessions = [threading.Thread(target=converse, args=(i, step)) for i, step in enumerate((1.0, 8.0))]
    for session in sessions:
        session.start()
    background = provider.in_background(spec, golden(spec), swap, lambda error: wrong.append(str(error)))
    while min(utterances) < 3:
        stop.wait(0.01)
    assert ladder.state().serving == "ort-cpu"
    runner.gate.set()
    assert ready.wait(60)
    assert background.join(60)
    launched, before = device.launches, list(utterances)
    while min(u - b for u, b in zip(utterances, before, strict=True)) < 6:
        stop.wait(0.01)
    stop.set()
    for session in sessions:
        session.join(60)
    assert not wrong
    assert ladder.state().serving == "tensorrt"
    assert device.launches > launched  # they did go over, and graphs run
    ladder.close()


def test_a_background_build_that_fails_tells_why_and_nothing_is_swapped(
    provider: Provider, spec: EngineSpec, fake: Any
) -> None:
    fake.faults.nan = True
    told: list[Exception] = []
    background = provider.in_background(spec, golden(spec), lambda engine: told.append(ValueError()), told.append)
    assert background.join(60)
    assert [type(error) for error in told] == [EngineCheckError]


def test_a_cancelled_build_tells_nobody_and_leaves_nothing(
    provider: Provider, spec: EngineSpec, runner: FakeRunner
) -> None:
    runner.gate = threading.Event()
    told: list[Any] = []
    background = provider.in_background(spec, golden(spec), told.append, told.append)
    background.cancel()
    runner.gate.set()
    assert background.join(60)
    assert not told
    assert provider.cache.failure(provider.key(spec)) is None
    runner.gate = None
    provider.get(spec, golden(spec)).close()


def test_an_engine_that_breaks_while_it_serves_hands_over_within_the_utterance(
    provider: Provider, spec: EngineSpec, fake: Any
) -> None:
    engine = provider.get(spec, golden(spec))
    rungs = [_rung("tensorrt", lambda: engine), _rung("ort-cpu", lambda: OrtCpuEngine(spec.onnx, spec.states))]
    ladder = LadderEngine("made", rungs, spec.states)
    stream = ladder.stream()
    assert [stream.run(feed(1))["y"] for _ in range(3)] == [2, 4, 6]
    fake.faults.no_execute = True
    assert stream.run(feed(1))["y"] == 8
    assert ladder.state().serving == "ort-cpu"
    ladder.close()


@pytest.mark.usefixtures("fake_in_processes")
def test_the_whole_path_with_the_build_in_its_process(
    provider: Provider, spec: EngineSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.runner = run_build
    monkeypatch.setenv("WREN_FAKE_TENSORRT", "crash")
    with pytest.raises(EngineBuildError, match="signal 11"):
        provider.get(spec, golden(spec))
    monkeypatch.delenv("WREN_FAKE_TENSORRT")
    with contextlib.closing(provider.get(spec, golden(spec))) as engine:
        assert engine.stream().run(feed(1))["y"] == 2
    assert provider.cache.timing_cache(provider.key(spec)).read_bytes() == b"timed once"
