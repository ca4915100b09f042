"""PortAudio, of which a process has one: what PCMs it sees, and callback streams on them that can be closed for sure.

It looks around once, when it starts. A device plugged in later is seen after a restart of it (`rescan`), which ends
every stream of the process; whoever owns one sees `gone` and opens it again.

Microphone and speaker are two streams, not one duplex stream: they are often two devices with two clocks and two
native rates, one may be unplugged or muted while the other goes on, and each wants its own buffer size.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from appliance.audio.alsa import alsa_is_configured, quieten
from appliance.audio.frame import Samples
from appliance.audio.landscape import CARDS, landscape
from appliance.errors import DeviceFaultError, NoDeviceError

__all__ = ["JACK_PREFIX", "Give", "Pcm", "PortAudio", "PortAudioStream", "StreamFormat", "Take", "portaudio"]

CLOSE_TIMEOUT_S: Final = 1.0
"""A sound server that hangs lets no stream be closed; its owner must not hang with it."""
FORCED_RESCAN_S: Final = 300.0
PROMISING_RESCAN_S: Final = 30.0
"""Looking around interrupts the other stream for some 0.2 s: seldom, unless the cards have changed."""
LOOK_AGAIN_S: Final = 15.0
"""Where nothing seems to have changed and no stream is open: it still costs a tenth of a second of a core."""
SETTLED_S: Final = 1.0
"""So long after a card or a server came it can be opened, if it ever can: until udev has given a card's files their
rights, PortAudio does not see it. So it is looked for once more."""
_HARDWARE: Final = re.compile(r"^(?P<title>.*) \(hw:(?P<card>\d+),(?P<device>\d+)\)$")
_ALSA_TYPE: Final = 8
_JACK_TYPE: Final = 12
JACK_PREFIX: Final = "jack:"
_BAD_RATE, _BAD_CHANNELS = -9997, -9998

Take = Callable[[Samples, float, float], None]
"""A microphone's callback: interleaved samples (a view that dies with the call), arrival, age of the first sample."""
Give = Callable[[int, float, bool], bytes]
"""A speaker's callback: frames wanted, seconds until the first is heard (0: unknown), whether the device ran dry."""


@dataclass(frozen=True, slots=True)
class Pcm:
    """One thing that PortAudio can open."""

    index: int
    """Its number of the day; never kept."""
    name: str
    """Stable: `hw:CARD=Device,DEV=0` as ALSA itself writes it, or a name of its configuration such as `default`."""
    title: str
    inputs: int
    outputs: int
    """Most channels in and out; 0: it has none."""


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """What a stream is opened with."""

    rate_hz: int
    channels: int
    block: int
    """Sample frames in one callback."""


class PortAudioStream:
    """An open stream. Made by `PortAudio.open_input` and `open_output`."""

    def __init__(self, form: StreamFormat, forget: Callable[[PortAudioStream], None]) -> None:
        self.format = form
        self.last_block_s = 0.0
        """Monotonic time of the last callback; 0 before the first since it was opened or resumed."""
        self.thread_id = 0
        """Native id of PortAudio's thread that makes the callbacks; 0 before the first, as above."""
        self.fault: str | None = None
        """What our own callback raised."""
        self.gone = False
        """It was ended by a rescan, not by its owner and not by a fault."""
        self.latency_s = 0.0
        """As PortAudio states it; real latency may be more."""
        self.resting = False
        """Callbacks were stopped by `rest`."""
        self._forget = forget
        self._stream: Any = None
        self._closing: threading.Thread | None = None
        self._close_lock = threading.Lock()
        self._control = threading.Lock()  # PortAudio stands no two of start, stop and close at a time

    def alive(self) -> bool:
        """Whether callbacks may still come; they may have stalled all the same (`last_block_s`)."""
        if self._closing is not None or self.fault is not None:
            return False
        if self.resting:
            return True
        try:
            return bool(self._stream.is_active())
        except OSError:
            return False

    def rest(self) -> None:
        """No callbacks until `resume`; the device stays open, and its server may let it sleep."""
        self.resting = True
        self._bounded(self._stream.stop_stream)

    def resume(self) -> None:
        """Callbacks again, within some milliseconds; of a sink that was sent to sleep meanwhile, as after opening.
        Raises `DeviceFaultError` where the device is gone or hangs."""
        self.thread_id, self.last_block_s = 0, 0.0  # of a new thread
        self._bounded(self._stream.start_stream)
        self.resting = False

    def _bounded(self, action: Callable[[], object]) -> None:
        """Start or stop, on a thread of its own: a sound server that hangs must not hold up the caller."""
        failed: list[OSError] = []

        def act() -> None:
            with self._control:
                if self._closing is None:
                    try:
                        action()
                    except OSError as error:
                        failed.append(error)

        thread = threading.Thread(target=act, name="stream-control", daemon=True)
        thread.start()
        thread.join(CLOSE_TIMEOUT_S)
        if thread.is_alive():
            raise DeviceFaultError(f"the sound system gave no answer within {CLOSE_TIMEOUT_S:g} s")
        if failed:
            raise DeviceFaultError(f"it can be stopped or started no more ({failed[0].args[-1]}); was it unplugged?")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """End it; False if it has not ended in time (it still will if its sound server comes back)."""
        with self._close_lock:  # its owner and a rescan may both want it
            if self._closing is None:
                self._closing = threading.Thread(target=self._end, name="stream-close", daemon=True)
                self._closing.start()
        self._closing.join(timeout_s)
        return not self._closing.is_alive()

    @property
    def closing(self) -> bool:
        """`close` was called; callbacks do nothing any more."""
        return self._closing is not None

    def _end(self) -> None:
        with self._control:
            with suppress(OSError):  # a device that was pulled out cannot be stopped, and is closed all the same
                self._stream.stop_stream()
            with suppress(OSError):
                self._stream.close()
        self._forget(self)


class PortAudio:
    """See the module. One instance: `portaudio()`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._streams: set[PortAudioStream] = set()
        self._library: Any = None
        self._module: Any = None
        self._seen: tuple[object, ...] = ()
        self._looked_s = -LOOK_AGAIN_S
        self._changed_s = 0.0
        self._forced_s = -FORCED_RESCAN_S

    def pcms(self, *, fresh: bool = True) -> list[Pcm]:
        """Everything that can be opened now. `fresh` looks around anew where no stream would be interrupted, and
        something may have changed.

        Raises `NoDeviceError` where PortAudio is not installed.
        """
        with self._lock:
            if fresh and not self._streams and self._may_find():
                self._stop()
            self._start()
            return list(self._list())

    def rescan(self, *, promising: bool = False) -> None:
        """Look around anew if that may find something: the cards or sound servers changed, or it is long ago. Open
        streams are ended for it.

        `promising`: something is known to be there that was not seen the last time.
        """
        with self._lock:
            now_s = time.monotonic()
            if not self._streams:
                due = promising or self._may_find()
            else:
                wait_s = PROMISING_RESCAN_S if promising else FORCED_RESCAN_S
                due = now_s - self._forced_s >= wait_s or self._has_changed()
            if not due:
                return
            if self._streams:
                self._forced_s = now_s
            for stream in list(self._streams):
                stream.gone = True
                if not stream.close():
                    return  # to stop PortAudio under a stream that hangs would crash the process
            self._stop()
            self._start()

    def open_input(
        self,
        pcm: str,
        formats: Sequence[StreamFormat],
        connect: Callable[[StreamFormat], Take],
        source: str | None = None,
    ) -> PortAudioStream:
        """Open and start a microphone with the first format that it takes; `source` names the sound server's own.

        Raises `NoDeviceError` where it is not there, `DeviceFaultError` where it cannot be opened.
        """

        def callback_of(stream: PortAudioStream) -> Callable[..., tuple[None, int]]:
            return _input_callback(stream, connect(stream.format))

        return self._open("input", pcm, formats, callback_of, source)

    def open_output(
        self,
        pcm: str,
        formats: Sequence[StreamFormat],
        connect: Callable[[StreamFormat], Give],
        sink: str | None = None,
    ) -> PortAudioStream:
        """Open and start a speaker; as `open_input`."""

        def callback_of(stream: PortAudioStream) -> Callable[..., tuple[bytes, int]]:
            return _output_callback(stream, connect(stream.format))

        return self._open("output", pcm, formats, callback_of, sink)

    def _open(
        self,
        way: Literal["input", "output"],
        pcm: str,
        formats: Sequence[StreamFormat],
        callback_of: Callable[[PortAudioStream], Callable[..., Any]],
        server_name: str | None,
    ) -> PortAudioStream:
        with self._lock:
            index = self._index_of(pcm, way)
            for form in formats:
                stream = PortAudioStream(form, self._forget)
                try:
                    with _server_device(way, server_name):
                        stream._stream = self._library.open(
                            rate=form.rate_hz,
                            channels=form.channels,
                            format=self._module.paFloat32,
                            frames_per_buffer=form.block,
                            stream_callback=callback_of(stream),
                            **{way: True, f"{way}_device_index": index},
                        )
                except OSError as error:
                    if error.args and error.args[0] in {_BAD_RATE, _BAD_CHANNELS}:
                        continue
                    raise DeviceFaultError(
                        f"{pcm} cannot be opened ({error.args[-1]}); another program may hold it, or it was unplugged"
                    ) from None
                latency = stream._stream.get_input_latency if way == "input" else stream._stream.get_output_latency
                stream.latency_s = float(latency())
                self._streams.add(stream)
                return stream
        tried = ", ".join(f"{form.rate_hz} Hz x {form.channels}" for form in formats)
        raise DeviceFaultError(f"{pcm} takes none of the formats that Wren can use ({tried})")

    def _index_of(self, pcm: str, way: str) -> int:
        for attempt in range(2):
            self._start()
            for found in self._list():
                if found.name == pcm and (found.inputs if way == "input" else found.outputs):
                    return found.index
            if attempt == 0:
                self.rescan()
        raise NoDeviceError(f"{pcm} is not there; plug it in, or see `wren devices` for what is")

    def _list(self) -> Iterator[Pcm]:
        library = self._library
        infos = [library.get_device_info_by_index(i) for i in range(library.get_device_count())]
        apis = {info["hostApi"]: library.get_host_api_info_by_index(info["hostApi"])["type"] for info in infos}
        for info in infos:
            if apis[info["hostApi"]] == _JACK_TYPE:  # only there while a JACK server runs
                name, title = JACK_PREFIX + str(info["name"]), f"{info['name']}, by JACK"
            elif _ALSA_TYPE in apis.values() and apis[info["hostApi"]] != _ALSA_TYPE:
                continue
            else:
                name, title = _stable_name(str(info["name"]))
            yield Pcm(int(info["index"]), name, title, int(info["maxInputChannels"]), int(info["maxOutputChannels"]))

    def _start(self) -> None:
        if self._library is not None:
            return
        try:
            import pyaudio
        except ImportError as error:
            raise NoDeviceError(
                f"sound needs PortAudio, which is not installed ({error}); run `make setup`, or install libportaudio2"
            ) from None
        quieten()
        if not alsa_is_configured():
            raise NoDeviceError("ALSA's configuration is missing or broken; reinstall libasound2-data")
        # Before it looks: what changes while it does is found the next time.
        seen, now_s = landscape(), time.monotonic()
        if self._seen and seen != self._seen:
            self._changed_s = now_s
        self._seen, self._looked_s = seen, now_s
        self._module, self._library = pyaudio, pyaudio.PyAudio()

    def _may_find(self) -> bool:
        """Whether looking around may find what was not seen the last time."""
        return self._has_changed() or time.monotonic() - self._looked_s >= LOOK_AGAIN_S

    def _has_changed(self) -> bool:
        """Whether a card or a server has come or gone, or had just come the last time."""
        settled_s = self._changed_s + SETTLED_S
        return landscape() != self._seen or self._looked_s < settled_s <= time.monotonic()

    def _stop(self) -> None:
        if self._library is not None:
            self._library.terminate()
            self._library = None

    def _forget(self, stream: PortAudioStream) -> None:
        # Without the lock: it may be held by whoever waits for this stream to close.
        self._streams.discard(stream)


def _input_callback(stream: PortAudioStream, take: Take) -> Callable[..., tuple[None, int]]:
    go_on, abort = 0, 2

    def callback(data: bytes, _frames: int, times: Mapping[str, float], _status: int) -> tuple[None, int]:
        now_s = time.monotonic()
        if stream.closing:
            return None, abort
        stream.last_block_s = now_s
        stream.thread_id = stream.thread_id or threading.get_native_id()
        try:
            take(np.frombuffer(data, dtype=np.float32), now_s, times["current_time"] - times["input_buffer_adc_time"])
        except Exception as error:  # noqa: BLE001 - PortAudio's thread must not see it; the owner reads it
            stream.fault = f"{type(error).__name__}: {error}"
            return None, abort
        return None, go_on

    return callback


def _output_callback(stream: PortAudioStream, give: Give) -> Callable[..., tuple[bytes, int]]:
    go_on, abort, underflow = 0, 2, 4
    silence = bytes(4 * stream.format.block * stream.format.channels)

    def callback(_data: None, frames: int, times: Mapping[str, float], status: int) -> tuple[bytes, int]:
        if stream.closing:
            return silence, abort
        stream.last_block_s = time.monotonic()
        stream.thread_id = stream.thread_id or threading.get_native_id()
        try:
            data = give(frames, times["output_buffer_dac_time"] - times["current_time"], bool(status & underflow))
        except Exception as error:  # noqa: BLE001 - as above
            stream.fault = f"{type(error).__name__}: {error}"
            return silence, abort
        return data, go_on

    return callback


@contextmanager
def _server_device(way: str, name: str | None) -> Iterator[None]:
    """Name the sound server's device for the next stream: its client library reads these, PortAudio cannot say it."""
    if name is None:
        yield
        return
    variable = "PULSE_SOURCE" if way == "input" else "PULSE_SINK"
    before = os.environ.get(variable)
    os.environ[variable] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _stable_name(name: str) -> tuple[str, str]:
    """(stable name, title): a card's number depends on the order of plugging, its id does not."""
    match = _HARDWARE.match(name)
    if match is None:
        return name, name
    try:
        card = (CARDS / f"card{match['card']}" / "id").read_text(encoding="utf-8").strip()
    except OSError:
        card = match["card"]
    return f"hw:CARD={card},DEV={match['device']}", match["title"]


_portaudio: Final = PortAudio()


def portaudio() -> PortAudio:
    """The process's one PortAudio; nothing is loaded before it is used."""
    return _portaudio
