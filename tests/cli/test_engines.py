"""`wren engines` as a user types it: without TensorRT, with the fake one, and on a store with things in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from models import Store

ROOT = Path(__file__).parents[2]
FAKE = "from tests.models.engines.fake_tensorrt import *\nfrom tests.models.engines.fake_tensorrt import __version__\n"


def _run(store: Path, *arguments: str, site: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = [str(site), str(ROOT)] if site is not None else []
    environment = {**os.environ, "WREN_MODELS_DIR": str(store), "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", "import sys; from appliance.cli import main; sys.exit(main())", "engines", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def without(tmp_path: Path) -> Path:
    """A site folder in which TensorRT cannot be imported, whatever is installed here."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.10: cannot open shared object file')\n")
    return site


def test_without_tensorrt_building_says_what_is_missing_and_how_to_get_it(tmp_path: Path, without: Path) -> None:
    done = _run(tmp_path, "build", site=without)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert "tensorrt cannot be loaded (libnvinfer.so.10" in line
    assert "sudo apt install python3-libnvinfer" in line


def test_without_tensorrt_what_is_built_can_still_be_listed_verified_and_pruned(tmp_path: Path, without: Path) -> None:
    for action in ("list", "verify", "prune"):
        done = _run(tmp_path, action, "--json", site=without)
        assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert "no engine has been built" in _run(tmp_path, "list", site=without).stdout
    assert "nothing to remove" in _run(tmp_path, "prune", site=without).stdout


def test_a_pack_that_does_not_run_on_tensorrt_is_wrong_use(tmp_path: Path, without: Path) -> None:
    done = _run(tmp_path, "build", "wake-alexa", site=without)
    assert done.returncode == 2
    assert "these do: moonshine-base-en" in done.stderr


def test_damage_is_found_and_pruned(tmp_path: Path) -> None:
    folder = tmp_path / "engines"
    folder.mkdir()
    (folder / "0123456789abcdef.engine").write_bytes(b"cut")
    (folder / "fedcba9876543210.json").write_text("{}")
    (folder / "quarantine.json").write_text("{}")
    done = _run(tmp_path, "verify", "--json")
    assert done.returncode == 1
    assert {row["status"] for row in json.loads(done.stdout)} == {"leftover", "damaged"}
    assert len(json.loads(_run(tmp_path, "prune", "--json").stdout)) == 2
    assert _run(tmp_path, "verify", "--json").stdout.strip() == "[]"
    assert (folder / "quarantine.json").exists()


@pytest.mark.models
@pytest.mark.slow
def test_with_the_fake_tensorrt_engines_are_built_checked_listed_and_found_again(
    tmp_path: Path,
) -> None:
    """The voice activity detector, FP32: the smallest of ours, through the whole command and the build's process."""
    store, site = tmp_path / "store", tmp_path / "site"
    store.mkdir()
    site.mkdir()
    for name in ("packs", "artefacts"):
        (store / name).symlink_to(Store().root / name)
    (site / "tensorrt.py").write_text(FAKE)
    (site / "sitecustomize.py").write_text(
        "import models.engines.tensorrt.device as device\n"
        "from tests.models.engines.fake_tensorrt import FakeDevice\n"
        "device.CudaDevice = FakeDevice\n"
    )
    first = _run(store, "build", "silero-vad", "--precision", "fp32", "--json", site=site)
    assert first.returncode == 0, first.stderr
    row = json.loads(first.stdout)
    assert (row["name"], row["cached"]) == ("silero-vad vad fp32", False)
    assert row["checks"]["windows judged as by FP32"] == 1.0
    assert row["checks"]["worst_snr_db"] > 100
    again = json.loads(_run(store, "build", "silero-vad", "--precision", "fp32", "--json", site=site).stdout)
    assert again["cached"]
    (listed,) = (r for r in json.loads(_run(store, "list", "--json").stdout) if r["name"] != "builder's timings")
    assert (listed["status"], listed["name"]) == ("ready", "silero-vad vad fp32")
    assert _run(store, "verify").returncode == 0
    assert json.loads(_run(store, "prune", "--others", "--json", site=site).stdout) == []
    gone = json.loads(_run(store, "prune", "--all", "--json").stdout)
    assert [r["name"] for r in gone] == ["silero-vad vad fp32"]


def test_engines_that_failed_are_listed_and_can_be_tried_again(tmp_path: Path) -> None:
    from models.engines.rungs import quarantine_of

    quarantine_of(Store(tmp_path)).add("k", task="asr.decoder", rung="ort-cpu int8", kind="non-finite", reason="NaN")
    assert "asr.decoder on ort-cpu int8: non-finite" in _run(tmp_path, "list").stdout
    assert "1 engines" in _run(tmp_path, "prune", "--faults").stdout
    assert "put away" not in _run(tmp_path, "list").stdout
