"""A real JACK server with its dummy driver: its devices are named, opened by their names, and never taken unasked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ASKED = """
import json, threading
from appliance.audio.devices import find_device, list_devices, stream_formats
from appliance.audio.portaudio import portaudio

told = {kind: [(d.name, d.default) for d in list_devices(kind)] for kind in ("microphone", "speaker")}
heard, played = threading.Event(), threading.Event()
blocks = []
def take(samples, now_s, age_s):
    blocks.append(samples.size)
    heard.set()
device = find_device("microphone", "jack:system")
microphone = portaudio().open_input(device.pcm, stream_formats(device, 256), lambda form: take)
device = find_device("speaker", "jack:system")
def connect(form):
    return lambda frames, ahead_s, underrun: (played.set(), bytes(4 * frames * form.channels))[1]
speaker = portaudio().open_output(device.pcm, stream_formats(device, 256), connect)
told["heard"], told["played"] = heard.wait(5), played.wait(5)
told["rate_hz"], told["block"] = microphone.format.rate_hz, blocks[0] // microphone.format.channels
told["opened"] = [speaker.format.rate_hz, speaker.format.channels]
microphone.close(), speaker.close()
print(json.dumps(told))
"""
RATE_HZ = 44_100
"""Not the rate that is tried first."""


@pytest.fixture
def jack(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server of this test's own; what programs must know to find it."""
    if shutil.which("jackd") is None:
        message = "jackd missing: install what tools/test-packages.txt lists"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    name = f"wren-{os.getpid()}"
    log = (tmp_path / "jack.log").open("wb")
    command = ["jackd", "-n", name, "-r", "-d", "dummy", "-r", str(RATE_HZ), "-p", "256"]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield {**os.environ, "JACK_DEFAULT_SERVER": name}
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def _ask(environment: dict[str, str]) -> dict[str, Any] | None:
    command = [sys.executable, "-c", ASKED]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else None


def test_jack_s_devices_are_opened_by_name_at_the_server_s_rate(jack: dict[str, str]) -> None:
    until_s = time.monotonic() + 20.0
    while (told := _ask(jack)) is None and time.monotonic() < until_s:  # the server is still starting
        time.sleep(0.2)
    assert told is not None
    assert ["jack:system", False] in told["microphone"]
    assert ["jack:system", False] in told["speaker"]
    assert told["heard"]
    assert told["played"]
    assert (told["rate_hz"], told["block"]) == (RATE_HZ, 256)
    assert told["opened"] == [RATE_HZ, 2]
