"""Which buffer size does a device stand? Tried, from small to large: drivers do not report what they lose.

A busy thread runs beside the trial: in life the callback waits for the interpreter as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.audio.blocks import MICROPHONE_BLOCKS, SPEAKER_BLOCKS
from appliance.audio.devices import Device, Kind, stream_formats
from appliance.audio.frame import FRAME_S, Samples
from appliance.audio.keeper import FIRST_BLOCK_S
from appliance.audio.portaudio import Give, PortAudio, PortAudioStream, StreamFormat, Take, portaudio
from appliance.errors import DeviceFaultError

__all__ = ["BlockProbe", "BlockTrial", "probe_block"]

TRIAL_S: Final = 1.2
SETTLE_S: Final = 0.4
"""Buffers fill and servers find their pace; what happens until then says nothing."""
EDGE_S: Final = 0.25
"""The clock is read off the best moment of the first and of the last so many seconds."""
MIN_BLOCK_S: Final[Mapping[Kind, float]] = {"microphone": FRAME_S, "speaker": 0.0025}
"""Shorter blocks are not tried. A microphone's come all day long (100 a second take some 5 % of a core), and it is
heard by frames anyway; a speaker's come only while it plays, and 750 a second took a quarter of a core."""
MAX_LOST_S: Final = 0.004
"""More than that missing within a second is a loss and no jitter."""
_BUSY_S: Final = 0.004
_REST_S: Final = 0.004


@dataclass(frozen=True, slots=True)
class BlockTrial:
    """One size tried."""

    block: int
    lost_s: float
    """Sound that was lost (microphone) or not there in time (speaker), per the clock."""
    jitter_s: float
    """Largest lateness of a callback."""
    reported: int
    """Underruns that the driver reported."""
    ok: bool


@dataclass(frozen=True, slots=True)
class BlockProbe:
    """What came of it."""

    device: str
    block: int
    """The smallest size that lost nothing, else the largest tried."""
    trials: tuple[BlockTrial, ...]


def probe_block(
    device: Device, sizes: Sequence[int] | None = None, *, host: PortAudio | None = None, busy: bool = True
) -> BlockProbe:
    """Try sizes in order and stop at the first that works: a second and a half each. Plays silence on a speaker.

    Raises `NoDeviceError`, `DeviceFaultError`. Nothing else may use the device meanwhile.
    """
    if sizes is None:
        all_sizes = MICROPHONE_BLOCKS if device.kind == "microphone" else SPEAKER_BLOCKS
        sizes = [size for size in all_sizes if size >= MIN_BLOCK_S[device.kind] * device.rate_hz]
    stop = threading.Event()
    worker = threading.Thread(target=_keep_busy, args=(stop,), name="probe-load", daemon=True)
    if busy:
        worker.start()
    trials: list[BlockTrial] = []
    try:
        for size in sizes:
            trials.append(_try(device, size, host or portaudio()))
            if trials[-1].ok:
                break
    finally:
        stop.set()
        if busy:
            worker.join()
    return BlockProbe(device.name, trials[-1].block, tuple(trials))


class _Count:
    """Callback times and sample counts of one trial."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int]] = []
        self.reported = 0
        self.done = threading.Event()

    def add(self, now_s: float, frames: int) -> None:
        self.calls.append((now_s, frames))
        if now_s - self.calls[0][0] > SETTLE_S + TRIAL_S:
            self.done.set()

    def take_of(self, form: StreamFormat) -> Take:
        def take(samples: Samples, arrival_s: float, _age_s: float) -> None:
            self.add(arrival_s, samples.size // form.channels)

        return take

    def give_of(self, form: StreamFormat) -> Give:
        silence = bytes(4 * form.channels)

        def give(frames: int, _delay_s: float, dry: bool) -> bytes:
            now_s = time.monotonic()
            self.add(now_s, frames)
            self.reported += dry and now_s - self.calls[0][0] > SETTLE_S
            return silence * frames

        return give


def _try(device: Device, block: int, host: PortAudio) -> BlockTrial:
    count = _Count()
    formats = stream_formats(device, block)
    stream: PortAudioStream
    if device.kind == "microphone":
        stream = host.open_input(device.pcm, formats, count.take_of, device.server_name)
    else:
        stream = host.open_output(device.pcm, formats, count.give_of, device.server_name)
    try:
        count.done.wait(FIRST_BLOCK_S + SETTLE_S + TRIAL_S)
    finally:
        stream.close()
    return _judge(device, block, stream.format.rate_hz, count)


def _judge(device: Device, block: int, rate_hz: int, count: _Count) -> BlockTrial:
    if not count.done.is_set():
        raise DeviceFaultError(f"{device.name} was opened, but gives no steady stream of blocks of {block}")
    begin_s = count.calls[0][0] + SETTLE_S
    lateness: list[tuple[float, float]] = []
    samples = 0
    for now_s, frames in count.calls:
        if now_s >= begin_s:
            lateness.append((now_s, now_s - samples / rate_hz))
        samples += frames
    end_s = lateness[-1][0]
    first = min(late for at, late in lateness if at < begin_s + EDGE_S)
    last = min(late for at, late in lateness if at > end_s - EDGE_S)
    lost_s = max(0.0, last - first)
    jitter_s = max(late for _, late in lateness) - first
    return BlockTrial(block, lost_s, jitter_s, count.reported, ok=lost_s <= MAX_LOST_S and not count.reported)


def _keep_busy(stop: threading.Event) -> None:
    """Half of the interpreter's time, in slices as long as it may be held before others get their turn."""
    while not stop.wait(_REST_S):
        until_s = time.monotonic() + _BUSY_S
        while time.monotonic() < until_s:
            pass
