"""Streams on the fake TensorRT: what `Stream` promises, and what memory and copies they cost."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models.engines.base import Rewindable, StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.pool import Pool, PoolSizes
from models.engines.tensorrt.profiles import Padding, Span
from models.errors import DeviceError, DeviceMemoryError, EngineError, EnginePlanError, ProfileError
from tests.models.engines.tensorrt.conftest import MakeEngine
from tests.models.engines.tensorrt.made import CACHE, SUM, cache_graph, cache_profiles, save, x


def _rows(*values: float, weight: int = 1) -> dict[str, Any]:
    """One row each, and weights of 1."""
    data = np.repeat(np.array(values, dtype=np.float32)[None, :, None], 2, axis=2)
    return {"x": data, "w": np.ones(weight, dtype=np.float32)}


def test_the_state_is_carried_from_run_to_run_and_not_shown(sum_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(sum_onnx, [SUM]).stream()
    outs = [stream.run(x(1, 2)) for _ in range(5)]
    assert [o["y"].tolist() for o in outs] == [[1, 4], [4, 16], [9, 36], [16, 64], [25, 100]]
    assert outs[0].keys() == {"y"}


def test_a_cache_starts_empty_grows_over_a_change_of_profile_and_starts_again(
    cache_onnx: Path, make_engine: MakeEngine
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    for n in range(1, 9):
        assert stream.run(_rows(1))["y"] == 2 * n
    # The ninth does not fit into the narrow profile's past of 8.
    assert stream.run(_rows(1))["y"] == 18
    assert stream.run(_rows(1, 1, 1))["y"] == 24
    assert stream.snapshot()["past"].shape == (1, 12, 2)
    stream.reset()
    assert stream.run(_rows(5))["y"] == 10


def test_what_no_profile_covers_is_refused_and_changes_nothing(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(_rows(1))
    with pytest.raises(ProfileError, match=r"x \[1, 4, 2\].*most \[1, 3, 2\]"):
        stream.run(_rows(1, 1, 1, 1))
    assert stream.run(_rows(1))["y"] == 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "wants inputs"),
        ({"x": np.zeros(2, dtype=np.int32)}, "wants float32, got int32"),
        ({"x": np.zeros((1, 2), dtype=np.float32)}, "wants 1 dimensions"),
        ({"x": np.zeros(3, dtype=np.float32)}, "invalid dimensions for input: x wants"),
        ({"x": np.zeros(2, dtype=np.float32), "more": np.zeros(2)}, "wants inputs"),
    ],
)
def test_wrong_inputs_are_named(sum_onnx: Path, make_engine: MakeEngine, inputs: dict[str, Any], message: str) -> None:
    stream = make_engine(sum_onnx, [SUM]).stream()
    with pytest.raises(EngineError, match=message):
        stream.run(inputs)
    assert stream.run(x(1, 1))["y"].tolist() == [1, 1]


def test_a_snapshot_is_the_same_as_on_the_cpu_and_goes_back_and_forth(
    cache_onnx: Path, make_engine: MakeEngine
) -> None:
    ours = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    theirs = OrtCpuEngine(cache_onnx, [CACHE]).stream()
    for n in range(3):
        ours.run(_rows(n))
        theirs.run(_rows(n))
    kept = ours.snapshot()
    assert np.array_equal(kept["past"], theirs.snapshot()["past"])
    ours.run(_rows(100))
    theirs.restore(kept)
    assert theirs.run(_rows(7))["y"] == 2 * (0 + 1 + 2 + 7)
    ours.restore(theirs.snapshot())
    assert ours.run(_rows(1))["y"] == 2 * (0 + 1 + 2 + 7 + 1)
    assert kept["past"].shape == (1, 3, 2)


def test_a_state_that_is_none_of_this_models_is_refused(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(_rows(1))
    for state in (
        {},
        {"past": np.zeros((1, 2), dtype=np.float32)},
        {"past": np.zeros((1, 1, 2), dtype=np.int64)},
        {"past": np.zeros((1, 41, 2), dtype=np.float32)},
    ):
        with pytest.raises(EngineError):
            stream.restore(state)
    assert stream.run(_rows(1))["y"] == 4


def test_a_half_precision_engine_takes_and_gives_what_the_others_do(tmp_path: Path, make_engine: MakeEngine) -> None:
    path = cache_graph(tmp_path / "half.onnx", TensorProto.FLOAT16)
    stream = make_engine(path, [CACHE], cache_profiles()).stream()
    out = stream.run(_rows(0.5, 0.25))["y"]
    assert out.dtype == np.float32
    assert out == 1.5
    state = stream.snapshot()
    assert state["past"].dtype == np.float32
    stream.restore(state)
    assert stream.run(_rows(1))["y"] == 3.5
    assert stream.run({n: v.astype(np.float16) for n, v in _rows(1).items()})["y"] == 5.5


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=3), max_size=9),
    at=st.integers(0, 9),
)
def test_going_back_to_any_point_and_on_again_gives_what_the_cpu_gives(
    cache_onnx: Path, make_engine: MakeEngine, values: list[list[int]], at: int
) -> None:
    ours = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    theirs = OrtCpuEngine(cache_onnx, [CACHE]).stream()

    def both(rows: list[int], weight: int) -> None:
        feed = _rows(*rows, weight=weight)
        assert ours.run(feed)["y"] == theirs.run(feed)["y"]

    for n, rows in enumerate(values[:at]):
        both(rows, 1 + n)
    kept, kept_theirs = ours.snapshot(), theirs.snapshot()
    for _ in range(3):  # plain, captured, from the graph
        for n, rows in enumerate(values[at:]):
            both(rows, 1 + n)
        ours.restore(kept)
        theirs.restore(kept_theirs)
    ours.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["run", "start"]), st.integers(-4, 4), st.integers(1, 3)),
            st.tuples(st.sampled_from(["finish", "reset", "rewind", "keep", "restore"]), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_whatever_is_done_in_whatever_order_the_state_is_what_a_list_would_hold(
    cache_onnx: Path, make_engine: MakeEngine, steps: list[tuple[str, int, int]]
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles(), graphs=3).stream()
    rows: list[int] = []
    before: list[int] | None = None
    kept = stream.snapshot(), list(rows)
    under_way: list[tuple[Any, int]] = []

    def end_one() -> None:
        ticket, wanted = under_way.pop(0)
        assert stream.finish(ticket)["y"] == wanted

    for what, value, count in steps:
        if what in ("run", "start") and len(rows) + count <= 40:
            while (what == "run" and under_way) or len(under_way) == 2:
                end_one()
            before = list(rows)
            rows = rows + [value] * count
            under_way.append((stream.start(_rows(*[value] * count)), 2 * sum(rows)))
            if what == "run":
                end_one()
            continue
        while under_way:
            end_one()
        if what == "reset":
            stream.reset()
            rows, before = [], None
        elif what == "rewind" and before is not None:
            stream.rewind()
            rows, before = before, None
        elif what == "keep":
            kept = stream.snapshot(), list(rows)
        elif what == "restore":
            stream.restore(kept[0])
            rows, before = list(kept[1]), None
        assert stream.snapshot()["past"][0, :, 0].tolist() == rows
    while under_way:
        end_one()
    stream.close()


def test_the_second_run_of_a_shape_is_captured_and_the_third_launched(
    sum_onnx: Path, make_engine: MakeEngine, device: Any
) -> None:
    stream = make_engine(sum_onnx, [SUM]).stream()
    # Each side of the state is a run of its own: two shapes, so to say.
    totals = [stream.run(x(1, 0))["y"][0] for _ in range(12)]
    assert totals == [float(n * n) for n in range(1, 13)]
    assert stream.graphs == 2
    assert device.launches == 8


def test_graphs_are_bounded_and_the_places_stay_with_who_came_first(
    cache_onnx: Path, make_engine: MakeEngine, device: Any
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles(), graphs=3).stream()
    for _ in range(4):
        stream.reset()
        for n in range(1, 8):
            assert stream.run(_rows(1))["y"] == 2 * n
    assert stream.graphs == 3
    assert len(device.graphs) == 3
    assert device.launches == 2 * 3


def test_a_graph_that_has_not_run_for_long_gives_its_place_up(
    cache_onnx: Path, make_engine: MakeEngine, device: Any
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles(), graphs=1).stream()

    def utterances(number: int, weight: int) -> int:
        before = device.launches
        for _ in range(number):
            stream.reset()
            assert stream.run(_rows(1, weight=weight))["y"] == 2 * weight
        return int(device.launches - before)

    assert utterances(4, weight=2) == 2
    assert utterances(20, weight=3) == 0
    assert utterances(450, weight=3) > 0
    assert len(device.graphs) == 1


def test_graphs_go_when_memory_moves(cache_onnx: Path, make_engine: MakeEngine, device: Any) -> None:
    profile = {"past": Span((1, 0, 2), (1, 2, 2), (1, 8, 2)), "x": Span(*((1, 1, 2),) * 3)}
    stream = make_engine(cache_onnx, [CACHE], [{**profile, "w": Span((1,), (8,), (4096,))}]).stream()

    def run(weight: int, value: float) -> float:
        stream.reset()
        feed = {"x": _rows(1)["x"], "w": np.full(weight, value, dtype=np.float32)}
        return float(stream.run(feed)["y"])

    assert [run(8, 1) for _ in range(4)] == [16] * 4
    assert device.launches == 2
    assert run(4000, 1) == 8000
    assert [run(8, 2) for _ in range(4)] == [32] * 4


def test_without_graphs_nothing_is_captured(sum_onnx: Path, make_engine: MakeEngine, device: Any) -> None:
    stream = make_engine(sum_onnx, [SUM], graphs=0).stream()
    assert [stream.run(x(1, 0))["y"][0] for _ in range(6)] == [1, 4, 9, 16, 25, 36]
    assert device.launches == stream.graphs == 0


def test_where_capturing_fails_runs_stay_plain(sum_onnx: Path, make_engine: MakeEngine, fake: Any, device: Any) -> None:
    fake.faults.no_capture = True
    stream = make_engine(sum_onnx, [SUM]).stream()
    assert [stream.run(x(1, 0))["y"][0] for _ in range(6)] == [1, 4, 9, 16, 25, 36]
    assert stream.graphs == 0
    assert device.launches == 0


def test_two_streams_do_not_disturb_each_other_in_threads(cache_onnx: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    wrong: list[str] = []

    def converse(step: int) -> None:
        stream = engine.stream()
        for _ in range(15):
            stream.reset()
            for n in range(1, 12):
                if stream.run(_rows(step))["y"] != 2 * n * step:
                    wrong.append(f"{step}, {n}")
        stream.close()

    threads = [threading.Thread(target=converse, args=(step,)) for step in (1, 10, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_runs_may_be_under_way_and_end_in_order(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    for _ in range(4):
        stream.reset()
        first = stream.start(_rows(1))
        second = stream.start(_rows(2))
        with pytest.raises(EngineError, match="on their way"):
            stream.start(_rows(3))
        with pytest.raises(EngineError, match="in the order"):
            stream.finish(second)
        assert stream.finish(first)["y"] == 2
        third = stream.start(_rows(3))
        assert stream.finish(second)["y"] == 6
        assert stream.finish(third)["y"] == 12


def test_outputs_handed_out_stay_as_they_were_and_inputs_may_be_changed(
    sum_onnx: Path, make_engine: MakeEngine
) -> None:
    stream, given = make_engine(sum_onnx, [SUM]).stream(), np.array([1, 0], dtype=np.float32)
    outs = []
    for _ in range(10):
        given[:] = (1, 0)
        outs.append(stream.run({"x": given})["y"])
        given[:] = 100
    assert [o[0] for o in outs] == [float(n * n) for n in range(1, 11)]
    with pytest.raises(ValueError, match="read-only"):
        outs[0][0] = 0


def test_a_read_only_input_given_again_is_not_copied_again(
    cache_onnx: Path, make_engine: MakeEngine, device: Any
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    feed = _rows(1, weight=64)
    feed["w"].flags.writeable = False
    stream.run(feed)
    before = device.copied_in
    assert stream.run(feed)["y"] == 4 * 64
    assert device.copied_in - before == feed["x"].nbytes
    # Another array of the same values is another array; a view of something writable may change.
    stream.reset()
    before, source = device.copied_in, np.ones(64, dtype=np.float32)
    for value in (1, 2):
        source[:] = value
        view = source[:]
        view.flags.writeable = False
        stream.reset()
        assert stream.run({"x": feed["x"], "w": view})["y"] == 2 * 64 * value
    assert device.copied_in - before >= 2 * source.nbytes


def test_in_the_steady_state_nothing_is_allocated(cache_onnx: Path, make_engine: MakeEngine, device: Any) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()

    def utterance() -> None:
        stream.reset()
        for n in range(1, 13):
            stream.run(_rows(1, weight=n))

    for _ in range(3):
        utterance()
    before, used = device.allocations, device.allocated
    for _ in range(10):
        utterance()
    assert device.allocations == before
    assert device.allocated == used


def test_a_large_input_is_held_until_the_next_reset(tmp_path: Path, make_engine: MakeEngine, device: Any) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=0, name="sum"),
        helper.make_node("Add", ["sum", "total"], ["next"], name="add"),
        helper.make_node("Identity", ["next"], ["y"], name="y"),
    ]
    path = save(tmp_path / "large.onnx", nodes, {"a": [20_000], "total": [1]}, {"y": [1], "next": [1]})
    stream = make_engine(path, [StateTensor("total", "next", (1,))]).stream()
    large = np.ones(20_000, dtype=np.float32)
    stream.run({"a": large})
    before = device.copied_in
    assert stream.run({"a": large})["y"] == 40_000
    assert device.copied_in == before
    large[:] = 2
    stream.reset()
    assert stream.run({"a": large})["y"] == 40_000
    assert stream.run({"a": np.ones(20_000, dtype=np.float32)})["y"] == 60_000


def test_the_last_run_can_be_taken_back_once(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    assert isinstance(stream, Rewindable)
    stream.rewind()
    for n in range(1, 5):
        assert stream.run(_rows(n))["y"] == n * (n + 1)
        stream.rewind()
        stream.rewind()
        assert stream.run(_rows(n))["y"] == n * (n + 1)
    stream.rewind()
    assert stream.snapshot()["past"][0, :, 0].tolist() == [1, 2, 3]
    # Over a change of profile, which moves the state, only what is there is taken back.
    for n in range(4, 10):
        stream.run(_rows(n))
    stream.rewind()
    assert stream.run(_rows(9))["y"] == 90
    stream.reset()
    stream.rewind()
    assert stream.run(_rows(1))["y"] == 2


def test_padding_hides_from_both_sides_that_lengths_are_fixed(
    tmp_path: Path, make_engine: MakeEngine, device: Any
) -> None:
    """y = a + the sum of b: what is behind the end must be zero, whatever was there before."""
    nodes = [
        helper.make_node("ReduceSum", ["b"], ["sum"], keepdims=1, name="sum"),
        helper.make_node("Add", ["a", "sum"], ["y"], name="add"),
    ]
    path = save(tmp_path / "padded.onnx", nodes, {"a": [1, "n"], "b": [1, "n"]}, {"y": [1, "n"]})
    profiles = [{name: Span(*((1, n),) * 3) for name in "ab"} for n in (4, 9)]
    stream = make_engine(path, (), profiles, padding=Padding(1, ("a", "b"), ("y",))).stream()
    for length in (1, 9, 3, 4, 5, 9, 2, 8):
        a, b = np.arange(length, dtype=np.float32)[None], np.ones((1, length), dtype=np.float32)
        assert np.array_equal(stream.run({"a": a, "b": b})["y"], a + length)
    with pytest.raises(ProfileError, match=r"a \[1, 10\]"):
        stream.run({name: np.ones((1, 10), dtype=np.float32) for name in "ab"})
    assert {size for key in _shapes_seen(stream) for size in key} == {4, 9}


def _shapes_seen(stream: Any) -> set[tuple[int, ...]]:
    return {dims[1:] for key in stream._held.graphs._seen for _, dims in key.shape.inputs}


# ---- what goes wrong ------------------------------------------------------------------------------


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
    stream.run(_rows(1, 1, 1))
    stream.reset()
    fake.faults.no_infer = True
    with pytest.raises(EngineError, match="no shape was given for past, x, w"):
        stream.run(_rows(1, 1))
    fake.faults.no_infer = False
    assert stream.run(_rows(1, 1))["y"] == 4
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
    serving.run(_rows(1))
    others: list[Any] = []

    def open_more() -> None:
        while True:
            others.append(engine.stream())
            others[-1].run(_rows(1))

    with pytest.raises(DeviceMemoryError, match="cudaErrorMemoryAllocation"):
        open_more()
    assert len(others) > 2
    assert serving.run(_rows(2))["y"] == 6
    engine.close()
    assert device.handles == 0


def test_a_run_that_finds_no_pinned_memory_keeps_none_and_the_next_one_runs(
    cache_onnx: Path, make_engine: MakeEngine, pool: Pool, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(_rows(1))
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
        stream.run(_rows(5))
    assert pool.pinned_bytes == 0
    monkeypatch.undo()
    assert stream.run(_rows(1))["y"] == 4


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
    first.run(_rows(1))
    alone = pool.used_bytes
    others = [engine.stream() for _ in range(3)]
    for stream in others:
        stream.run(_rows(1))
    assert pool.used_bytes > alone
    for stream in others:
        stream.close()
        stream.close()
        with pytest.raises(EngineError, match="closed"):
            stream.run(_rows(1))
    assert pool.used_bytes == alone


def test_a_stream_that_is_let_go_gives_its_memory_back_at_the_next_occasion(
    cache_onnx: Path, make_engine: MakeEngine, pool: Pool
) -> None:
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    serving = engine.stream()
    serving.run(_rows(1))
    alone = pool.used_bytes
    gone = [engine.stream() for _ in range(3)]
    for stream in gone:
        stream.start(_rows(1))
    del gone, stream
    gc.collect()
    serving.run(_rows(1))
    assert pool.used_bytes == alone


def test_streams_of_a_closed_engine_say_so(sum_onnx: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(sum_onnx, [SUM])
    stream = engine.stream()
    engine.close()
    engine.close()
    for call in (lambda: stream.run(x(1, 1)), stream.reset, stream.snapshot, engine.stream):
        with pytest.raises(EngineError, match="closed"):
            call()
