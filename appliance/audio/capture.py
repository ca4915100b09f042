"""The microphone: a device's blocks become 16 kHz frames with capture times, for as long as it is open.

The callback copies a block into a ring and rings a bell; everything else is done on the microphone's own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.audio.blocks import MICROPHONE_BLOCKS, BlockLadder, KeepBlock
from appliance.audio.devices import Device, find_device, stream_formats
from appliance.audio.frame import Frame, Samples
from appliance.audio.framing import CaptureFramer, Gap, GapListener
from appliance.audio.keeper import Keeper, OpenStream, StateListener
from appliance.audio.portaudio import PortAudio, StreamFormat, Take, portaudio
from appliance.audio.spsc import BlockRing

__all__ = ["DEFAULT_BLOCK", "CaptureStats", "Microphone"]

_LOG = logging.getLogger(__name__)

DEFAULT_BLOCK: Final = 256
"""Where nothing was probed: 16 ms at 16 kHz."""
RING_S: Final = 2.0
"""Sound kept while the thread cannot run; more would only be heard too late."""
IDLE_S: Final = 0.25
TOGETHER_S: Final = 0.06
"""Sound that is taken together while nobody is in a hurry for it: waking our threads for each block costs more than
what they then do. An answer never waits for it: whoever has heard a wake word is in a hurry."""


@dataclass(frozen=True, slots=True)
class CaptureStats:
    """What came of a microphone so far."""

    frames: int
    gaps: int
    lost_s: float
    """Sound lost in gaps, all causes."""
    overruns: int
    """Blocks dropped because our thread was too slow."""
    times_lost: int
    """Times that the device was lost."""
    format: StreamFormat | None
    """Of the stream that runs; None while there is none."""
    jitter_s: float
    """Largest lateness of a block of late."""


class Microphone:
    """A microphone that comes back when it is plugged in again. `start` and `close` as often as you like.

    `sink` is called on the microphone's thread, frame by frame, and must return soon. `device` may be a name, or None
    for the default, which is then looked up at every opening.
    """

    def __init__(
        self,
        device: Device | str | None,
        sink: Callable[[Frame], None],
        on_state: StateListener | None = None,
        *,
        on_gap: GapListener | None = None,
        block: int = DEFAULT_BLOCK,
        channel: int | None = None,
        keep_block: KeepBlock | None = None,
        hurry: Callable[[], bool] | None = None,
        host: PortAudio | None = None,
    ) -> None:
        """`block` is the size to begin with; where sound is lost again and again the next larger one is taken, and
        `keep_block` is told, to begin with that the next time. `hurry`, asked in the callback, says whether somebody
        waits for every block; else they are taken several at a time."""
        self._device = device
        self._sink = sink
        self._on_state = on_state
        self._on_gap = on_gap
        self._ladder = BlockLadder(block, MICROPHONE_BLOCKS)
        self._keep_block = keep_block
        self._hurry = hurry
        self.opened_name = ""
        """Stable name of the device that was opened last."""
        self._host = host or portaudio()
        self._framer = CaptureFramer(channel)
        self._keeper: Keeper | None = None
        self._ring: BlockRing | None = None
        self._format: StreamFormat | None = None
        self._server_name: str | None = None
        self._frames = self._gaps = self._overruns = self._times_lost = 0
        self._lost_s = 0.0

    @property
    def name(self) -> str:
        """What was asked for."""
        return self._device.name if isinstance(self._device, Device) else self._device or "default"

    def start(self) -> Microphone:
        """Open it, and keep it open; returns at once, `on_state` tells what became of it."""
        if self._keeper is None:
            self._keeper = Keeper("microphone", self.name, self, self._on_state)
            self._keeper.start()
        return self

    def close(self) -> bool:
        """Let go of the device: when this returns True, nothing listens any more."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return True
        closed = keeper.close()
        self._times_lost += keeper.times_lost
        self._framer.close()
        self._format = None
        return closed

    def stats(self) -> CaptureStats:
        """Counts since it was made; any thread."""
        ring, keeper = self._ring, self._keeper
        return CaptureStats(
            frames=self._frames,
            gaps=self._gaps,
            lost_s=self._lost_s,
            overruns=self._overruns + (0 if ring is None else ring.overruns),
            times_lost=self._times_lost + (0 if keeper is None else keeper.times_lost),
            format=self._format,
            jitter_s=self._framer.clock.jitter_s,
        )

    # ---- the keeper's tasks, on its thread

    @property
    def wanted(self) -> bool:
        """A microphone that is open is listened to."""
        return True

    def resumed(self) -> None:
        """It never rests."""

    @property
    def server_name(self) -> str | None:
        """What the sound server was asked for."""
        return self._server_name

    def open(self) -> OpenStream:
        """Open the device as it is found now."""
        device = self._device
        if not isinstance(device, Device):
            device = find_device("microphone", device, self._host)
        self._server_name, self.opened_name = device.server_name, device.name
        formats: Sequence[StreamFormat] = stream_formats(device, self._ladder.block)
        stream = self._host.open_input(device.pcm, formats, self._connect, device.server_name)
        self._format = stream.format
        self._framer.open(stream.format.rate_hz, stream.format.channels)
        return stream

    def serve(self) -> float:
        """Blocks to frames to the sink."""
        ring = self._ring
        while ring is not None and (block := ring.read()) is not None:
            frames, gaps = self._framer.push(block)
            for gap in gaps:
                self._report(gap)
            self._frames += len(frames)
            for frame in frames:
                self._sink(frame)
        return IDLE_S

    def serve_lost(self) -> float:
        """Nothing to hear."""
        self._format = None
        return IDLE_S

    def _connect(self, form: StreamFormat) -> Take:
        ring = BlockRing(round(RING_S * form.rate_hz) * form.channels, round(RING_S * form.rate_hz / form.block) + 1)
        if self._ring is not None:
            self._overruns += self._ring.overruns
        self._ring = ring
        keeper = self._keeper
        assert keeper is not None
        bell, hurry = keeper.bell, self._hurry
        enough = round(TOGETHER_S * form.rate_hz) * form.channels
        waiting = 0

        def take(samples: Samples, arrival_s: float, age_s: float) -> None:
            nonlocal waiting
            ring.write(samples, arrival_s, age_s)
            waiting += samples.size
            if hurry is None or waiting >= enough or hurry():
                waiting = 0
                bell.ring()

        return take

    def _report(self, gap: Gap) -> None:
        if gap.cause != "closed":
            self._gaps += 1
            self._lost_s += gap.lost_s
            _LOG.warning("microphone %s: %.0f ms of sound missing (%s)", self.name, gap.lost_s * 1000, gap.cause)
            if gap.cause in {"device", "overrun"} and self._ladder.fault(gap.time_s):
                self._enlarge()
        if self._on_gap is not None:
            self._on_gap(gap)

    def _enlarge(self) -> None:
        block, keeper = self._ladder.block, self._keeper
        _LOG.warning("microphone %s: cannot keep up; blocks of %d from now on", self.name, block)
        if keeper is not None:
            keeper.reopen()
        if self._keep_block is not None:
            self._keep_block(self.opened_name, block)
