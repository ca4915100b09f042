"""The ONNX Runtime engine on two tiny graphs: a running sum, and a cache that grows."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models.engines import StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
from models.errors import EngineError

SUM = StateTensor("total", "next_total", (2,))
CACHE = StateTensor("past", "present", (1, 0, 2))


def _save(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list], outputs: dict[str, list]) -> Path:
    def values(names: dict[str, list]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in names.items()]

    graph = helper.make_graph(nodes, path.stem, values(inputs), values(outputs))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def sum_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = next_total = total + x."""
    nodes = [
        helper.make_node("Add", ["total", "x"], ["next_total"]),
        helper.make_node("Mul", ["next_total", "next_total"], ["y"]),
    ]
    path = tmp_path_factory.mktemp("pack") / "1" / "sum.onnx"
    path.parent.mkdir()
    return _save(path, nodes, {"total": [2], "x": [2]}, {"y": [2], "next_total": [2]})


@pytest.fixture(scope="module")
def sum_engine(sum_path: Path) -> OrtCpuEngine:
    return OrtCpuEngine(sum_path, [SUM])


@pytest.fixture(scope="module")
def cache_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """present = past with x behind it; y = everything summed."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present"], ["y"], keepdims=0),
    ]
    path = tmp_path_factory.mktemp("pack") / "1" / "cache.onnx"
    path.parent.mkdir()
    return _save(path, nodes, {"past": [1, "p", 2], "x": [1, "n", 2]}, {"y": [], "present": [1, "t", 2]})


def _x(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array(values, dtype=np.float32)}


def test_the_state_is_carried_from_run_to_run_and_not_shown(sum_path: Path) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    out = [stream.run(_x(1, 2)) for _ in range(3)]
    assert [o["y"].tolist() for o in out] == [[1, 4], [4, 16], [9, 36]]
    assert out[0].keys() == {"y"}


def test_a_cache_starts_empty_and_grows(cache_path: Path) -> None:
    stream = OrtCpuEngine(cache_path, [CACHE]).stream()
    for n in (1, 2):
        stream.run({"x": np.ones((1, n, 2), dtype=np.float32)})
    assert stream.snapshot()["past"].shape == (1, 3, 2)
    stream.reset()
    assert stream.run({"x": np.ones((1, 1, 2), dtype=np.float32)})["y"] == 2


def test_two_streams_do_not_disturb_each_other(sum_path: Path) -> None:
    engine = OrtCpuEngine(sum_path, [SUM])
    a, b = engine.stream(), engine.stream()
    a.run(_x(1, 1))
    b.run(_x(10, 10))
    assert a.run(_x(1, 1))["y"].tolist() == [4, 4]
    assert b.run(_x(0, 0))["y"].tolist() == [100, 100]


def test_a_snapshot_is_not_changed_by_later_runs_and_can_be_restored_twice_elsewhere(sum_path: Path) -> None:
    engine = OrtCpuEngine(sum_path, [SUM])
    stream = engine.stream()
    stream.run(_x(3, 4))
    kept = stream.snapshot()
    stream.run(_x(1, 1))
    other = engine.stream()
    for _ in range(2):
        for target in (stream, other):
            target.restore(kept)
            assert target.run(_x(0, 0))["y"].tolist() == [9, 16]
    assert kept["total"].tolist() == [3, 4]
    kept["total"][:] = 0  # type: ignore[index]
    assert stream.run(_x(0, 0))["y"].tolist() == [9, 16]


def test_reset_makes_a_used_stream_like_a_new_one(sum_path: Path) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    stream.run(_x(5, 5))
    stream.reset()
    assert stream.run(_x(1, 2))["y"].tolist() == [1, 4]


@given(values=st.lists(st.floats(-100, 100, width=16), max_size=12), data=st.data())
def test_going_back_to_any_point_and_on_again_gives_the_same(
    sum_engine: OrtCpuEngine, values: list[float], data: st.DataObject
) -> None:
    stream = sum_engine.stream()
    at = data.draw(st.integers(0, len(values)))
    for value in values[:at]:
        stream.run(_x(value, -value))
    kept = stream.snapshot()
    first = [stream.run(_x(v, -v))["y"].tolist() for v in values[at:]]
    stream.restore(kept)
    assert [stream.run(_x(v, -v))["y"].tolist() for v in values[at:]] == first


def test_outputs_handed_out_stay_as_they_were(sum_path: Path) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    outs = [stream.run(_x(1, 0))["y"] for _ in range(50)]
    del stream
    gc.collect()
    assert [o[0] for o in outs] == [float(n * n) for n in range(1, 51)]


def test_an_input_may_be_changed_after_the_run(sum_path: Path) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    x = np.array([1, 1], dtype=np.float32)
    stream.run({"x": x})
    x[:] = 100
    assert stream.run(_x(0, 0))["y"].tolist() == [1, 1]


def test_a_slice_may_be_given(cache_path: Path) -> None:
    stream = OrtCpuEngine(cache_path, [CACHE]).stream()
    wide = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    assert stream.run({"x": wide[:, ::2, 1:3]})["y"] == wide[:, ::2, 1:3].sum()


def test_streams_of_one_engine_run_in_many_threads(sum_path: Path) -> None:
    engine, results = OrtCpuEngine(sum_path, [SUM]), []

    def work(step: float) -> None:
        stream = engine.stream()
        for _ in range(200):
            out = stream.run(_x(step, 0))["y"][0]
        results.append((step, float(out)))

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [(n, (200 * n) ** 2) for n in (1.0, 2.0, 3.0, 4.0)]


# ---- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"wants inputs \['x'\], got \[\]"),
        ({"x": np.zeros(2, np.float32), "z": np.zeros(2, np.float32)}, r"got \['x', 'z'\]"),
        ({"x": np.zeros(2, np.float64)}, "input x wants float32, got float64"),
        ({"x": np.zeros((1, 2), np.float32)}, r"input x wants 1 dimensions \[2\], got \(1, 2\)"),
        ({"x": np.zeros(3, np.float32)}, "invalid dimensions for input: x"),
        ({"total": np.zeros(2, np.float32), "x": np.zeros(2, np.float32)}, "wants inputs"),
    ],
)
def test_wrong_inputs_are_refused_and_the_state_kept(
    sum_path: Path, inputs: dict[str, np.ndarray], message: str
) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    stream.run(_x(1, 1))
    with pytest.raises(EngineError, match=message) as caught:
        stream.run(inputs)
    assert "/1/sum.onnx" not in str(caught.value)
    assert "/sum.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert stream.run(_x(1, 1))["y"].tolist() == [4, 4]


def test_an_error_inside_the_graph_carries_the_runtimes_words(cache_path: Path) -> None:
    stream = OrtCpuEngine(cache_path, [CACHE]).stream()
    stream.restore({"past": np.zeros((1, 1, 2), np.float32)})
    with pytest.raises(EngineError, match=r"cache\.onnx"):
        stream.run({"x": np.zeros((2, 1, 2), np.float32)})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "wanted"),
        ({"total": np.zeros(2, np.float64)}, "total is float64"),
        ({"total": np.zeros((2, 1), np.float32)}, r"total is float32 \(2, 1\)"),
    ],
)
def test_a_state_of_another_model_is_refused(sum_path: Path, state: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        OrtCpuEngine(sum_path, [SUM]).stream().restore(state)


def test_a_state_the_graph_does_not_have_is_refused_on_opening(sum_path: Path) -> None:
    with pytest.raises(EngineError, match="no recurrent tensor h -> hn"):
        OrtCpuEngine(sum_path, [StateTensor("h", "hn", (1,))])
    with pytest.raises(EngineError, match="wants float32, got int64"):
        OrtCpuEngine(sum_path, [StateTensor("total", "next_total", (2,), "int64")])


def test_a_file_that_is_no_model_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    for name in ("junk.onnx", "absent.onnx"):
        with pytest.raises(EngineError, match=f"{name}: cannot be loaded"):
            OrtCpuEngine(tmp_path / name)


def test_a_closed_engine_refuses_and_lets_its_weights_go(sum_path: Path) -> None:
    engine = OrtCpuEngine(sum_path, [SUM])
    stream = engine.stream()
    stream.run(_x(1, 1))
    session = weakref.ref(engine._session)
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        stream.run(_x(1, 1))
    with pytest.raises(EngineError, match="closed"):
        engine.stream()
    gc.collect()
    assert session() is None


def test_errors_of_the_runtime_are_not_printed(sum_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stream = OrtCpuEngine(sum_path, [SUM]).stream()
    with pytest.raises(EngineError):
        stream.run({"x": np.zeros(3, np.float32)})
    assert capfd.readouterr().err == ""


PLACED = """
import os, sys, threading
import numpy as np
from pathlib import Path
from models.engines import StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
core = max(os.sched_getaffinity(0))
before = set(os.listdir("/proc/self/task"))
engine = OrtCpuEngine(Path(sys.argv[1]), [StateTensor("total", "next_total", (2,))], threads=2, cores=(core,))
pool = set(os.listdir("/proc/self/task")) - before
print(sorted(open(f"/proc/self/task/{t}/status").read().split("Cpus_allowed_list:")[1].split()[0] for t in pool))
stream = engine.stream()
runs = lambda: print(stream.run({"x": np.ones(2, np.float32)})["y"][0], sorted(os.sched_getaffinity(0)))
thread = threading.Thread(target=runs)
thread.start()
thread.join()
print(len(os.sched_getaffinity(0)))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core, and nothing to choose")
def test_an_engine_s_threads_and_whoever_runs_it_are_kept_on_its_cores(sum_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < (os.cpu_count() or 1):
        pytest.skip("these tests were given a part of the cores, and keep to it")
    command = [sys.executable, "-c", PLACED, str(sum_path)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert told == [f"['{cores[-1]}']", f"1.0 [{cores[-1]}]", f"{len(cores)}"]


def test_cores_that_there_are_not_harm_nobody(sum_path: Path) -> None:
    before = os.sched_getaffinity(0)
    stream = OrtCpuEngine(sum_path, [SUM], threads=2, cores=(9999,)).stream()
    assert stream.run({"x": np.ones(2, np.float32)})["y"].tolist() == [1.0, 1.0]
    assert os.sched_getaffinity(0) == before
