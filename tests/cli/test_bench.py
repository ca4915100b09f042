"""`wren bench` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

WREN = Path(sys.executable).with_name("wren")
Bench = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.models


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Run `wren bench` in an empty folder."""

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(WREN), "bench", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)

    return call


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_command_is_played_in_real_time_and_reported(bench: Bench, shared: Path, tmp_path: Path) -> None:
    done = bench("--speech", shared / "speech", "--match", "^rh3_whats_the_date", "--json", "--write", "docs")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    (clip,) = body["wren"]["each_clip"]
    assert clip["file"] == "rh3_whats_the_date_today.flac"
    assert clip["right"]
    total = body["wren"]["times_ms"]["total"]
    assert total["n"] == 1
    assert total["p50"] == clip["split_ms"]["total"]
    assert body["material"]["match"] == "^rh3_whats_the_date"
    assert body["wren"]["peak_rss_mb"] > 100
    assert "| clips played / timed | 1 / 1 |" in (tmp_path / "docs" / "response.md").read_text(encoding="utf-8")
    assert ElementTree.parse(tmp_path / "docs" / "response.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_a_truncated_recording_fails_the_run_but_not_the_other_clip(bench: Bench, shared: Path, tmp_path: Path) -> None:
    source = shared / "speech" / "commands"
    folder = tmp_path / "speech" / "commands"
    folder.mkdir(parents=True)
    wanted = ("rh3_set_timer.flac", "rh3_whats_the_date_today.flac")
    lines = (source / "manifest.tsv").read_text(encoding="utf-8").splitlines()
    rows = [lines[0], *(line for line in lines if line.startswith(wanted))]
    (folder / "manifest.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "home.json").write_bytes((source / "home.json").read_bytes())
    (folder / wanted[0]).write_bytes((source / wanted[0]).read_bytes()[:20_000])
    (folder / wanted[1]).write_bytes((source / wanted[1]).read_bytes())
    done = bench("--speech", tmp_path / "speech", "--json")
    assert done.returncode == 1
    assert "could not be heard" in _last_line(done)
    broken, good = json.loads(done.stdout)["wren"]["each_clip"]
    assert wanted[0] in broken["error"]
    assert good["error"] is None
    assert good["right"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--speech", "none"], 1, "no such folder"),
        (["--speech", "."], 1, "home.json"),
        (["--limit", "0"], 2, "above 0"),
        (["--repeat", "x"], 2, "above 0"),
        (["--noise", "nan"], 2, "no level in dB"),
        (["--no-live", "--write", "docs"], 2, "--no-live"),
        (["--no-live"], 2, "nothing to measure"),
        (["--baseline-all"], 2, "--baseline DIR"),
    ],
)
def test_wrong_use_and_absent_material_are_one_line(bench: Bench, arguments: list[str], code: int, says: str) -> None:
    done = bench(*arguments)
    assert done.returncode == code
    assert says in _last_line(done)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_a_folder_without_a_manifest_is_said(bench: Bench, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "home.json").write_text("{}")
    done = bench("--speech", tmp_path)
    assert done.returncode == 1
    assert "manifest.tsv is absent" in _last_line(done)


@pytest.mark.slow
def test_a_baseline_that_fails_does_not_take_wrens_figures_with_it(bench: Bench, shared: Path, tmp_path: Path) -> None:
    peer = tmp_path / "peer"
    (peer / ".venv").mkdir(parents=True)
    (peer / "run.sh").write_text("#!/bin/sh\necho its environment is broken >&2\nexit 3\n")
    (peer / "run.sh").chmod(0o755)
    options = ("--match", "^rh3_whats_the_date", "--json", "--baseline", peer)
    done = bench("--speech", shared / "speech", *options)
    assert done.returncode == 1
    assert "its environment is broken" in _last_line(done)
    body = json.loads(done.stdout)
    assert body["wren"]["clips"] == 1
    assert body["baseline"] is None
    assert "code 3" in body["troubles"][0]


def test_a_baseline_that_is_not_there_is_said_before_anything_is_played(bench: Bench, shared: Path) -> None:
    done = bench("--speech", shared / "speech", "--baseline", "nowhere")
    assert done.returncode == 1
    assert "no run.sh there" in _last_line(done)
    assert len(done.stderr.strip().splitlines()) == 1
