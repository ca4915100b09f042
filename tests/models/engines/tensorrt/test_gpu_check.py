"""The check for machines with a GPU: that it says what it could not run, and that it runs, here on the fake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]


def _run(site: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--graphs", "none", *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))},
        cwd=ROOT,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, {row["name"]: row for row in rows}, done.stdout + done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.10')\n")
    return tmp_path


def test_where_nothing_can_run_it_says_so_and_does_not_pass(site: Path) -> None:
    (site / "cuda.py").write_text("raise ImportError('no bindings')\n")
    status, rows, _ = _run(site, "--json")
    assert status == 3
    assert {row["outcome"] for row in rows.values()} == {"could not run"}
    assert "cuda-bindings" in rows["CUDA graphs"]["detail"]
    _, _, text = _run(site)
    assert "Not shown by this run, because it could not run here: CUDA device; streams" in text


def test_on_the_fake_all_of_it_runs(site: Path) -> None:
    (site / "tensorrt.py").write_text(
        "from tests.models.engines.fake_tensorrt import *\nfrom tests.models.engines.fake_tensorrt import __version__\n"
    )
    (site / "sitecustomize.py").write_text(
        "import models.engines.tensorrt.device as device\n"
        "from tests.models.engines.fake_tensorrt import FakeDevice\n"
        "device.CudaDevice = FakeDevice\n"
    )
    status, rows, text = _run(site, "--json")
    assert status == 0, text
    assert {row["outcome"] for row in rows.values()} == {"passed"}
    assert "200.0 dB" in rows["our engine, made graph"]["detail"]
    assert "all but 0.0 given back" in rows["memory pool"]["detail"]


def test_what_fails_fails_the_check(site: Path) -> None:
    """A device whose copies bring other bytes."""
    (site / "sitecustomize.py").write_text(
        "import models.engines.tensorrt.device as device\n"
        "from tests.models.engines.fake_tensorrt import FakeDevice\n"
        "class Bad(FakeDevice):\n"
        "    def copy(self, target, source, nbytes, stream):\n"
        "        super().copy(target, source, nbytes - 1, stream)\n"
        "device.CudaDevice = Bad\n"
    )
    status, rows, _ = _run(site, "--json")
    assert status == 1
    assert rows["streams and events"]["outcome"] == "FAILED"
    assert "other bytes came out" in rows["streams and events"]["detail"]
    assert rows["pinned memory"]["outcome"] == "passed"
