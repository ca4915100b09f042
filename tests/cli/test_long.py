"""Three hours of recording: heard to its end, in the memory of three seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

WREN = Path(sys.executable).with_name("wren")
HOURS = 3
RATE_HZ = 8_000
MAX_RSS_BYTES = 600 << 20


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(1800)
def test_three_hours_with_a_command_at_the_end(tmp_path: Path) -> None:
    subprocess.run([WREN, "say", "okay nabu, turn off the kitchen lights", "-o", tmp_path / "x.wav"], check=True)
    command, rate_hz = soundfile.read(tmp_path / "x.wav", dtype="float32")
    step = np.arange(0, command.size, rate_hz / RATE_HZ).astype(int)
    quiet = (2e-3 * np.random.default_rng(2).standard_normal(RATE_HZ * 60)).astype(np.float32)
    with soundfile.SoundFile(tmp_path / "long.wav", "w", RATE_HZ, 1, "PCM_U8") as file:
        for _ in range(HOURS * 60):
            file.write(quiet)
        file.write(command[step])
        file.write(quiet[:RATE_HZ])
    run = subprocess.Popen([WREN, "listen", "--json", tmp_path / "long.wav"], stdout=subprocess.PIPE, text=True)
    watched, largest = psutil.Process(run.pid), 0
    while True:
        try:
            out, _ = run.communicate(timeout=5)
            break
        except subprocess.TimeoutExpired:
            largest = max(largest, watched.memory_info().rss)
    record = json.loads(out)
    assert record["wake"] == "okay_nabu"
    assert record["intent"] == "HassTurnOff"
    assert record["times_ms"]["end_of_speech"] > HOURS * 3600 * 1000
    assert 0 < largest < MAX_RSS_BYTES
