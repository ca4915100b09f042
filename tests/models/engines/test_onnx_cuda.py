"""The GPU engine's binding, without a GPU: the same class on ONNX Runtime's CPU provider, host memory as the device.

What this cannot show: CUDA's own behaviour (copies, streams, the arena, FP16 kernels). See docs/engines.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from models import Store
from models.convert import open_artefact
from models.engines.base import HELD_BYTES, StateTensor
from models.engines.onnx_cpu import OrtCpuEngine
from models.engines.onnx_cuda import OrtCudaEngine, Target, TensorRtCache, tensorrt_target
from models.errors import EngineError, QuantisationRefusedError

HOST_AS_DEVICE = Target("CPUExecutionProvider", "cpu", (("CPUExecutionProvider", {}),))
SUM = StateTensor("total", "next_total", (2,))
CACHE = StateTensor("past", "present", (1, 0, 2))


@pytest.fixture(scope="module", params=["float32", "float16"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixed and a growing state: next_total = total + x, present = past with x behind it, y = sum of all."""
    kind = TensorProto.FLOAT if request.param == "float32" else TensorProto.FLOAT16
    cast = [] if kind == TensorProto.FLOAT else [helper.make_node("Cast", ["x"], ["x16"], to=kind)]
    x = "x16" if cast else "x"
    nodes = [
        *cast,
        helper.make_node("Add", ["total", x], ["next_total"]),
        helper.make_node("Reshape", [x, "row"], ["new"]),
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("ReduceSum", ["present"], ["all"], keepdims=0),
        helper.make_node("Add", ["next_total", "all"], ["both"]),
        helper.make_node("Cast", ["both"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("total", kind, [2]),
            helper.make_tensor_value_info("past", kind, [1, "p", 2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("next_total", kind, [2]),
            helper.make_tensor_value_info("present", kind, [1, "t", 2]),
        ],
        [onnx.numpy_helper.from_array(np.array([1, 1, 2]), "row")],
    )
    folder = tmp_path_factory.mktemp("cuda") / "1"
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "g.onnx")
    return folder / "g.onnx"


def _engine(path: Path) -> OrtCudaEngine:
    return OrtCudaEngine(path, [SUM, CACHE], target=HOST_AS_DEVICE)


def _x(value: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.array([value, 2 * value], dtype=np.float32)}


def _expected(values: list[float]) -> list[float]:
    return [sum(values) + 3 * sum(values), 2 * sum(values) + 3 * sum(values)]


def test_both_kinds_of_state_are_carried_in_the_graphs_own_floats(path: Path) -> None:
    engine = _engine(path)
    assert engine.fixed_states == {"total"}
    stream, values = engine.stream(), [1.0, 2.0, 4.0]
    for number, value in enumerate(values, 1):
        assert stream.run(_x(value))["y"].tolist() == _expected(values[:number])
    state = stream.snapshot()
    assert state["past"].shape == (1, 3, 2)
    assert {s.dtype for s in engine.states} == {str(v.dtype) for v in state.values()}


@settings(deadline=None, max_examples=30)
@given(steps=st.lists(st.sampled_from(["run", "rewind", "save", "load", "reset", "fail"]), max_size=15))
def test_whatever_is_done_the_state_is_that_of_the_runs_that_count(path: Path, steps: list[str]) -> None:
    stream, history, saved = _engine(path).stream(), [], ([], None)
    before: list[float] | None = None
    for step in steps:
        if step == "run":
            before = list(history)
            history.append(float(len(history) + 1))
            assert stream.run(_x(history[-1]))["y"].tolist() == _expected(history)
        elif step == "rewind":
            stream.rewind()
            history, before = (before if before is not None else history), None
        elif step == "save":
            saved = (list(history), stream.snapshot())
        elif step == "load" and saved[1] is not None:
            stream.restore(saved[1])
            history, before = list(saved[0]), None
        elif step == "reset":
            stream.reset()
            history, before = [], None
        elif step == "fail":
            with pytest.raises(EngineError):
                stream.run({"x": np.zeros(3, np.float32)})
    assert stream.run(_x(5))["y"].tolist() == _expected([*history, 5.0])


def test_streams_share_nothing_but_weights(path: Path) -> None:
    engine = _engine(path)
    a, b = engine.stream(), engine.stream()
    a.run(_x(1))
    b.run(_x(10))
    assert a.run(_x(1))["y"].tolist() == _expected([1, 1])
    assert b.run(_x(10))["y"].tolist() == _expected([10, 10])


def test_outputs_handed_out_stay_as_they_were(path: Path) -> None:
    stream = _engine(path).stream()
    outs = [stream.run(_x(1))["y"] for _ in range(5)]
    assert [o.tolist() for o in outs] == [_expected([1.0] * n) for n in range(1, 6)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = sum of x."""
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    path = tmp_path_factory.mktemp("cuda") / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_large_input_goes_to_the_device_once_a_small_one_each_time(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OrtCudaEngine(wide, target=HOST_AS_DEVICE)
    copies: list[int] = []
    copy = OrtCudaEngine.on_device

    def counted(self: OrtCudaEngine, value: np.ndarray[Any, Any]) -> Any:
        copies.append(value.size)
        return copy(self, value)

    monkeypatch.setattr(OrtCudaEngine, "on_device", counted)
    stream, size = engine.stream(), HELD_BYTES // 4
    large, small = np.ones(size, np.float32), np.ones(8, np.float32)
    for _ in range(3):
        assert stream.run({"x": large})["y"] == size
    assert copies == [size]
    assert stream.run({"x": np.full(size, 2, np.float32)})["y"] == 2 * size
    assert stream.run({"x": small})["y"] == 8
    small[:] = 3
    assert stream.run({"x": small})["y"] == 24
    assert copies == [size, size]
    stream.reset()
    large[:] = 5
    assert stream.run({"x": large})["y"] == 5 * size


def test_a_provider_that_was_not_taken_is_an_error_and_not_the_processor(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineError, match="has no CUDAExecutionProvider"):
        OrtCudaEngine(wide)
    with pytest.raises(EngineError, match="has no TensorrtExecutionProvider"):
        OrtCudaEngine(wide, target=tensorrt_target(TensorRtCache(wide.parent)))
    # A build that has it, on a machine where its libraries do not load: the session is on the CPU without a word.
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    silent = Target("CUDAExecutionProvider", "cuda", (("CPUExecutionProvider", {}),))
    with pytest.raises(EngineError, match="did not take CUDAExecutionProvider and went to CPUExecutionProvider"):
        OrtCudaEngine(wide, target=silent)


def test_tensorrt_is_asked_for_first_with_profiles_and_a_place_to_keep_what_it_builds(tmp_path: Path) -> None:
    cache = TensorRtCache(tmp_path, {"a": (1, 1), "b": (1,)}, {"a": (1, 8), "b": (1,)}, {"a": (2, 9), "b": (1,)})
    target = tensorrt_target(cache)
    names = [name for name, _ in target.providers]
    assert names == ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    options = dict(target.providers[0][1])
    assert options["trt_profile_min_shapes"] == "a:1x1,b:1"
    assert options["trt_profile_max_shapes"] == "a:2x9,b:1"
    assert (options["trt_ep_context_file_path"], options["trt_engine_cache_path"]) == (str(tmp_path), ".")
    alone = dict(tensorrt_target(TensorRtCache(tmp_path, context_model=False)).providers[0][1])
    assert (alone.get("trt_ep_context_file_path"), alone["trt_engine_cache_path"]) == (None, str(tmp_path))
    assert int(dict(target.providers[1][1])["gpu_mem_limit"]) == 2 << 30


@pytest.mark.models
def test_graphs_of_bytes_are_refused_with_the_node(real_store: Store) -> None:
    path = open_artefact(real_store, "moonshine-base-en").path("encoder", "int8")
    with pytest.raises(QuantisationRefusedError, match=r"encoder\.int8\.onnx: DynamicQuantizeLinear \("):
        OrtCudaEngine(path, target=HOST_AS_DEVICE)


@pytest.mark.models
def test_the_decoder_says_the_same_through_the_binding(real_store: Store) -> None:
    artefact, pack = open_artefact(real_store, "moonshine-base-en"), real_store.open("moonshine-base-en")
    states = pack.pack.state_tensors("decoder")
    audio = np.random.default_rng(0).standard_normal((1, 16_000)).astype(np.float32) * np.float32(0.1)
    cross = OrtCpuEngine(artefact.path("encoder", "fp32")).stream().run({"audio": audio})
    path = artefact.path("decoder", "fp32")
    ours = OrtCudaEngine(path, states, target=HOST_AS_DEVICE).stream()
    theirs = OrtCpuEngine(path, states).stream()
    for token in (1, 5, 900):
        feed = {"ids": np.array([[token]]), "rows": np.zeros(1, np.int64), **cross}
        assert np.abs(ours.run(feed)["logits"] - theirs.run(feed)["logits"]).max() < 1e-4
    theirs.restore(ours.snapshot())
    assert np.abs(ours.run(feed)["logits"] - theirs.run(feed)["logits"]).max() < 1e-4
