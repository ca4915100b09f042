"""The program to compare with is a fake here: a script that keeps the real one's contract, or breaks it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from appliance.bench.baseline import prepare, run_baseline
from appliance.bench.errors import BaselineError
from appliance.bench.run import Noise
from models import silent

from .material import a_clip, write_sound

FAKE = r"""
import csv, json, os, pathlib, sys
folder, manifest, out = sys.argv[1:4]
configs = sys.argv[sys.argv.index("--configs") + 1].split(",")
results = {}
for number, config in enumerate(configs):
    rows = []
    for row in csv.DictReader(open(manifest), delimiter="\t"):
        size = (pathlib.Path(folder) / row["file"]).stat().st_size
        t = 1.0 + number
        rows.append(dict(file=row["file"], ref=row["transcript"], end=float(row["speech_end_s"]), heard="hello",
            intent="HassTurnOn", slots={"area": "Kitchen"}, reply="Done", ok=True, endpointed=True, cut=False,
            t_endpoint=t, t_transcript=t + 0.5, t_intent=t + 0.51, t_audio=t + 0.75, cpu=1.5, others_cpu=0.1))
        print(row["file"][:38].ljust(38), "ep 1.0", size, os.environ.get("BASE_TAIL"), flush=True)
    results[config] = dict(rows=rows, rss_mb=400.0)
json.dump(dict(results=results), open(out, "w"))
"""


def _program(folder: Path, code: str = FAKE) -> Path:
    """A fake baseline: run.sh and a script beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fake.py").write_text(code)
    script = folder / "run.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$(dirname "$0")/fake.py" "$@"\n')
    script.chmod(0o755)
    return folder


def _clips(folder: Path) -> list:
    names = ("a.flac", "b.flac")
    for name in names:
        write_sound(folder / name, level=0.1)
    return [a_clip(name, path=folder / name) for name in names]


def test_each_configuration_is_read_as_splits_that_add_up(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    default, aggressive = run_baseline(
        _program(tmp_path / "peer"), _clips(tmp_path), lambda *a: seen.append(a), configs=("X", "Y")
    )
    assert (default.config, aggressive.config) == ("X", "Y")
    assert [result.clip.name for result in default.results] == ["a.flac", "b.flac"]
    split = default.results[0].split
    assert split is not None
    assert (split.endpoint, split.total) == (1000.0, 1750.0)
    assert split.recognition == pytest.approx(500.0)
    assert split.intent == pytest.approx(10.0)
    assert split.synthesis == pytest.approx(240.0)
    assert split.after_endpoint == pytest.approx(750.0)
    assert default.results[0].right
    assert default.peak_rss_mb == pytest.approx(400.0 * 1.048576)
    assert aggressive.results[0].split is not None
    assert seen[-1][1:] == (4, 4)


def test_an_endpoint_before_the_end_of_speech_is_a_cut_by_our_measure(tmp_path: Path) -> None:
    code = FAKE.replace("t = 1.0 + number", "t = [-0.1, -0.2][number]")
    little, much = run_baseline(_program(tmp_path / "peer", code), _clips(tmp_path), silent, configs=("X", "Y"))
    assert [result.cut for result in little.results] == [False, False]
    assert [result.cut for result in much.results] == [True, True]
    assert much.results[0].split is None


def test_noise_is_the_very_sound_that_wren_hears(tmp_path: Path) -> None:
    code = FAKE.replace(
        "results = {}", "results = {}\nimport shutil\nshutil.copytree(folder, os.environ['KEEP'])\n"
        "assert os.environ['BASE_TAIL'] == 'floor'"
    )  # fmt: skip
    sound = np.random.default_rng(7).standard_normal(16_000).astype(np.float32)
    clips = _clips(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEP", str(tmp_path / "kept"))
        run_baseline(_program(tmp_path / "peer", code), clips, silent, configs=("X",), noise=Noise(sound, 10.0))
    heard, rate_hz = soundfile.read(tmp_path / "kept" / "a.flac", dtype="float32")
    from appliance.bench.run import noisy

    assert rate_hz == 16_000
    assert np.abs(heard - noisy(clips[0], Noise(sound, 10.0))).max() < 1e-4


def test_a_folder_without_the_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match=r"no run\.sh"):
        prepare(tmp_path, tmp_path / "cache")


def test_the_program_is_copied_to_the_cache_without_what_it_made(tmp_path: Path) -> None:
    peer = _program(tmp_path / "peer")
    (peer / ".models").mkdir()
    copy = prepare(peer, tmp_path / "cache")
    assert copy.parent == tmp_path / "cache"
    assert sorted(path.name for path in copy.iterdir()) == ["fake.py", "run.sh"]
    assert (copy / "run.sh").stat().st_mode & 0o111
    assert prepare(peer, tmp_path / "cache") == copy
    (peer / "fake.py").write_text("# another version\n")
    assert prepare(peer, tmp_path / "cache") != copy


def test_a_folder_with_its_environment_is_used_as_it_is(tmp_path: Path) -> None:
    peer = _program(tmp_path / "peer")
    (peer / ".venv").mkdir()
    assert prepare(peer, tmp_path / "cache") == peer
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; sys.exit('no room for the environment')", "no room for the environment"),
        ("raise ValueError('broken')", "ValueError: broken"),
        ("pass", "not as agreed"),
        ("import sys; open(sys.argv[3], 'w').write('{')", "not as agreed"),
        ("import sys; open(sys.argv[3], 'w').write('{\"results\": {}}')", "not as agreed"),
        (FAKE.replace("rows=rows", "rows=rows[:1]"), "1 rows for 2 clips"),
        (FAKE.replace("t_audio=", "t_other="), "t_audio"),
        (FAKE.replace('file=row["file"]', 'file="other.flac"'), "other"),
    ],
)
def test_a_program_that_fails_or_breaks_its_contract_is_said(tmp_path: Path, code: str, says: str) -> None:
    with pytest.raises(BaselineError, match=says) as caught:
        run_baseline(_program(tmp_path / "peer", code), _clips(tmp_path), silent, configs=("X",))
    assert caught.value.code == "bench.baseline"


def test_an_environment_that_may_be_half_made_is_named(tmp_path: Path) -> None:
    peer = _program(tmp_path / "peer", "import nothing_of_that_name")
    (peer / ".venv").mkdir()
    with pytest.raises(BaselineError, match=r"nothing_of_that_name.*rm -r .*peer/\.venv"):
        run_baseline(peer, _clips(tmp_path), silent)


def test_a_program_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    peer = _program(tmp_path / "peer")
    (peer / "run.sh").chmod(0o644)
    with pytest.raises(BaselineError, match="cannot be run"):
        run_baseline(peer, _clips(tmp_path), silent)


def test_whoever_stops_the_bench_stops_the_program(tmp_path: Path) -> None:
    code = FAKE.replace("results[config] =", "import time; time.sleep(600)\n    results[config] =").replace(
        "results = {}", "results = {}\npathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))"
    )

    def stop(stage: str, done: int, total: int | None) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_baseline(_program(tmp_path / "peer", code), _clips(tmp_path), stop, configs=("X",))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "peer" / "pid").read_text()), 0)
