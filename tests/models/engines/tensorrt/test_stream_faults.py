"""What goes wrong in a stream on the fake TensorRT, and how streams and engines end."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from models.engines.ladder import LadderEngine
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.pool import Pool, PoolSizes
from models.errors import DeviceError, DeviceMemoryError, EngineError, EnginePlanError
from tests.models.engines.fakes import rung
from tests.models.engines.tensorrt.conftest import MakeEngine
from tests.models.engines.tensorrt.made import CACHE, SUM, cache_profiles, rows_of, x


def test_a_run_that_tensorrt_refuses_says_why_and_leaves_the_state(
    sum_onnx: Path, make_engine: MakeEngine, fake: Any
) -> None:
    stream = make_engine(sum_onnx, [SUM]).stream()
    stream.run(x(1, 1))
    fake.faults.no_execute = True
    with pytest.raises(EngineError, match=r"sum.*illegal access"):
        stream.run(x(5, 5))
    fake.faults.no_execute = False
    assert stream.run(x(1, 1))["y"].tolist() == [4, 4]


def test_a_shape_that_was_taken_by_halves_is_said_again(cache_onnx: Path, make_engine: MakeEngine, fake: Any) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles(), graphs=0).stream()
    stream.run(rows_of(1, 1, 1))
    stream.reset()
    fake.faults.no_infer = True
    with pytest.raises(EngineError, match="no shape was given for past, x, w"):
        stream.run(rows_of(1, 1))
    fake.faults.no_infer = False
    assert stream.run(rows_of(1, 1))["y"] == 4
    assert stream.snapshot()["past"].shape == (1, 2, 2)


def test_a_context_that_cannot_be_had_says_why(sum_onnx: Path, make_engine: MakeEngine, fake: Any) -> None:
    engine = make_engine(sum_onnx, [SUM])
    fake.faults.no_context = True
    with pytest.raises(EngineError, match="OutOfMemory"):
        engine.stream()


def test_a_kernel_that_crashes_comes_out_as_a_device_error_and_close_gives_back_what_it_can(
    sum_onnx: Path, make_engine: MakeEngine, fake: Any, device: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(sum_onnx, [SUM])
    stream = engine.stream()
    stream.run(x(1, 1))
    fake.faults.crash_kernel = True
    with pytest.raises(DeviceError, match="illegal memory access"):
        stream.run(x(1, 1))
    with pytest.raises(DeviceError):
        stream.run(x(1, 1))
    engine.close()
    assert "not given back" in caplog.text
    assert device.handles == 0


def test_a_device_without_room_is_said_to_be_and_what_serves_goes_on(cache_onnx: Path, fake: Any) -> None:
    from models.engines.tensorrt.engine import TensorRtEngine
    from tests.models.engines.tensorrt.made import plan_of

    device = fake.FakeDevice(total_bytes=64 << 10)
    pool = Pool(device, PoolSizes(limit=1 << 20, keep=0))
    plan = plan_of(cache_onnx, cache_profiles())
    engine = TensorRtEngine(plan, [CACHE], trt=fake, pool=pool, name="cache")
    serving = engine.stream()
    serving.run(rows_of(1))
    others: list[Any] = []

    def open_more() -> None:
        while True:
            others.append(engine.stream())
            others[-1].run(rows_of(1))

    with pytest.raises(DeviceMemoryError, match="cudaErrorMemoryAllocation"):
        open_more()
    assert len(others) > 2
    assert serving.run(rows_of(2))["y"] == 6
    engine.close()
    assert device.handles == 0


def test_a_run_that_finds_no_pinned_memory_keeps_none_and_the_next_one_runs(
    cache_onnx: Path, make_engine: MakeEngine, pool: Pool, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(rows_of(1))
    pool.trim()
    taken = []

    def refuse_the_second(nbytes: int) -> Any:
        taken.append(nbytes)
        if len(taken) > 1:
            raise DeviceMemoryError("cudaHostAlloc: cudaErrorMemoryAllocation (2)")
        return fake_allocate(nbytes)

    fake_allocate = device.allocate_host
    monkeypatch.setattr(pool._host, "_make", refuse_the_second)
    with pytest.raises(DeviceMemoryError, match="cudaHostAlloc"):
        stream.run(rows_of(5))
    assert pool.pinned_bytes == 0
    monkeypatch.undo()
    assert stream.run(rows_of(1))["y"] == 4


def test_a_run_that_failed_after_it_had_begun_to_write_leaves_nothing_to_take_back(
    cache_onnx: Path, make_engine: MakeEngine, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(rows_of(1))
    stream.run(rows_of(2))

    def refuse(*arguments: Any) -> None:
        raise DeviceError("cudaMemcpyAsync: cudaErrorUnknown (999)")

    monkeypatch.setattr(device, "copy_out", refuse)
    with pytest.raises(DeviceError, match="cudaErrorUnknown"):
        stream.run(rows_of(5))
    monkeypatch.undo()
    stream.rewind()
    assert stream.snapshot()["past"][0, :, 0].tolist() == [1, 2]


def test_the_pools_bound_holds_before_the_devices(device: Any) -> None:
    pool = Pool(device, PoolSizes(limit=4096, keep=0))
    block = pool.device_block(3000)
    with pytest.raises(DeviceMemoryError, match="4096 allowed"):
        pool.device_block(2048)
    pool.release(block)
    pool.release(pool.device_block(4096))
    assert device.allocated == 0


def test_a_state_that_the_plan_has_not_is_refused(sum_onnx: Path, make_engine: MakeEngine, device: Any) -> None:
    with pytest.raises(EnginePlanError, match="no recurrent tensor past"):
        make_engine(sum_onnx, [CACHE])
    assert device.handles == 0


def test_junk_and_another_versions_plan_are_refused_with_the_reason(
    sum_onnx: Path, fake: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.engines.tensorrt.engine import TensorRtEngine
    from tests.models.engines.tensorrt.made import plan_of

    plan = plan_of(sum_onnx)
    with pytest.raises(EnginePlanError, match="magicTag"):
        TensorRtEngine(b"junk" * 10, [SUM], trt=fake, pool=pool, name="sum")
    monkeypatch.setattr(fake, "__version__", "10.4.0")
    with pytest.raises(EnginePlanError, match=r"version 10\.3\.0, not 10\.4\.0"):
        TensorRtEngine(plan, [SUM], trt=fake, pool=pool, name="sum")


# ---- the end --------------------------------------------------------------------------------------


def test_a_closed_stream_gives_its_memory_back_at_once(cache_onnx: Path, make_engine: MakeEngine, pool: Pool) -> None:
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    first = engine.stream()
    first.run(rows_of(1))
    alone = pool.used_bytes
    others = [engine.stream() for _ in range(3)]
    for stream in others:
        stream.run(rows_of(1))
    assert pool.used_bytes > alone
    for stream in others:
        stream.close()
        stream.close()
        with pytest.raises(EngineError, match="closed"):
            stream.run(rows_of(1))
    assert pool.used_bytes == alone


def test_a_stream_that_is_let_go_gives_its_memory_back_at_the_next_occasion(
    cache_onnx: Path, make_engine: MakeEngine, pool: Pool
) -> None:
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    serving = engine.stream()
    serving.run(rows_of(1))
    alone = pool.used_bytes
    gone = [engine.stream() for _ in range(3)]
    for stream in gone:
        stream.start(rows_of(1))
    del gone, stream
    gc.collect()
    serving.run(rows_of(1))
    assert pool.used_bytes == alone


def test_streams_of_a_closed_engine_say_so(sum_onnx: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(sum_onnx, [SUM])
    stream = engine.stream()
    engine.close()
    engine.close()
    for call in (lambda: stream.run(x(1, 1)), stream.reset, stream.snapshot, engine.stream):
        with pytest.raises(EngineError, match="closed"):
            call()


# ---- with a ladder above --------------------------------------------------------------------------


def test_a_run_that_no_profile_covers_is_made_below_and_the_next_utterance_is_on_the_device_again(
    cache_onnx: Path, make_engine: MakeEngine
) -> None:
    """The device's engine takes three rows at once, the processor's any number."""
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    rungs = [rung("tensorrt", lambda: engine), rung("cpu", lambda: OrtCpuEngine(cache_onnx, [CACHE]), limits=None)]
    ladder = LadderEngine("cache", rungs, [CACHE])
    stream = ladder.stream()
    for _ in range(2):
        stream.reset()
        assert stream.run(rows_of(1))["y"] == 2
        assert ladder.state().rungs[0].status == "serving"
        assert stream.run(rows_of(1, 1, 1, 1))["y"] == 10
        assert stream.run(rows_of(1))["y"] == 12
    assert [(r.status, r.reason) for r in ladder.state().rungs] == [("serving", ""), ("ready", "")]
    assert not ladder.state().degraded
