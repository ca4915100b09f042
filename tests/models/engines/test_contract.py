"""What every backend promises of engines and streams (models/engines/base.py), held against all that run here."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models.engines.base import Rewindable, StateTensor
from models.engines.ladder import LadderEngine, Rung
from models.engines.numpy import NumpyEngine
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.onnx_cuda import OrtCudaEngine, Target
from models.errors import EngineError
from tests.models.engines.tensorrt.made import contract_engine

STATES = (StateTensor("total", "next_total", (2,)), StateTensor("past", "present", (1, 0, 2)))
HOST_AS_DEVICE = Target("CPUExecutionProvider", "cpu", (("CPUExecutionProvider", {}),))
Make = Callable[[Path, tuple[StateTensor, ...]], Any]


def _in_a_ladder(path: Path, states: tuple[StateTensor, ...]) -> LadderEngine:
    rung = Rung(name="a", backend="numpy", precision="fp32", key="k", open=lambda: NumpyEngine(path, states))
    return LadderEngine("sum", [rung], states)


BACKENDS: dict[str, Make] = {
    "ort-cpu": OrtCpuEngine,
    "numpy": NumpyEngine,
    "device on the host": lambda path, states: OrtCudaEngine(path, states, target=HOST_AS_DEVICE),
    "ladder": _in_a_ladder,
    "tensorrt (fake)": contract_engine,
}
backends = pytest.mark.parametrize("make", BACKENDS.values(), ids=list(BACKENDS))
REWINDABLE = {name: make for name, make in BACKENDS.items() if name != "ladder"}
"""A ladder asks its rungs."""
rewindable = pytest.mark.parametrize("make", REWINDABLE.values(), ids=list(REWINDABLE))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """next_total = total + x; present = past with x behind it; y = next_total + sum of present; z = x as it is."""
    nodes = [
        helper.make_node("Add", ["total", "x"], ["next_total"]),
        helper.make_node("Reshape", ["x", "row"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present"], ["all"], keepdims=0),
        helper.make_node("Add", ["next_total", "all"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
    ]

    def value(name: str, dims: list[int | str]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", [2]), value("total", [2]), value("past", [1, "p", 2])],
        [value("y", [2]), value("z", [2]), value("next_total", [2]), value("present", [1, "t", 2])],
        [onnx.numpy_helper.from_array(np.array([1, 1, 2]), "row")],
    )
    file = tmp_path_factory.mktemp("contract") / "1" / "g.onnx"
    file.parent.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def _x(value: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.array([value, 0], dtype=np.float32)}


def _y(values: list[float]) -> list[float]:
    return [2 * sum(values), sum(values)]


@backends
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.sampled_from(["run", "fail", "save", "load", "reset"]), max_size=14))
def test_the_state_is_that_of_the_runs_that_count(path: Path, make: Make, steps: list[str]) -> None:
    stream, history = make(path, STATES).stream(), []
    saved: tuple[list[float], Any] | None = None
    for step in [*steps, "run"]:
        if step == "run":
            history.append(float(len(history) + 1))
            assert stream.run(_x(history[-1]))["y"].tolist() == _y(history)
        elif step == "fail":
            with pytest.raises(EngineError):
                stream.run({"x": np.zeros(3, np.float32)})
        elif step == "save":
            saved = (list(history), stream.snapshot())
        elif step == "load" and saved is not None:
            stream.restore(saved[1])
            history = list(saved[0])
        elif step == "reset":
            stream.reset()
            history = []


@backends
def test_outputs_and_inputs_are_not_one_anothers_memory(path: Path, make: Make) -> None:
    stream, x = make(path, STATES).stream(), _x(1)
    outs = [stream.run(x) for _ in range(3)]
    x["x"][:] = 99
    gc.collect()
    assert [o["z"].tolist() for o in outs] == [[1, 0]] * 3
    assert [o["y"].tolist() for o in outs] == [_y([1.0] * n) for n in (1, 2, 3)]
    assert stream.run(_x(0))["y"].tolist() == _y([1.0] * 3)


@backends
def test_a_snapshot_is_a_copy_and_the_same_on_every_backend(path: Path, make: Make) -> None:
    stream = make(path, STATES).stream()
    stream.run(_x(2))
    kept = stream.snapshot()
    stream.run(_x(5))
    assert {name: value.tolist() for name, value in kept.items()} == {"total": [2, 0], "past": [[[2, 0]]]}
    for other in BACKENDS.values():
        there = other(path, STATES).stream()
        there.restore(kept)
        there.run(_x(1))
        assert there.run(_x(1))["y"].tolist() == _y([2, 1, 1])


@rewindable
def test_the_last_run_can_be_taken_back_once(path: Path, make: Make) -> None:
    stream = make(path, STATES).stream()
    assert isinstance(stream, Rewindable)
    stream.run(_x(1))
    stream.run(_x(7))
    stream.rewind()
    stream.rewind()
    assert stream.snapshot()["total"].tolist() == [1, 0]
    assert stream.run(_x(2))["y"].tolist() == _y([1, 2])


@rewindable
def test_what_is_taken_back_after_a_run_that_failed_is_a_state_that_there_was(path: Path, make: Make) -> None:
    stream = make(path, STATES).stream()
    assert isinstance(stream, Rewindable)
    stream.run(_x(1))
    stream.run(_x(7))
    with pytest.raises(EngineError):
        stream.run({name: np.zeros((3, 3, 3, 3), np.float32) for name in _x(1)})
    stream.rewind()
    assert stream.snapshot()["total"].tolist() in ([1, 0], [8, 0])
    stream.reset()
    stream.rewind()
    assert stream.run(_x(4))["y"].tolist() == _y([4])


@backends
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"wants inputs \['x'\], got \[\]"),
        ({"x": np.zeros(2, np.float64), "q": np.zeros(1)}, r"got \['q', 'x'\]"),
        ({"x": np.zeros(2, np.int64)}, "input x wants float32, got int64"),
        ({"x": np.zeros((1, 2), np.float32)}, r"input x wants 1 dimensions \[2\], got \(1, 2\)"),
        ({"x": np.zeros(3, np.float32)}, "invalid dimensions for input: x"),
    ],
)
def test_wrong_inputs_are_refused_in_the_same_words(
    path: Path, make: Make, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        make(path, STATES).stream().run(inputs)
    assert "\n" not in str(caught.value)


@backends
@pytest.mark.parametrize(
    "state",
    [
        {},
        {"total": np.zeros(2, np.float32)},
        {"total": np.zeros(2, np.int64), "past": np.zeros((1, 0, 2), np.float32)},
        {"total": np.zeros(2, np.float32), "past": np.zeros((0, 2), np.float32)},
    ],
)
def test_a_state_of_another_model_is_refused_and_the_own_kept(path: Path, make: Make, state: Any) -> None:
    stream = make(path, STATES).stream()
    stream.run(_x(3))
    with pytest.raises(EngineError, match="state"):
        stream.restore(state)
    assert stream.run(_x(1))["y"].tolist() == _y([3, 1])


@backends
def test_files_and_states_that_do_not_fit_are_refused_on_opening(path: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    for name in ("junk.onnx", "absent.onnx"):
        with pytest.raises(EngineError, match=f"{name}: cannot be loaded"):
            make(tmp_path / name, ())
    with pytest.raises(EngineError, match="no recurrent tensor h -> hn"):
        make(path, (StateTensor("h", "hn", (1,)),))


@backends
def test_a_closed_engine_refuses(path: Path, make: Make) -> None:
    engine = make(path, STATES)
    stream = engine.stream()
    stream.run(_x(1))
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.run(_x(1))
    with pytest.raises(EngineError, match="closed"):
        engine.stream()


@backends
def test_streams_of_one_engine_run_in_many_threads(path: Path, make: Make) -> None:
    engine, results = make(path, STATES), []

    def work(step: float) -> None:
        stream = engine.stream()
        results.append((step, [stream.run(_x(step))["y"].tolist() for _ in range(30)]))

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [(s, [_y([s] * n) for n in range(1, 31)]) for s in (1.0, 2.0, 3.0, 4.0)]
