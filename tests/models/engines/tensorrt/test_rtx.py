"""NVIDIA's own parser and builder (TensorRT-RTX, which needs no GPU) on every graph that goes to TensorRT, and on what
must be refused. Nothing runs here: an engine that is built is an engine that is accepted.

`pip install .[tensorrt-check]`; docs/tensorrt.md has the figures of all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.engines.tensorrt.api import load_tensorrt
from models.engines.tensorrt.build_process import BuildReport, BuildRequest, build
from models.engines.tensorrt.builder import BuildLimits, run_build
from models.engines.tensorrt.key import BuildSettings, profile_data
from models.engines.tensorrt.profiles import Profile, Span, profiles_for
from models.engines.tensorrt.sources import PARTS, PRECISIONS, spec_for
from models.errors import EngineError, EngineRefusedError, ProfileError
from models.quantize import open_quantised
from tests.models.conftest import StoreOf
from tests.models.engines.nvidia import needed

needed("tensorrt_rtx")

SMS = ("SM80", "SM86", "SM89")
"""Server Ampere, desktop Ampere (and Orin's family), Ada."""
QUICK = {("silero-vad", "vad", p) for p in ("fp32", "fp16")} | {("piper-en-us-joe", "vocoder", "fp16")}
"""Built at every `make test`: a second or two."""
ALL = [(pack, part, precision) for pack, parts in PARTS.items() for part in parts for precision in PRECISIONS]


def request_for(
    onnx_path: Path, output: Path, profiles: Sequence[Profile] = (), sms: tuple[str, ...] = ("SM86",)
) -> BuildRequest:
    return BuildRequest(
        onnx=onnx_path,
        output=output,
        flavour="tensorrt_rtx",
        profiles=profile_data(profiles),
        settings=BuildSettings(compute_capabilities=sms),
    )


def rtx_build(request: BuildRequest) -> BuildReport:
    return build(request, load_tensorrt("tensorrt_rtx"), lambda message: None, threading.Event())


@pytest.mark.models
@pytest.mark.parametrize(
    ("pack_id", "part", "precision"),
    [pytest.param(*row, marks=() if row in QUICK else pytest.mark.slow) for row in ALL],
)
def test_every_graph_of_ours_is_built_for_every_gpu(
    store_of: StoreOf, tmp_path: Path, pack_id: str, part: str, precision: str
) -> None:
    """With its profiles of the table, in the very process that builds on a board."""
    spec = spec_for(store_of(pack_id), pack_id, part, precision, BuildSettings())
    request = request_for(spec.onnx, tmp_path / "engine", spec.graph.profiles, SMS)
    seen: list[str] = []
    report = run_build(
        request, BuildLimits(timeout_s=600, memory_mib=8192), lambda stage, done, total: seen.append(stage)
    )
    assert (tmp_path / "engine").stat().st_size == report.bytes > 100_000
    assert any("Building engine" in stage for stage in seen)
    figures = f"{len(spec.graph.profiles) or 1} | {report.layers} | {report.bytes / 1e6:.1f} | {report.cpu_s:.1f}"
    print(f"\n| {spec.name} | {figures} |")


# ---- refusals -------------------------------------------------------------------------------------


def _product(path: Path, nodes: Sequence[Any], constants: dict[str, Any]) -> Path:
    """x [1, n, 64] -> y [1, n, 64] by some nodes."""
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n", 64])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


WEIGHTS = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
PROFILE: Profile = {"x": Span((1, 1, 64), (1, 8, 64), (1, 32, 64))}


def _qdq(path: Path, zero: Any) -> Path:
    names = ("x", "scale", "zero"), ("xq", "scale", "zero")
    nodes = [
        helper.make_node("QuantizeLinear", names[0], ["xq"], name="quantise"),
        helper.make_node("DequantizeLinear", names[1], ["xd"], name="dequantise"),
        helper.make_node("MatMul", ["xd", "w"], ["y"], name="product"),
    ]
    return _product(path, nodes, {"scale": np.array(0.1, dtype=np.float32), "zero": zero, "w": WEIGHTS})


def _dynamic(path: Path) -> Path:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "s", "z"], name="quantise"),
        helper.make_node("MatMulInteger", ["xq", "w", "z"], ["yi"], name="product"),
        helper.make_node("Cast", ["yi"], ["yf"], to=TensorProto.FLOAT, name="cast"),
        helper.make_node("Mul", ["yf", "s"], ["y"], name="scale"),
    ]
    return _product(path, nodes, {"w": (WEIGHTS * 20).astype(np.int8)})


def _plain(path: Path) -> Path:
    return _product(path, [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"w": WEIGHTS})


def test_the_made_graph_itself_is_built(tmp_path: Path) -> None:
    """So that what follows is refused for its own reason."""
    report = rtx_build(request_for(_plain(tmp_path / "plain.onnx"), tmp_path / "engine", [PROFILE]))
    assert report.tensorrt.startswith("1.7")
    symmetric = _qdq(tmp_path / "symmetric.onnx", np.array(0, dtype=np.int8))
    rtx_build(request_for(symmetric, tmp_path / "engine", [PROFILE]))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda p: _qdq(p, np.array(3, dtype=np.int8)), "Non-zero zero point", id="asymmetric"),
        pytest.param(lambda p: _qdq(p, np.array(128, dtype=np.uint8)), "Non-zero zero point", id="u8"),
        pytest.param(_dynamic, "DynamicQuantizeLinear", id="dynamic"),
    ],
)
def test_a_quantisation_that_tensorrt_does_not_read_is_refused_with_nvidias_reason(
    tmp_path: Path, make: Any, reason: str
) -> None:
    path = make(tmp_path / "made.onnx")
    with pytest.raises(EngineRefusedError, match=reason) as caught:
        rtx_build(request_for(path, tmp_path / "engine", [PROFILE]))
    assert "no reason" not in str(caught.value)
    assert not (tmp_path / "engine").exists()


def test_unsigned_bytes_that_nvidia_takes_silently_are_refused_by_us(tmp_path: Path) -> None:
    path = _qdq(tmp_path / "made.onnx", np.array(0, dtype=np.uint8))
    with pytest.raises(EngineRefusedError, match=r"zero point of uint8; only s8 is read .*parser took it"):
        rtx_build(request_for(path, tmp_path / "engine", [PROFILE]))


@pytest.mark.parametrize(
    ("profiles", "ours", "nvidias"),
    [
        pytest.param([], "no profile, but", "no optimization profile has been defined", id="missing"),
        pytest.param([{}], "has no shapes for x", "missing dimensions in profile 0", id="empty"),
        pytest.param(
            [{"x": Span((1, 8, 64), (1, 4, 64), (1, 32, 64))}], "not in order", "MIN<=OPT<=MAX", id="inverted"
        ),
        pytest.param(
            [{"x": Span((1, 1, 63), (1, 8, 64), (1, 32, 64))}], "does not fit", "Dimension mismatch", id="wrong"
        ),
        pytest.param([{"x": Span((1, 1), (1, 8), (1, 32))}], "has 2 dimensions", "has 2 dimensions", id="flat"),
    ],
)
def test_a_wrong_profile_is_refused_in_our_words_and_nvidias(
    tmp_path: Path, profiles: Sequence[Profile], ours: str, nvidias: str
) -> None:
    with pytest.raises(ProfileError, match=rf"{ours}.*; TensorRT: .*{nvidias}"):
        rtx_build(request_for(_plain(tmp_path / "plain.onnx"), tmp_path / "engine", profiles))


@pytest.mark.parametrize("content", [b"junk", b"", b"\x08\x08"])
def test_junk_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "junk.onnx").write_bytes(content)
    with pytest.raises(EngineRefusedError, match=r"parser (refuses|finds nothing in) junk\.onnx"):
        rtx_build(request_for(tmp_path / "junk.onnx", tmp_path / "engine"))


def test_a_gpu_that_it_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineRefusedError, match="knows no compute capability SM87"):
        rtx_build(request_for(_plain(tmp_path / "plain.onnx"), tmp_path / "engine", [PROFILE], ("SM87",)))


def test_a_version_compatible_engine_needs_a_library_that_rtx_has_not(tmp_path: Path) -> None:
    """The reason for an option and not a default: what a build says where the lean runtime is not installed."""
    request = request_for(_plain(tmp_path / "plain.onnx"), tmp_path / "engine", [PROFILE])
    settings = BuildSettings(version_compatible=True, compute_capabilities=("SM86",))
    with pytest.raises(EngineRefusedError, match="libnvinfer_lean"):
        rtx_build(request.model_copy(update={"settings": settings}))


@pytest.mark.models
@pytest.mark.parametrize("variant", ["int8-cpu-static", "int8-cpu-dynamic"])
def test_what_was_made_for_the_cpu_is_refused(store_of: StoreOf, tmp_path: Path, variant: str) -> None:
    path = open_quantised(store_of("silero-vad"), "silero-vad")[0].path("vad", variant)
    with pytest.raises(EngineRefusedError):
        rtx_build(request_for(path, tmp_path / "engine", profiles_for("silero-vad", "vad").profiles))


def test_a_build_can_be_cancelled_in_nvidias_own_builder(tmp_path: Path) -> None:
    stop, seen = threading.Event(), []

    def say(message: dict[str, Any]) -> None:
        seen.append(message)
        stop.set()

    with pytest.raises(EngineError, match="was cancelled"):
        build(
            request_for(_plain(tmp_path / "plain.onnx"), tmp_path / "engine", [PROFILE]),
            load_tensorrt("tensorrt_rtx"),
            say,
            stop,
        )
    assert seen[0]["kind"] == "progress"
    assert not (tmp_path / "engine").exists()
