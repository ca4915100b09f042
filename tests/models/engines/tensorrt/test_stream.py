"""Streams on the fake TensorRT: what `Stream` promises."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models.engines.base import Rewindable
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.tensorrt.profiles import Padding, Span
from models.errors import EngineError, UncoveredShapeError
from tests.models.engines.tensorrt.conftest import MakeEngine
from tests.models.engines.tensorrt.made import CACHE, SUM, cache_graph, cache_profiles, rows_of, save, x


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
        assert stream.run(rows_of(1))["y"] == 2 * n
    # The ninth does not fit into the narrow profile's past of 8.
    assert stream.run(rows_of(1))["y"] == 18
    assert stream.run(rows_of(1, 1, 1))["y"] == 24
    assert stream.snapshot()["past"].shape == (1, 12, 2)
    stream.reset()
    assert stream.run(rows_of(5))["y"] == 10


def test_what_no_profile_covers_is_refused_and_changes_nothing(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(rows_of(1))
    with pytest.raises(UncoveredShapeError, match=r"x \[1, 4, 2\].*most \[1, 3, 2\]"):
        stream.run(rows_of(1, 1, 1, 1))
    assert stream.run(rows_of(1))["y"] == 4


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
        ours.run(rows_of(n))
        theirs.run(rows_of(n))
    kept = ours.snapshot()
    assert np.array_equal(kept["past"], theirs.snapshot()["past"])
    ours.run(rows_of(100))
    theirs.restore(kept)
    assert theirs.run(rows_of(7))["y"] == 2 * (0 + 1 + 2 + 7)
    ours.restore(theirs.snapshot())
    assert ours.run(rows_of(1))["y"] == 2 * (0 + 1 + 2 + 7 + 1)
    assert kept["past"].shape == (1, 3, 2)


def test_a_state_that_is_none_of_this_models_is_refused(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    stream.run(rows_of(1))
    for state in (
        {},
        {"past": np.zeros((1, 2), dtype=np.float32)},
        {"past": np.zeros((1, 1, 2), dtype=np.int64)},
        {"past": np.zeros((1, 41, 2), dtype=np.float32)},
    ):
        with pytest.raises(EngineError):
            stream.restore(state)
    assert stream.run(rows_of(1))["y"] == 4


def test_a_half_precision_engine_takes_and_gives_what_the_others_do(tmp_path: Path, make_engine: MakeEngine) -> None:
    path = cache_graph(tmp_path / "half.onnx", TensorProto.FLOAT16)
    stream = make_engine(path, [CACHE], cache_profiles()).stream()
    out = stream.run(rows_of(0.5, 0.25))["y"]
    assert out.dtype == np.float32
    assert out == 1.5
    state = stream.snapshot()
    assert state["past"].dtype == np.float32
    stream.restore(state)
    assert stream.run(rows_of(1))["y"] == 3.5
    assert stream.run({n: v.astype(np.float16) for n, v in rows_of(1).items()})["y"] == 5.5


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
        feed = rows_of(*rows, weight=weight)
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
            under_way.append((stream.start(rows_of(*[value] * count)), 2 * sum(rows)))
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


def test_two_streams_do_not_disturb_each_other_in_threads(cache_onnx: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(cache_onnx, [CACHE], cache_profiles())
    wrong: list[str] = []

    def converse(step: int) -> None:
        stream = engine.stream()
        for _ in range(15):
            stream.reset()
            for n in range(1, 12):
                if stream.run(rows_of(step))["y"] != 2 * n * step:
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
        first = stream.start(rows_of(1))
        second = stream.start(rows_of(2))
        with pytest.raises(EngineError, match="on their way"):
            stream.start(rows_of(3))
        with pytest.raises(EngineError, match="in the order"):
            stream.finish(second)
        assert stream.finish(first)["y"] == 2
        third = stream.start(rows_of(3))
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


def test_the_last_run_can_be_taken_back_once(cache_onnx: Path, make_engine: MakeEngine) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    assert isinstance(stream, Rewindable)
    stream.rewind()
    for n in range(1, 5):
        assert stream.run(rows_of(n))["y"] == n * (n + 1)
        stream.rewind()
        stream.rewind()
        assert stream.run(rows_of(n))["y"] == n * (n + 1)
    stream.rewind()
    assert stream.snapshot()["past"][0, :, 0].tolist() == [1, 2, 3]
    # Over a change of profile, which moves the state, only what is there is taken back.
    for n in range(4, 10):
        stream.run(rows_of(n))
    stream.rewind()
    assert stream.run(rows_of(9))["y"] == 90
    stream.reset()
    stream.rewind()
    assert stream.run(rows_of(1))["y"] == 2


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
    with pytest.raises(UncoveredShapeError, match=r"a \[1, 10\]"):
        stream.run({name: np.ones((1, 10), dtype=np.float32) for name in "ab"})
    assert {size for key in _shapes_seen(stream) for size in key} == {4, 9}


def _shapes_seen(stream: Any) -> set[tuple[int, ...]]:
    return {dims[1:] for key in stream._held.graphs._seen for _, dims in key.shape.inputs}
