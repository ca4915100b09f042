"""`wren run` itself, in a room of virtual sound: spoken to, answering, muted from its page, stopped."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from appliance.app import Wren
from appliance.audio.resample import MonoResampler
from tests.peers.pulse import MIC_RATE_HZ, SPEAKER_RATE_HZ, PulseServer
from tests.test_running import running
from tests.voice.conftest import say

pytestmark = [pytest.mark.models, pytest.mark.slow]

LIMIT_S = 30.0


class Page:
    """The page's API, with the token from the printed link."""

    def __init__(self, link: str) -> None:
        self._address, self._token = link.split("?token=")

    def ask(self, path: str, body: object = None) -> dict[str, object]:
        """GET, or POST where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path.lstrip("/"), data=data)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as response:
            answer: dict[str, object] = json.load(response)
        return answer


def _eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_started_appliance_hears_answers_and_lets_go_of_its_microphone(
    server: PulseServer, wren: Wren, tmp_path: Path
) -> None:
    server.ready()
    config = tmp_path / "wren.toml"
    config.write_text("[web]\nport = 0\n")
    quiet = np.zeros(8000, np.float32)
    command = np.concatenate((quiet, say(wren, "okay nabu, switch on the kitchen lights"), quiet))
    with running(config, server.settings["PULSE_SERVER"]) as (_, link):
        page = Page(link)
        _eventually(lambda: page.ask("/api/state")["microphone"] == "live")
        listening = server.listeners("mic_in.monitor")
        assert listening >= 1

        with server.record() as recording:
            server.say(command, MIC_RATE_HZ).wait(LIMIT_S)
            _eventually(lambda: bool(page.ask("/api/traces")["traces"]))
            time.sleep(1.0)
            answer = recording.samples
        (trace,) = page.ask("/api/traces")["traces"]  # type: ignore[misc]
        assert (trace["wake"], trace["intent"], trace["outcome"]) == ("okay_nabu", "HassTurnOn", "answered")
        resampler = MonoResampler(SPEAKER_RATE_HZ)
        recogniser = wren.recogniser()
        sound = np.concatenate((resampler.push(answer), resampler.flush()))
        loud = np.flatnonzero(np.abs(sound) > 0.02)
        # The reply is the last second of it; what comes before is the sound that acknowledged the wake word.
        recogniser.push_samples(sound[max(0, loud[-1] - 20_000) : loud[-1] + 4000])
        assert "on the lights" in recogniser.flush().text.lower()

        assert page.ask("/api/mute", {"muted": True}) == {"microphone": "muted"}
        assert server.listeners("mic_in.monitor") == listening - 1
        server.say(command, MIC_RATE_HZ).wait(LIMIT_S)
        assert len(page.ask("/api/traces")["traces"]) == 1  # type: ignore[arg-type]

        page.ask("/api/mute", {"muted": False})
        _eventually(lambda: page.ask("/api/state")["microphone"] == "live")
        server.say(command, MIC_RATE_HZ).wait(LIMIT_S)
        _eventually(lambda: len(page.ask("/api/traces")["traces"]) == 2)  # type: ignore[arg-type]
