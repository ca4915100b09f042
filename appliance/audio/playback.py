"""The loudspeaker as a session sees it: pieces of a reply in, `post` when the last sample has been heard.

Three hands: the session's thread queues pieces, the player's own thread resamples them into a ring, the device's
callback takes them out of it. While the speaker is unplugged time goes on without it, so that no session waits
for ever for the end of a reply that nobody hears.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from appliance.audio.adaptive import PLAYBACK, DepthController, DepthSettings
from appliance.audio.blocks import SPEAKER_BLOCKS, BlockLadder, KeepBlock
from appliance.audio.clock import Envelope
from appliance.audio.devices import Device, find_device, stream_formats
from appliance.audio.ducking import Ducking
from appliance.audio.feed import ReplyFeed
from appliance.audio.frame import Samples
from appliance.audio.frontend.played import PlayedTap
from appliance.audio.keeper import Keeper, OpenStream, StateListener
from appliance.audio.mixer import MAX_BLOCK, Mixer, volume_gain
from appliance.audio.portaudio import Give, PortAudio, StreamFormat, portaudio
from appliance.audio.sounds import Sound, sound_samples
from appliance.audio.spsc import Doorbell

__all__ = ["DevicePlayer", "PlayerSettings", "PlayerStats"]

_LOG = logging.getLogger(__name__)

BUSY_S: Final = 0.05
LOST_STEP_S: Final = 0.02
IDLE_S: Final = 0.25
REST_S: Final = 10.0
"""Silence after which the callbacks are stopped (they take 3 to 5 % of a core to play it). Long enough that between
a question and the next nothing is stopped and started."""
MAX_DELAY_S: Final = 2.0
"""A driver that says a sample is heard later than this says nonsense."""
_DEFAULT_RATE_HZ: Final = 48_000


@dataclass(frozen=True, slots=True)
class PlayerSettings:
    """How a speaker is played."""

    volume: float = 60.0
    """0..100, as it is perceived; 0 is silence."""
    block: int = 480
    """Sample frames in a block to begin with (`probe_block` finds the smallest that works); grows where that is too
    small for the machine."""
    depth: DepthSettings = PLAYBACK
    """Sound that must be there before a reply starts, or goes on after an underrun: follows how replies come."""
    lead_in_s: float = 0.0
    """Faint noise before a sound after a pause, for a sink that wakes slowly (Bluetooth, some USB); 0: none."""
    keep_awake: bool = False
    """Faint noise all the time instead, so that such a sink never sleeps."""


@dataclass(frozen=True, slots=True)
class PlayerStats:
    """What came of a speaker so far."""

    underruns: int
    """Times that a reply was not there in time."""
    device_underruns: int
    """Times that the device ran dry while something sounded: the block is too small for this machine."""
    refused_s: float
    """Speech refused because too much was waiting."""
    times_lost: int
    format: StreamFormat | None
    """Of the stream that runs; None while there is none."""
    delay_s: float
    """From the callback to the ear, as the driver last said."""
    depth_s: float
    """Sound that must be there before a reply starts, as it is by now."""
    rtf: float | None
    """Real-time factor at which pieces of replies came; None before any did."""


class DevicePlayer:
    """A speaker that comes back when it is plugged in again; a session's `Player`.

    `post` is called with a reply's generation on the player's thread. `device` may be a name, or None for the default,
    which is then looked up at every opening.
    """

    def __init__(
        self,
        device: Device | str | None,
        post: Callable[[int], None],
        on_state: StateListener | None = None,
        *,
        settings: PlayerSettings = PlayerSettings(),
        ducking: Ducking | None = None,
        tap: PlayedTap | None = None,
        keep_block: KeepBlock | None = None,
        host: PortAudio | None = None,
    ) -> None:
        """`ducking` says who is to be quieter just now; `tap` gets what is really played; `keep_block` is told of a
        larger block that the device turned out to need."""
        self._device = device
        self._ducking = ducking
        self._tap = tap
        self._alarm: Sound | None = None
        self._post = post
        self._on_state = on_state
        self._settings = settings
        self._host = host or portaudio()
        self._ladder = BlockLadder(settings.block, SPEAKER_BLOCKS)
        self._keep_block = keep_block
        self.opened_name = ""
        """Stable name of the device that was opened last."""
        self._used_s = time.monotonic()
        self._anew = False
        self._dry_seen = 0
        self._volume = settings.volume
        self._bell = Doorbell()
        # Held for a few statements at a time, and never by the callback.
        self._lock = threading.Lock()
        self._depth = DepthController(settings.depth)
        self._mixer = self._make_mixer(_DEFAULT_RATE_HZ)
        self._feed: ReplyFeed | None = None
        self._keeper: Keeper | None = None
        self._format: StreamFormat | None = None
        self._stream: OpenStream | None = None
        self._server_name: str | None = None
        self._lost_since_s: float | None = None
        self._delay_s = 0.0
        self._underruns = self._dry = self._times_lost = 0
        self._refused_s = 0.0

    @property
    def name(self) -> str:
        """What was asked for."""
        return self._device.name if isinstance(self._device, Device) else self._device or "default"

    def start(self) -> DevicePlayer:
        """Open the speaker, and keep it open; returns at once, `on_state` tells what became of it."""
        if self._keeper is None:
            self._keeper = Keeper("speaker", self.name, self, self._on_state, self._bell)
            self._keeper.start()
        return self

    def close(self) -> bool:
        """Silence, and let go of the device."""
        self.stop()
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return True
        closed = keeper.close()
        self._times_lost += keeper.times_lost
        self._format = self._stream = None
        return closed

    # ---- a session's player

    def begin(self, generation: int, rate_hz: int) -> None:
        """A reply starts with the next `write`; what still sounds of another is faded out."""
        with self._lock:
            self._retire()
            feed = ReplyFeed(generation, rate_hz, self._depth.target_s)
            self._mixer.play(feed.aim(self._mixer.rate_hz))
            self._feed = feed

    def write(self, samples: Samples) -> None:
        """The next piece, [n] float32; never waits."""
        feed = self._feed
        if feed is None:
            return
        self._mind_pace(feed, samples.size)
        if feed.write(samples):
            self._bell.ring()
            return
        if not self._refused_s:
            _LOG.warning("speaker %s: too much speech waits to be played; the rest is left out", self.name)
        self._refused_s += samples.size / feed.rate_hz

    def finish(self) -> None:
        """No more pieces: `post` when the last sample has been heard."""
        feed = self._feed
        if feed is not None:
            feed.finish()
            self._bell.ring()

    def stop(self) -> None:
        """Silence within a few blocks, faded; nothing is posted."""
        with self._lock:
            self._retire()
            self._mixer.play(None)

    # ---- beyond a session

    def play_sound(self, sound: Sound) -> None:
        """An acknowledgement, over a reply if there is one; at once."""
        with self._lock:
            self._mixer.play_sound(sound_samples(sound, self._mixer.rate_hz))
        self._bell.ring()

    def play_alarm(self, sound: Sound | None) -> None:
        """A sound again and again, under a reply if there is one; None ends it."""
        with self._lock:
            self._alarm = sound
            self._mixer.play_alarm(None if sound is None else sound_samples(sound, self._mixer.rate_hz))
        self._bell.ring()

    def prepare(self, seconds: float = 5.0) -> None:
        """Something may be said soon: no rest for the device, and where its sink wakes slowly, wake it."""
        self._used_s = time.monotonic() + seconds
        if self._settings.lead_in_s > 0.0:
            self._mixer.wake_sink(seconds)
        self._bell.ring()

    @property
    def volume(self) -> float:
        """0..100, as it is perceived; a change is heard at once, without a click."""
        return self._volume

    @volume.setter
    def volume(self, volume: float) -> None:
        self._volume = min(max(volume, 0.0), 100.0)
        self._mixer.set_gain(volume_gain(self._volume))

    @property
    def resting(self) -> bool:
        """Whether the device plays nothing, not even silence, until something is said."""
        return self._stream is not None and self._stream.resting

    @property
    def sounding(self) -> bool:
        """Whether anything is being played, or waits to be."""
        return self._mixer.sounding

    def stats(self) -> PlayerStats:
        """Counts since it was made; any thread."""
        feed, keeper = self._feed, self._keeper
        return PlayerStats(
            underruns=self._underruns + (0 if feed is None else feed.queued.underruns),
            device_underruns=self._dry,
            refused_s=self._refused_s,
            times_lost=self._times_lost + (0 if keeper is None else keeper.times_lost),
            format=self._format,
            delay_s=self._delay_s,
            depth_s=self._depth.target_s,
            rtf=self._depth.rtf,
        )

    # ---- the keeper's tasks, on its thread

    @property
    def wanted(self) -> bool:
        """Whether something sounds, or did not long ago, or may soon."""
        return time.monotonic() - self._used_s < REST_S

    def resumed(self) -> None:
        """The callbacks go on: how much was played says no more what time it is."""
        self._anew = True

    @property
    def server_name(self) -> str | None:
        """What the sound server was asked for."""
        return self._server_name

    def open(self) -> OpenStream:
        """Open the device as it is found now."""
        device = self._device
        if not isinstance(device, Device):
            device = find_device("speaker", device, self._host)
        self._server_name, self.opened_name = device.server_name, device.name
        formats = stream_formats(device, self._ladder.block)
        stream = self._host.open_output(device.pcm, formats, self._connect, device.server_name)
        self._delay_s = self._delay_s or stream.latency_s
        self._format = stream.format
        self._lost_since_s = None
        self._stream = stream
        return stream

    def serve(self) -> float:
        """Fill the ring; tell of the end of a reply when it has been heard."""
        if self._feed is not None or self._mixer.sounding or self._settings.keep_awake:
            self._used_s = max(self._used_s, time.monotonic())
        self._mind_underruns()
        feed = self._feed
        if feed is None:
            return IDLE_S
        feed.fill()
        self._mind_gaps(feed)
        done_s = feed.queued.done_s
        if done_s is None:
            return BUSY_S
        wait_s = done_s - time.monotonic()
        if wait_s > 0.0:
            return wait_s
        with self._lock:
            still = self._feed is feed  # else it was stopped in the meantime
            if still:
                self._retire()
        if still:
            self._post(feed.generation)
        return IDLE_S

    def serve_lost(self) -> float:
        """Let time go on: what would have been played is thrown away as fast as it would have been played."""
        self._format = self._stream = None
        now_s = time.monotonic()
        missed = round((now_s - (self._lost_since_s or now_s)) * self._mixer.rate_hz)
        self._lost_since_s = now_s
        while missed > 0 and self._mixer.sounding:
            self.serve()
            self._mixer.render(min(missed, MAX_BLOCK), now_s)
            missed -= MAX_BLOCK
        wait_s = self.serve()
        return min(LOST_STEP_S, wait_s) if self._mixer.sounding else wait_s

    # ---- helpers

    def _connect(self, form: StreamFormat) -> Give:
        with self._lock:
            if form.rate_hz != self._mixer.rate_hz:
                self._mixer = self._make_mixer(form.rate_hz)
                if self._feed is not None:
                    # What the old ring held is lost: half a second at most, in a device that was away.
                    self._mixer.play(self._feed.aim(form.rate_hz))
        mixer, channels = self._mixer, form.channels
        # A stream that is opened begins like one that goes on after a rest: time went by that the mixer knows not of.
        self._anew = True
        clock = Envelope()
        taken = 0
        wide = np.zeros((MAX_BLOCK, channels), dtype=np.float32)

        def give(frames: int, delay_s: float, dry: bool) -> bytes:
            if frames > MAX_BLOCK:
                half = give(frames // 2, delay_s, dry)
                return half + give(frames - frames // 2, delay_s, False)
            nonlocal taken, clock
            now_s = time.monotonic()
            if self._anew:
                self._anew, taken, clock = False, 0, Envelope()
                mixer.rested()
            if 0.0 < delay_s < MAX_DELAY_S:
                self._delay_s = delay_s
            # Not all that a device was short of is reported; the clock shows it too.
            short_s = clock.push(now_s, now_s - taken / form.rate_hz)
            taken += frames
            if (dry or short_s > 0.0) and mixer.sounding:
                self._dry += 1
            mono = mixer.render(frames, now_s + self._delay_s)
            if channels == 1:
                return mono.tobytes()
            wide[:frames] = mono[:, np.newaxis]
            return wide[:frames].tobytes()

        return give

    def _make_mixer(self, rate_hz: int) -> Mixer:
        settings = self._settings
        tap = None if self._tap is None else self._tap.connect(rate_hz)
        mixer = Mixer(
            rate_hz,
            self._bell,
            lead_in_s=settings.lead_in_s,
            keep_awake=settings.keep_awake,
            ducking=self._ducking,
            tap=tap,
        )
        mixer.set_gain(volume_gain(self._volume))
        mixer.play_alarm(None if self._alarm is None else sound_samples(self._alarm, rate_hz))
        return mixer

    def _mind_underruns(self) -> None:
        """Larger blocks where these are too small; while nothing sounds, for opening again would be heard."""
        while self._dry_seen < self._dry:
            self._dry_seen += 1
            if self._ladder.fault(time.monotonic()):
                _LOG.warning("speaker %s: cannot keep up; blocks of %d from now on", self.name, self._ladder.block)
                if self._keep_block is not None:
                    self._keep_block(self.opened_name, self._ladder.block)
        form, keeper = self._format, self._keeper
        if form is not None and form.block != self._ladder.block and keeper is not None and not self._mixer.sounding:
            keeper.reopen()

    def _mind_pace(self, feed: ReplyFeed, samples: int) -> None:
        now_s = time.monotonic()
        came = feed.pace.piece(now_s, samples)
        if came is not None:
            late_s, rtf = came
            with self._lock:
                self._depth.observe(now_s, late_s)
                self._depth.observe_rtf(now_s, rtf)
                feed.deepen(self._depth.target_s)

    def _mind_gaps(self, feed: ReplyFeed) -> None:
        """After an underrun: deeper at once, for the rest of this reply too."""
        with self._lock:
            while feed.underruns_told < feed.queued.underruns:
                feed.underruns_told += 1
                self._depth.underrun(time.monotonic())
                feed.deepen(self._depth.target_s)

    def _retire(self) -> None:
        """Forget the reply that is; the lock is held."""
        if self._feed is not None:
            self._underruns += self._feed.queued.underruns
            self._feed = None
