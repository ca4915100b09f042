"""The whole of Wren in a process in which onnxruntime cannot be imported: it answers, says so, and converts nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from models import Store

pytestmark = pytest.mark.models

BLOCKED = "import sys; sys.modules['onnxruntime'] = None\nfrom appliance.cli import main\nsys.exit(main(sys.argv[1:]))"


def _wren(*arguments: str, store: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) if store is None else {**os.environ, "WREN_MODELS_DIR": str(store)}
    command = [sys.executable, "-c", BLOCKED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=200)


def test_what_was_not_converted_cannot_be_now_and_the_error_says_why(real_store: Store, tmp_path: Path) -> None:
    (tmp_path / "packs").symlink_to(real_store.root / "packs")
    done = _wren("say", "hello", "-o", str(tmp_path / "out.wav"), store=tmp_path)
    assert done.returncode == 1
    assert "Converting needs ONNX Runtime" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_speaks_with_numpy_and_says_so(real_store: Store, tmp_path: Path) -> None:
    done = _wren("say", "yes", "-o", str(tmp_path / "out.wav"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.wav").stat().st_size > 10_000
    assert "tts.vocoder runs on numpy fp32 from now on" in done.stderr


@pytest.mark.slow
@pytest.mark.shared
def test_it_hears_understands_and_answers_with_numpy(real_store: Store, shared: Path) -> None:
    clip = shared / "speech" / "commands" / "rht_turn_on_bedroom_light.flac"
    done = _wren("listen", "--json", "--no-wake", str(clip))
    assert done.returncode == 0, done.stderr
    heard = json.loads(done.stdout)
    assert heard["intent"] == "HassTurnOn"
    assert "bedroom light" in heard["transcript"].lower()
    assert heard["reply"]
    assert "asr.decoder runs on numpy fp32 from now on" in done.stderr
    assert "vad.vad runs on numpy fp32 from now on" in done.stderr
