"""The command line as a user types it: exit codes, one-line errors, JSON that tools rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

WREN = Path(sys.executable).with_name("wren")
Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.models


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `wren` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        import os

        return subprocess.run(
            [str(WREN), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip

    return call


def _one_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_the_demo_wakes_understands_acts_and_answers(run: Run, tmp_path: Path) -> None:
    done = run("demo", "-o", tmp_path / "reply.wav")
    assert done.returncode == 0, done.stderr
    for word in (
        "wake     okay_nabu",
        "text     ",
        "HassTurnOn",
        "area=Kitchen",
        "Turned on the lights",
        "synthesis",
        "response",
    ):
        assert word in done.stdout
    sound, rate_hz = soundfile.read(tmp_path / "reply.wav")
    assert rate_hz == 22_050
    assert 0.5 < sound.size / rate_hz < 3.0
    assert np.abs(sound).max() > 0.1


def test_say_writes_a_wav(run: Run, tmp_path: Path) -> None:
    done = run("say", "Hello there.", "-o", "hello.wav")
    assert done.returncode == 0, done.stderr
    assert soundfile.info(str(tmp_path / "hello.wav")).duration > 0.5


def test_listen_json_has_the_agreed_shape_and_goes_on_after_a_bad_file(run: Run, tmp_path: Path) -> None:
    assert run("say", "Turn on the kitchen lights.", "-o", "good.wav").returncode == 0
    (tmp_path / "bad.wav").write_bytes(b"")
    done = run("listen", "--json", "--no-wake", "bad.wav", "good.wav")
    assert done.returncode == 1
    assert "empty" in _one_line(done.stderr)
    bad, good = map(json.loads, done.stdout.splitlines())
    keys = {"file", "wake", "transcript", "intent", "slots", "reply", "error", "times_ms", "cpu_s"}
    assert keys <= bad.keys()
    assert keys <= good.keys()
    assert "empty" in bad["error"]
    assert bad["intent"] is None
    assert set(bad["times_ms"]) == {"end_of_speech", "endpoint", "final_text", "intent", "first_audio"}
    assert good["intent"] == "HassTurnOn"
    assert good["slots"] == {"area": "Kitchen", "domain": "light"}
    assert good["reply"] == "Turned on the lights"
    assert good["error"] is None
    assert good["wake"] is None
    times = [good["times_ms"][k] for k in ("end_of_speech", "endpoint", "final_text", "intent", "first_audio")]
    assert times == sorted(times)
    assert good["cpu_s"] > 0


def test_without_the_wake_word_a_recording_is_not_listened_to(run: Run) -> None:
    assert run("say", "Turn on the kitchen lights.", "-o", "x.wav").returncode == 0
    record = json.loads(run("listen", "--json", "x.wav").stdout)
    assert (record["wake"], record["transcript"], record["intent"]) == (None, "", None)


@pytest.mark.slow
def test_realtime_gives_the_same_words_on_the_wall_clock(run: Run) -> None:
    assert run("say", "What time is it?", "-o", "x.wav").returncode == 0
    record = json.loads(run("listen", "--json", "--no-wake", "--realtime", "x.wav").stdout)
    assert record["intent"] == "HassGetCurrentTime"
    assert record["times_ms"]["first_audio"] > record["times_ms"]["endpoint"]


def test_understand_acts_on_nothing_and_prints_one_object_a_text(run: Run) -> None:
    done = run("understand", "--json", "turn on the kitchen lights", "make me a sandwich")
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert set(first) == {"text", "intent", "slots", "reply"}
    assert first["intent"] == "HassTurnOn"
    assert second["intent"] is None
    assert "sandwich" in second["reply"].lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "required"),
        (("dance",), "invalid choice"),
        (("listen",), "required"),
        (("listen", "--wake", "computer", "x.wav"), "no wake word 'computer'"),
        (("listen", "--no-wake", "--wake", "alexa", "x.wav"), "not allowed with"),
        (("say", "  "), "give a text"),
    ],
)
def test_wrong_use_is_exit_code_2_and_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in _one_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("listen", "absent.wav"), "no such file"),
        (("listen", "--raw", "fast", "absent.wav"), "raw format"),
        (("say", "hello", "-o", "no/such/folder/x.wav"), "cannot be written"),
        (("understand", "--home", "absent.json", "hello"), "absent.json"),
        (("models", "fetch", "no-such-pack"), "no-such-pack"),
        (("models", "remove", "no-such-pack"), "no-such-pack"),
    ],
)
def test_what_cannot_be_done_is_exit_code_1_and_one_line(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1, done.stderr
    assert words in _one_line(done.stderr)


@pytest.mark.slow
def test_without_espeak_the_words_are_still_understood_and_the_lack_is_named(run: Run, tmp_path: Path) -> None:
    assert run("say", "Turn on the kitchen lights.", "-o", "x.wav").returncode == 0
    done = run("listen", "--json", "--no-wake", "x.wav", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "sudo apt-get install espeak-ng" in _one_line(done.stderr)
    record = json.loads(done.stdout)
    assert record["intent"] == "HassTurnOn"
    assert "espeak-ng" in record["error"]
    assert run("say", "hello", PATH=str(tmp_path)).returncode == 1
    assert not (tmp_path / "wren-say.wav").exists()
    doctor = run("doctor", "--json", PATH=str(tmp_path))
    assert doctor.returncode == 1
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert checks["espeak-ng"]["status"] == "fail"


def test_a_corrupted_pack_is_named_and_never_used(run: Run, tmp_path: Path) -> None:
    """A copy of the store with one byte turned over."""
    import shutil

    from models import Store

    store = Store()
    broken = tmp_path / "store"
    shutil.copytree(store.root, broken, copy_function=_link)
    victim = next((broken / "packs" / "silero-vad").rglob("silero_vad.onnx"))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(data)
    done = run("models", "verify", WREN_MODELS_DIR=str(broken))
    assert done.returncode == 1
    assert "wren models fetch silero-vad" in _one_line(done.stderr)
    doctor = run("doctor", "--json", WREN_MODELS_DIR=str(broken))
    assert doctor.returncode == 1


def _link(source: str, target: str) -> str:
    Path(target).hardlink_to(source)
    return target


def test_doctor_finds_this_machine_fit(run: Run) -> None:
    done = run("doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"] is True
    names = {check["name"] for check in report["checks"]}
    assert {"python", "espeak-ng", "pack moonshine-base-en", "start", "speech", "hearing"} <= names


def test_models_are_listed_with_their_licences(run: Run) -> None:
    rows = {row["id"]: row for row in json.loads(run("models", "list", "--json").stdout)}
    assert rows["moonshine-base-en"]["licence"] == "MIT"
    assert any("lessac" in caveat for caveat in rows["piper-en-us-joe"]["caveats"])
    assert rows["wake-okay-nabu"]["status"] == "library"


@pytest.mark.slow
def test_a_long_recording_with_one_command_is_heard_in_bounded_memory(run: Run, tmp_path: Path) -> None:
    """Ten minutes of quiet at 8 kHz, a command near the end; three hours are in the slow suite."""
    assert run("say", "Turn off the kitchen lights.", "-o", "x.wav").returncode == 0
    sound, rate_hz = soundfile.read(tmp_path / "x.wav", dtype="float32")
    quiet = (1e-4 * np.random.default_rng(2).standard_normal(rate_hz * 10)).astype(np.float32)
    with soundfile.SoundFile(tmp_path / "long.wav", "w", rate_hz, 1, "PCM_16") as file:
        for _ in range(12):
            file.write(quiet)
        file.write(sound)
        file.write(quiet)
    record = json.loads(run("listen", "--json", "--no-wake", "long.wav").stdout)
    assert record["intent"] == "HassTurnOff"
    assert record["times_ms"]["end_of_speech"] > 120_000


def test_without_a_home_on_the_command_line_the_settings_home_is_meant(run: Run, tmp_path: Path) -> None:
    home, config = tmp_path / "home.json", tmp_path / "own.toml"
    body = {
        "areas": [{"name": "Attic"}],
        "entities": [{"name": "Attic Lamp", "domain": "light", "area": "Attic"}],
        "sentences": [{"say": ["story time"], "means": "turn on the attic lamp"}],
    }
    home.write_text(json.dumps(body), encoding="utf-8")
    assert run("config", "set", "home_file", home, WREN_CONFIG=str(config)).returncode == 0
    done = run("understand", "story time", "--json", WREN_CONFIG=str(config))
    assert json.loads(done.stdout)["slots"]["name"] == "Attic Lamp", done.stderr
    other = run("understand", "story time", "--json")
    assert json.loads(other.stdout)["intent"] is None
