"""PortAudio over a fake of its library: when it looks around, and streams that rest."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from appliance.audio import portaudio as module
from appliance.audio.portaudio import LOOK_AGAIN_S, SETTLED_S, PortAudio, PortAudioStream, StreamFormat
from appliance.errors import DeviceFaultError

FORM = StreamFormat(48_000, 1, 480)


class FakeWorld:
    """A fake machine: its clock, its cards as the kernel lists them, and how often PortAudio looked at them."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.cards = "none"
        self.looks = 0

    def library(self) -> SimpleNamespace:
        """PyAudio, started: it finds no device."""
        self.looks += 1
        return SimpleNamespace(get_device_count=lambda: 0, terminate=lambda: None)

    def tries(self, host: PortAudio, seconds: float, every_s: float = 0.25) -> int:
        """Looks that so long a time of trying to find a device leads to."""
        before = self.looks
        for _ in range(round(seconds / every_s)):
            self.now_s += every_s
            host.pcms()
            host.rescan()
        return self.looks - before


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeWorld:
    made = FakeWorld()
    monkeypatch.setitem(sys.modules, "pyaudio", SimpleNamespace(PyAudio=made.library))
    monkeypatch.setattr(module, "quieten", lambda: None)
    monkeypatch.setattr(module, "alsa_is_configured", lambda: True)
    monkeypatch.setattr(module, "landscape", lambda: (made.cards,))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now_s))
    return made


def test_where_nothing_comes_it_is_seldom_looked_for(world: FakeWorld) -> None:
    host = PortAudio()
    assert world.tries(host, 5.0) == 1
    assert world.tries(host, 10 * LOOK_AGAIN_S) == 10


def test_a_card_that_comes_is_looked_for_at_once_and_again_when_it_surely_can_be_opened(world: FakeWorld) -> None:
    host = PortAudio()
    world.tries(host, 5.0)
    world.cards = "one"
    assert world.tries(host, 0.25) == 1
    assert world.tries(host, SETTLED_S + 0.25) == 1
    assert world.tries(host, LOOK_AGAIN_S / 2) == 0


def test_a_stream_that_is_open_is_ended_twice_for_a_card_that_comes_and_not_again(world: FakeWorld) -> None:
    host, library = PortAudio(), FakeLibraryStream()
    host.pcms()
    world.tries(host, 5.0)

    def opened() -> PortAudioStream:
        stream = PortAudioStream(FORM, host._forget)
        stream._stream = library
        host._streams.add(stream)
        return stream

    host._forced_s = world.now_s
    ended = []
    world.cards = "one"
    for _ in range(20):
        stream = opened()
        world.now_s += 0.25
        host.rescan()
        ended.append(stream.gone)
        stream.close()
    assert sum(ended) == 2


class FakeLibraryStream:
    """A fake stream of PyAudio."""

    def __init__(self) -> None:
        self.active = True
        self.fails = False
        self.hangs = threading.Event()
        self.hangs.set()
        self.calls: list[str] = []

    def is_active(self) -> bool:
        return self.active

    def stop_stream(self) -> None:
        self._do("stop")
        self.active = False

    def start_stream(self) -> None:
        self._do("start")
        self.active = True

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        assert self.hangs.wait(10.0)
        if self.fails:
            raise OSError(-9999, "unanticipated host error")
        self.calls.append(what)


@pytest.fixture
def library() -> FakeLibraryStream:
    return FakeLibraryStream()


@pytest.fixture
def stream(library: FakeLibraryStream) -> PortAudioStream:
    made = PortAudioStream(FORM, lambda stream: None)
    made._stream = library
    made.last_block_s, made.thread_id = 5.0, 77
    return made


def test_a_stream_that_rests_is_alive_and_begins_anew(stream: PortAudioStream, library: FakeLibraryStream) -> None:
    stream.rest()
    assert stream.resting
    assert stream.alive()
    stream.resume()
    assert not stream.resting
    assert (stream.last_block_s, stream.thread_id) == (0.0, 0)
    assert stream.close()
    assert not stream.alive()
    assert library.calls == ["stop", "start", "stop", "close"]


def test_a_device_that_is_gone_says_so_when_it_is_to_go_on(stream: PortAudioStream, library: FakeLibraryStream) -> None:
    stream.rest()
    library.fails = True
    with pytest.raises(DeviceFaultError, match="unanticipated host error"):
        stream.resume()
    assert stream.close()


def test_a_sound_server_that_hangs_holds_nobody_up_and_nothing_is_done_to_its_stream_twice_at_a_time(
    stream: PortAudioStream, library: FakeLibraryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", 0.05)
    stream.rest()
    library.hangs.clear()
    with pytest.raises(DeviceFaultError, match="no answer"):
        stream.resume()
    assert not stream.close(0.05)
    library.hangs.set()
    assert stream.close(5.0)
    assert library.calls == ["stop", "start", "stop", "close"]
