"""A fake PortAudio: streams whose callbacks a test calls, on devices that it plugs in and out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from appliance.audio.devices import Device
from appliance.audio.frame import Samples
from appliance.audio.portaudio import Give, Pcm, StreamFormat, Take
from appliance.errors import DeviceFaultError, NoDeviceError

MICROPHONE = Device("microphone", "hw:CARD=Fake,DEV=0", "fake", 16_000, 1, True, False, "hw:CARD=Fake,DEV=0", None)
SPEAKER = Device("speaker", "hw:CARD=Fake,DEV=0", "fake", 48_000, 2, True, False, "hw:CARD=Fake,DEV=0", None)


def eventually(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait until something that happens on another thread has happened."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.002)


class FakeStream:
    """An open stream; the test is its driver."""

    def __init__(self, form: StreamFormat) -> None:
        self.format = form
        self.last_block_s = 0.0
        self.thread_id = 0
        self.fault: str | None = None
        self.gone = False
        self.latency_s = 0.02
        self.take: Take | None = None
        self.give: Give | None = None
        self.closed = False
        self.ended = False
        self.resting = False
        self.restless = False

    def rest(self) -> None:
        if self.restless:
            raise DeviceFaultError("the fake card cannot be stopped")
        self.resting = True

    def resume(self) -> None:
        if self.ended:
            raise DeviceFaultError("the fake card is gone")
        self.last_block_s = 0.0
        self.resting = False

    def alive(self) -> bool:
        return not self.closed and not self.ended

    def close(self) -> bool:
        self.closed = True
        return True

    def hear(self, samples: Samples, arrival_s: float | None = None, age_s: float = 0.0) -> None:
        """The microphone's callback."""
        assert self.take is not None
        assert not self.closed
        self.last_block_s = time.monotonic()
        self.take(samples, self.last_block_s if arrival_s is None else arrival_s, age_s)

    def play(self, frames: int, delay_s: float = 0.02, dry: bool = False) -> Samples:
        """The speaker's callback; shape [frames, channels]."""
        assert self.give is not None
        assert not self.closed
        self.last_block_s = time.monotonic()
        data = self.give(frames, delay_s, dry)
        return np.frombuffer(data, dtype=np.float32).reshape(frames, self.format.channels)


class FakeHost:
    """PortAudio with one card that can be pulled out."""

    def __init__(self, *, plugged: bool = True) -> None:
        self.plugged = plugged
        self.broken = False
        self.restless = False
        """Its streams cannot be stopped and started."""
        self.streams: list[FakeStream] = []
        self.rescans = 0
        self.opened = threading.Event()

    @property
    def stream(self) -> FakeStream:
        """The newest."""
        return self.streams[-1]

    def wait_opened(self, count: int = 1) -> FakeStream:
        """Until so many streams have been opened in all."""
        eventually(lambda: len(self.streams) >= count)
        return self.stream

    def unplug(self) -> None:
        """As a card that is pulled out: its stream ends, and it cannot be opened."""
        self.plugged = False
        self.stream.ended = True

    def pcms(self, *, fresh: bool = True) -> list[Pcm]:
        return [Pcm(0, "hw:CARD=Fake,DEV=0", "fake", 1, 2)] if self.plugged else []

    def rescan(self, *, promising: bool = False) -> None:
        self.rescans += 1

    def open_input(
        self,
        pcm: str,
        formats: Sequence[StreamFormat],
        connect: Callable[[StreamFormat], Take],
        source: str | None = None,
    ) -> FakeStream:
        stream = self._open(formats)
        stream.take = connect(stream.format)
        self.streams.append(stream)
        return stream

    def open_output(
        self,
        pcm: str,
        formats: Sequence[StreamFormat],
        connect: Callable[[StreamFormat], Give],
        sink: str | None = None,
    ) -> FakeStream:
        stream = self._open(formats)
        stream.give = connect(stream.format)
        self.streams.append(stream)
        return stream

    def _open(self, formats: Sequence[StreamFormat]) -> FakeStream:
        if not self.plugged:
            raise NoDeviceError("the fake card is not plugged in")
        if self.broken:
            raise DeviceFaultError("the fake card is broken")
        stream = FakeStream(formats[0])
        stream.restless = self.restless
        return stream
