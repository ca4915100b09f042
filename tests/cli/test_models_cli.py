"""`wren models` as a user types it: what stands where, consent, the quantising report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WREN = Path(sys.executable).with_name("wren")


def _run(store: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, "WREN_MODELS_DIR": str(store)}
    return subprocess.run(
        [str(WREN), "models", *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_list_says_what_is_unverified_and_what_is_not_used(tmp_path: Path) -> None:
    done = _run(tmp_path, "list", "--json")
    rows = {row["id"]: row for row in json.loads(done.stdout)}
    assert (rows["kokoro-82m"]["status"], rows["kokoro-82m"]["used"]) == ("unverified", False)
    assert (rows["silero-vad"]["status"], rows["silero-vad"]["used"]) == ("missing", True)
    text = _run(tmp_path, "list").stdout
    assert "Unverified: not fetched when it was listed" in text
    assert "Not used yet" in text


def test_an_unverified_pack_is_not_fetched_without_consent(tmp_path: Path) -> None:
    done = _run(tmp_path, "fetch", "kokoro-82m")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "wren models fetch --consent kokoro-82m" in done.stderr


@pytest.mark.parametrize(
    ("setting", "pack"),
    [('[audio]\ndenoise = "dtln"\n', "dtln"), ('[models]\nrecogniser = "moonshine-tiny-en"\n', "moonshine-tiny-en")],
)
def test_what_the_settings_ask_for_is_among_what_wren_needs_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, pack: str
) -> None:
    config = tmp_path / "wren.toml"
    monkeypatch.setenv("WREN_CONFIG", str(config))
    without = _run(tmp_path, "verify").stderr
    config.write_text(setting)
    wanted = _run(tmp_path, "verify").stderr
    assert "silero-vad" in without
    assert pack not in without
    assert f"run: wren models fetch {pack}" in wanted


def test_a_report_of_nothing_says_what_to_run(tmp_path: Path) -> None:
    done = _run(tmp_path, "quantize", "silero-vad", "--report")
    assert done.returncode == 1
    assert "wren models quantize silero-vad" in done.stderr


def test_a_cap_that_is_no_number_is_one_line(tmp_path: Path) -> None:
    import os

    environment = {**os.environ, "WREN_MODELS_DIR": str(tmp_path), "WREN_MODELS_MAX_BYTES": "much"}
    done = subprocess.run(
        [str(WREN), "models", "list"], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 1
    assert "WREN_MODELS_MAX_BYTES" in done.stderr
    assert "Traceback" not in done.stderr
