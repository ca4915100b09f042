"""`wren run` as a person starts it: a machine without sound, the page, a clean stop; kills at bad moments."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WREN = Path(sys.executable).with_name("wren")
START_LIMIT_S = 60.0

pytestmark = pytest.mark.models


@contextmanager
def running(config: Path, pulse: str = "unix:/nonexistent") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A started appliance and the link it printed; without a sound server, unless one is named."""
    environment = {**os.environ, "WREN_CONFIG": str(config), "PULSE_SERVER": pulse}
    process = subprocess.Popen([WREN, "run"], stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        lines = []
        deadline = time.monotonic() + START_LIMIT_S
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://\S+", line):
                yield process, found[0]
                return
            assert time.monotonic() < deadline, lines
        pytest.fail("".join(lines))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def _told(process: subprocess.Popen[str], words: str) -> str:
    """What is said until a line holds some words."""
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if words in line:
            return told
    pytest.fail(told)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings of our own, on any free port."""
    path = tmp_path / "wren.toml"
    path.write_text("# mine\n[web]\nport = 0\n")
    return path


def _status(link: str) -> int:
    try:
        with urllib.request.urlopen(link, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_without_a_sound_card_it_serves_the_page_says_so_and_stops_cleanly(config: Path) -> None:
    with running(config) as (process, link):
        assert _status(link.split("?")[0]) == 401
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(link, timeout=10) as response:
            assert "<title>Wren</title>" in response.read().decode()
        told = _told(process, "Ctrl-C")
        process.send_signal(signal.SIGTERM)
        rest = told + process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert "No microphone here: open the page" in rest
        assert "stopping" in rest
        assert "Traceback" not in rest
    text = config.read_text()
    assert text.startswith("# mine\n")
    assert "token" in text


def test_the_token_is_kept_and_never_logged(config: Path) -> None:
    with running(config) as (process, link):
        token = link.split("token=")[1]
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
    assert token in config.read_text()
    assert token not in rest
    assert config.stat().st_mode & 0o077 == 0
    with running(config) as (_, again):
        assert again.split("token=")[1] == token


def test_a_taken_port_is_one_clear_line(config: Path) -> None:
    with running(config) as (_, link):
        port = link.split(":")[2].split("/")[0]
        other = config.with_name("other.toml")
        other.write_text(f"[web]\nport = {port}\n")
        environment = {**os.environ, "WREN_CONFIG": str(other)}
        run = subprocess.run([WREN, "run"], capture_output=True, text=True, timeout=60, env=environment, check=False)
        assert run.returncode == 1
        last = run.stderr.strip().splitlines()[-1]
        assert "cannot be served" in last
        assert "wren config set web.port" in last
        assert "Traceback" not in run.stderr


def test_broken_settings_are_one_clear_line(config: Path) -> None:
    config.write_text('[web]\nport = "many"\n')
    environment = {**os.environ, "WREN_CONFIG": str(config)}
    run = subprocess.run([WREN, "run"], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert run.returncode == 1
    assert "web.port" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert config.read_text() == '[web]\nport = "many"\n'
