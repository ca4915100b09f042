"""The process that builds, with the fake TensorRT in it: what it answers, and every way it can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from models.engines.tensorrt.build_process import BuildRequest
from models.engines.tensorrt.builder import BuildLimits, run_build
from models.engines.tensorrt.key import BuildSettings, profile_data
from models.errors import (
    EngineBuildError,
    EngineCancelledError,
    EngineRefusedError,
    ModelsError,
    ProfileError,
    TensorRtMissingError,
)
from tests.models.engines.tensorrt.made import cache_profiles

pytestmark = pytest.mark.usefixtures("fake_in_processes")
ROOMY = BuildLimits(timeout_s=60, memory_mib=2048, leave_mib=1)


def _request(onnx: Path, profiles: Any = (), timing_cache: Path | None = None, **settings: Any) -> BuildRequest:
    return BuildRequest(
        onnx=onnx,
        output=onnx.with_suffix(".engine"),
        flavour="tensorrt",
        profiles=profile_data(profiles),
        settings=BuildSettings(**settings),
        timing_cache=timing_cache,
    )


def test_an_engine_is_built_with_progress_and_its_timings_are_kept(cache_onnx: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    timings = tmp_path / "timing.cache"
    report = run_build(_request(cache_onnx, cache_profiles(), timings), ROOMY, lambda *row: seen.append(row))
    assert report.tensorrt == "10.3.0"
    assert report.bytes == cache_onnx.with_suffix(".engine").stat().st_size
    assert report.layers == 4
    assert seen[0] == ("build cache.onnx: Building engine", 0, 5)
    assert seen[-1] == ("build cache.onnx: Building engine", 5, 5)
    assert timings.read_bytes() == b"timed once"
    timings.write_bytes(b"junk of another version")
    run_build(_request(cache_onnx, cache_profiles(), timings), ROOMY)
    assert timings.read_bytes() == b"timed once"
    assert not list(tmp_path.glob("timing.cache.*"))


def test_what_libraries_print_does_not_get_into_the_answers(cache_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_FAKE_TENSORRT", "loud")
    assert run_build(_request(cache_onnx, cache_profiles()), ROOMY).layers == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"junk", "parser refuses cache.onnx: .*Failed to parse"), (b"", "finds nothing in cache.onnx .0 bytes")],
)
def test_a_file_that_is_no_graph_is_refused(cache_onnx: Path, content: bytes, message: str) -> None:
    cache_onnx.write_bytes(content)
    with pytest.raises(EngineRefusedError, match=message):
        run_build(_request(cache_onnx, cache_profiles()), ROOMY)


def test_profiles_are_refused_in_our_words_and_tensorrts(cache_onnx: Path) -> None:
    with pytest.raises(ProfileError, match=r"no profile, but .* past.*; TensorRT: .*no optimization profile"):
        run_build(_request(cache_onnx), ROOMY)
    assert not cache_onnx.with_suffix(".engine").exists()


@pytest.mark.parametrize(
    ("fault", "limits", "kind", "message"),
    [
        ("refuse", ROOMY, EngineRefusedError, "Could not find any implementation"),
        ("crash", ROOMY, EngineBuildError, "was killed by signal 11"),
        ("hang", BuildLimits(timeout_s=2, leave_mib=1), EngineBuildError, "longer than 2 s"),
        (
            "out-of-memory",
            BuildLimits(timeout_s=60, memory_mib=300, leave_mib=1),
            EngineBuildError,
            r"took \d+ MiB, more than the 300 allowed",
        ),
        ("hang", BuildLimits(timeout_s=60, leave_mib=1 << 30), EngineBuildError, "are left to everyone else"),
    ],
)
def test_every_end_of_a_build_has_its_error_and_leaves_no_process(
    cache_onnx: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    limits: BuildLimits,
    kind: type[ModelsError],
    message: str,
) -> None:
    monkeypatch.setenv("WREN_FAKE_TENSORRT", fault)
    with pytest.raises(kind, match=message) as caught:
        run_build(_request(cache_onnx, cache_profiles()), limits)
    assert type(caught.value) is kind
    assert caught.value.retry == (kind is EngineBuildError)
    assert not _children()


def test_a_build_can_be_cancelled_at_a_step(cache_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_FAKE_TENSORRT", "slow")
    seen: list[int] = []
    with pytest.raises(EngineCancelledError, match="was cancelled"):
        run_build(
            _request(cache_onnx, cache_profiles()),
            ROOMY,
            lambda stage, done, total: seen.append(done),
            lambda: bool(seen),
        )
    assert seen
    assert not _children()


def test_without_tensorrt_the_process_says_so(
    cache_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.10: cannot open')\n")
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    with pytest.raises(TensorRtMissingError, match=r"libnvinfer.so.10.*apt install"):
        run_build(_request(cache_onnx, cache_profiles()), ROOMY)


def test_compute_capabilities_are_for_rtx_only(cache_onnx: Path) -> None:
    with pytest.raises(EngineRefusedError, match="TensorRT-RTX only"):
        run_build(_request(cache_onnx, cache_profiles(), compute_capabilities=("SM86",)), ROOMY)


def test_a_build_does_not_outlive_who_asked_for_it(cache_onnx: Path) -> None:
    root = Path(__file__).parents[4]
    process = subprocess.Popen(
        [sys.executable, "-m", "models.engines.tensorrt.build_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "WREN_FAKE_TENSORRT": "hang", "PYTHONPATH": os.pathsep.join((*sys.path, str(root)))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_request(cache_onnx, cache_profiles()).model_dump_json() + "\n")
    process.stdin.close()
    assert process.wait(timeout=30) == 3
    assert process.stdout.read() == ""
    process.stdout.close()


def test_a_killed_build_leaves_nothing_that_counts(cache_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WREN_FAKE_TENSORRT", "slow")

    def kill(stage: str, done: int, total: int | None) -> None:
        for child in _children():
            os.kill(child, signal.SIGKILL)

    with pytest.raises(EngineBuildError, match=r"signal 9 \(out of memory, most likely\)"):
        run_build(_request(cache_onnx, cache_profiles()), ROOMY, kill)
    assert not cache_onnx.with_suffix(".engine").exists()


def test_the_request_is_one_line_of_json(cache_onnx: Path) -> None:
    line = _request(cache_onnx, cache_profiles()).model_dump_json()
    assert "\n" not in line
    assert BuildRequest.model_validate(json.loads(line)).profiles[0]["past"][2] == (1, 8, 2)


def _children() -> list[int]:
    """Build processes of this one that still run."""
    deadline = time.monotonic() + 5
    while True:
        alive = []
        for row in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = row.read_text().rsplit(")", 1)[1].split()
                command = (row.parent / "cmdline").read_text()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z" and "build_process" in command:
                alive.append(int(row.parent.name))
        if not alive or time.monotonic() > deadline or os.environ.get("WREN_FAKE_TENSORRT") == "slow":
            return alive
        time.sleep(0.05)
