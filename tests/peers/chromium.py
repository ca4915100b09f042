"""A real Chromium with a microphone that plays a WAV file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import soundfile
from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

from appliance.app import Wren
from appliance.audio.resample import MonoResampler

__all__ = ["OTHER_NAME", "Wire", "chromium", "need_chromium", "speak_into"]

CHROMIUM: Final = Path("/usr/bin/chromium")
OTHER_NAME: Final = "wren.test"
"""A name of this machine that is not localhost, and so, without https, no secure context."""
FAKE_RATE_HZ: Final = 48_000
QUIET_DBFS: Final = -65.0


def need_chromium() -> None:
    """Skip where there is none; fail in CI, where there must be."""
    if CHROMIUM.exists():
        return
    message = f"{CHROMIUM} is absent: apt-get install chromium (tools/test-packages.txt)"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def chromium(*microphones: Path | None, refuse: bool = False) -> Iterator[tuple[Browser, ...]]:
    """A browser each, whose microphone plays a file over and over, or (None) that has no microphone.

    With `refuse` nobody allows a page to use it.
    """
    with sync_playwright() as playwright:
        browsers = [
            playwright.chromium.launch(executable_path=str(CHROMIUM), args=_arguments(microphone, refuse))
            for microphone in microphones
        ]
        try:
            yield tuple(browsers)
        finally:
            for browser in browsers:
                browser.close()


def _arguments(microphone: Path | None, refuse: bool) -> list[str]:
    arguments = ["--autoplay-policy=user-gesture-required", f"--host-resolver-rules=MAP {OTHER_NAME} 127.0.0.1"]
    if microphone is not None:
        arguments += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}"]
        if not refuse:
            arguments.append("--use-fake-ui-for-media-stream")
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    return arguments


def speak_into(wren: Wren, file: Path, text: str, *, lead_s: float, tail_s: float) -> None:
    """Write the sound of a quiet room in which somebody says a text."""
    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz, FAKE_RATE_HZ)
    voice = np.concatenate((resampler.push(synthesiser.whole(text)), resampler.flush()))
    silence = [np.zeros(int(seconds * FAKE_RATE_HZ), dtype=np.float32) for seconds in (lead_s, tail_s)]
    sound = np.concatenate((silence[0], voice, silence[1]))
    room = np.random.default_rng(1).standard_normal(sound.size) * 10 ** (QUIET_DBFS / 20)
    soundfile.write(file, sound + room, FAKE_RATE_HZ, "PCM_16")


class Wire:
    """What goes over a page's WebSocket, as Chromium itself sees it."""

    def __init__(self, page: Page) -> None:
        self.sent: list[str | bytes] = []
        self.received: list[str | bytes] = []

        def sent(message: str | bytes) -> None:
            self.sent.append(message)

        def received(message: str | bytes) -> None:
            self.received.append(message)

        def opened(socket: WebSocket) -> None:
            socket.on("framesent", sent)
            socket.on("framereceived", received)

        page.on("websocket", opened)
