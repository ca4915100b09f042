"""CUDA graphs, and what memory and copies a stream costs, on the fake TensorRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from models.engines.base import StateTensor
from models.engines.tensorrt.profiles import Span
from tests.models.engines.tensorrt.conftest import MakeEngine
from tests.models.engines.tensorrt.made import CACHE, SUM, cache_profiles, rows_of, save, x


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
            assert stream.run(rows_of(1))["y"] == 2 * n
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
            assert stream.run(rows_of(1, weight=weight))["y"] == 2 * weight
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
        feed = {"x": rows_of(1)["x"], "w": np.full(weight, value, dtype=np.float32)}
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


def test_a_read_only_input_given_again_is_not_copied_again(
    cache_onnx: Path, make_engine: MakeEngine, device: Any
) -> None:
    stream = make_engine(cache_onnx, [CACHE], cache_profiles()).stream()
    feed = rows_of(1, weight=64)
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
            stream.run(rows_of(1, weight=n))

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
