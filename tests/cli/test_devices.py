"""`wren devices` where there is no sound: one clear line. (With sound: tests/peers/test_pulse_devices.py.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WREN = Path(sys.executable).with_name("wren")


@pytest.fixture
def silent_machine(tmp_path: Path) -> dict[str, str]:
    """An environment in which neither a sound server nor a card can be found, even where there is one."""
    (tmp_path / "alsa.conf").write_text("pcm.default { type hw card 31 }\n")
    return {
        **os.environ,
        "ALSA_CONFIG_PATH": str(tmp_path / "alsa.conf"),
        "PULSE_SERVER": f"unix:{tmp_path}/no-server",
        "HOME": str(tmp_path),
    }


def _run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(WREN), "devices", *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_where_there_is_nothing_one_line_says_so_and_what_to_do(silent_machine: dict[str, str]) -> None:
    done = _run(silent_machine)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("wren: no microphone and no speaker were found")
    assert "plug one in" in line
    assert "browser" in line


def test_as_json_there_are_two_empty_lists(silent_machine: dict[str, str]) -> None:
    done = _run(silent_machine, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"microphones": [], "speakers": []}


def test_without_portaudio_it_says_what_to_install(silent_machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pyaudio.py").write_text("raise ImportError('libportaudio.so.2: cannot open shared object file')\n")
    done = _run({**silent_machine, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "libportaudio2" in line


def test_without_alsas_configuration_portaudio_would_end_the_process_and_is_not_asked(
    silent_machine: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "alsa.conf").write_text("")
    done = _run(silent_machine)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "libasound2-data" in line


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_meter_wants_a_time(silent_machine: dict[str, str], seconds: str) -> None:
    done = _run(silent_machine, f"--meter={seconds}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
