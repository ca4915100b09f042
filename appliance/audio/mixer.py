"""What the loudspeaker plays next: a reply, a small sound over it, an alarm under it, else silence or a faint noise.

`render` runs in the audio callback: no lock, no logging, nothing allocated that grows. Everybody else only swaps a
reference, writes into a reply's ring, or sets a number; the callback looks at them once a block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from appliance.audio.ducking import Ducking, Layer
from appliance.audio.frame import Samples
from appliance.audio.frontend.played import MixerTap
from appliance.audio.spsc import Doorbell, SampleRing

__all__ = ["MAX_BLOCK", "Mixer", "QueuedReply", "volume_gain"]

MAX_BLOCK: Final = 8192
"""Sample frames rendered at once; a device that wants more gets it in pieces."""
FADE_S: Final = 0.010
"""A stop fades this long: shorter clicks, longer is heard as not stopping."""
UNDERRUN_FADE_S: Final = 0.003
GAIN_RAMP_S: Final = 0.030
SLEEPY_S: Final = 2.0
"""After this much digital silence a sink may have gone to sleep."""
NOISE_DBFS: Final = -75.0
"""Keeps a sink awake: above the last bit of 16, and 55 dB below quiet speech."""
_NOISE_S: Final = 1.0


def volume_gain(volume: float) -> float:
    """Gain of a volume 0..100. The cube, as sound servers do: half the volume sounds about half as loud (-18 dB)."""
    return (min(max(volume, 0.0), 100.0) / 100.0) ** 3


class QueuedReply:
    """One reply on its way out: the feeder writes its ring, the callback reads it."""

    def __init__(self, generation: int, ring_samples: int, prebuffer_samples: int) -> None:
        self.generation = generation
        self.ring = SampleRing(ring_samples)
        self.end: int | None = None
        """Ring index just after the last sample; None while more may come. Set by the feeder."""
        self.done_s: float | None = None
        """Monotonic time at which the last sample is heard; set by the callback."""
        self.underruns = 0
        """Times that the next piece came too late; counted by the callback."""
        self.started = False
        self.prebuffer = prebuffer_samples
        """Samples that must be there before it sounds, or goes on after an underrun; the feeder may change it."""
        self.waiting = True
        self.torn = False

    @property
    def ready(self) -> bool:
        """Whether there is enough to go on with."""
        return not self.waiting or self.end is not None or self.ring.available >= self.prebuffer


class Mixer:
    """See the module. `bell` is rung when a reply has ended."""

    def __init__(
        self,
        rate_hz: int,
        bell: Doorbell,
        *,
        lead_in_s: float,
        keep_awake: bool,
        ducking: Ducking | None = None,
        tap: MixerTap | None = None,
    ) -> None:
        """`ducking` is asked for each layer's gain once a block; `tap` gets what is played."""
        self.rate_hz = rate_hz
        self._bell = bell
        self._ducking = ducking
        self._tap = tap
        self._lead_in = round(lead_in_s * rate_hz)
        self._sleepy = round(SLEEPY_S * rate_hz)
        self.keep_awake = keep_awake
        self._reply: QueuedReply | None = None
        self._sound: Samples | None = None
        self._alarm: Samples | None = None
        self._gain_wanted = 1.0
        self._awake_until = 0
        # From here on the callback's own.
        self._out = np.zeros(MAX_BLOCK, dtype=np.float32)
        self._part = np.zeros(MAX_BLOCK, dtype=np.float32)
        self._steps = np.arange(1, MAX_BLOCK + 1, dtype=np.float32)
        self._fade = np.linspace(1.0, 0.0, round(FADE_S * rate_hz), dtype=np.float32)
        self._tear = np.linspace(1.0, 0.0, round(UNDERRUN_FADE_S * rate_hz), dtype=np.float32)
        self._noise = _noise(rate_hz)
        self._noise_at = 0
        self._current: QueuedReply | None = None
        self._fading: QueuedReply | None = None
        self._faded = 0
        self._playing_sound: Samples | None = None
        self._sound_at = 0
        self._gain = 1.0
        self._ducked = dict.fromkeys(Layer, 1.0)
        self._ringing: Samples | None = None
        self._alarm_at = 0
        self._quiet = True
        self._rendered = 0
        self._awake = 0
        self._silent = self._sleepy

    # ---- from any one controlling thread

    def play(self, reply: QueuedReply | None) -> None:
        """From the next block on, this reply; what sounded before is faded out. None: only that."""
        self._reply = reply

    def play_sound(self, samples: Samples) -> None:
        """From the next block on, [n] float32 at the mixer's rate, over whatever else sounds."""
        self._sound = samples

    def play_alarm(self, samples: Samples | None) -> None:
        """From the next block on, [n] float32 at the mixer's rate, again and again, until called with None."""
        self._alarm = samples

    def set_gain(self, gain: float) -> None:
        """Move to a gain smoothly."""
        self._gain_wanted = gain

    def wake_sink(self, seconds: float) -> None:
        """Faint noise for so long, unless something sounds."""
        self._awake_until = self._rendered + round(seconds * self.rate_hz)

    @property
    def sounding(self) -> bool:
        """Whether anything is playing or about to."""
        return (
            (self._reply is not None and self._reply.done_s is None)
            or self._current is not self._reply
            or self._fading is not None
            or self._sound is not None
            or self._playing_sound is not None
            or self._alarm is not None
            or self._ringing is not None
        )

    # ---- from the callback

    def render(self, frames: int, heard_s: float) -> Samples:
        """The next [frames] float32, full scale ±1, the first of which is heard at `heard_s`. Valid until called again.

        `frames` at most `MAX_BLOCK`.
        """
        out = self._out[:frames]
        out.fill(0.0)
        self._take_orders()
        fading = self._fading is not None
        if fading:
            self._fade_out(out)
        ready = self._awake >= self._lead_in
        sounding = fading
        if self._current is not None and self._current.done_s is None and ready:
            sounding |= self._add_reply(self._current, out, heard_s)
        if sounding:
            self._duck(Layer.REPLY, out)
        if self._playing_sound is not None and ready:
            self._add_sound(out)
            sounding = True
        if self._ringing is not None and ready:
            self._add_alarm(out)
            sounding = True
        audible = sounding
        if sounding:
            if self._quiet:
                self._gain = self._gain_wanted  # nobody hears the jump
            self._apply_gain(out)
            np.clip(out, -1.0, 1.0, out=out)
        self._quiet = not sounding
        if self._quiet and self._wants_noise(ready):
            self._add_noise(out)
            sounding = True
        self._rendered += frames
        if self._tap is not None:
            self._tap.take(out, heard_s, sounding=audible)
        if sounding:
            self._awake += frames
            self._silent = 0
        else:
            self._silent += frames
            if self._silent >= self._sleepy:
                self._awake = 0
        return out

    def rested(self) -> None:
        """Callback: the device played nothing for a while, or was away: a sink that sleeps does so by now, and the
        tap's clock begins anew."""
        self._awake, self._silent = 0, self._sleepy
        if self._tap is not None:
            self._tap.rested()

    def _take_orders(self) -> None:
        wanted = self._reply
        if wanted is not self._current:
            old = self._current
            if old is not None and old.started and old.done_s is None and not old.waiting:
                self._fading, self._faded = old, 0
            self._current = wanted
        sound = self._sound
        if sound is not None:
            self._playing_sound, self._sound_at, self._sound = sound, 0, None
        if self._alarm is not None and self._ringing is not self._alarm:
            self._ringing, self._alarm_at = self._alarm, 0

    def _fade_out(self, out: Samples) -> None:
        assert self._fading is not None
        part = self._part[: min(out.size, self._fade.size - self._faded)]
        count = self._fading.ring.read_into(part)
        part[:count] *= self._fade[self._faded : self._faded + count]
        out[:count] += part[:count]
        self._faded += part.size
        if self._faded >= self._fade.size or count < part.size:
            self._fading = None

    def _add_reply(self, reply: QueuedReply, out: Samples, heard_s: float) -> bool:
        """Whether any of it sounded."""
        if not reply.ready:
            return False
        end = reply.end  # before the ring is read: what the feeder sets later is for the next block
        # A reply about to run dry is ended softly while there is still something to fade.
        dry = end is None and reply.ring.available < out.size + self._tear.size
        part = self._part[: out.size]
        count = reply.ring.read_into(part)
        part = part[:count]
        if reply.torn and count:
            rise = min(count, self._tear.size)
            part[:rise] *= self._tear[self._tear.size - rise :][::-1]
        reply.waiting = reply.torn = dry
        if dry:
            fall = min(count, self._tear.size)
            part[count - fall :] *= self._tear[self._tear.size - fall :]
            reply.underruns += 1
        ended = end is not None and reply.ring.taken >= end
        out[:count] += part
        reply.started = True
        if ended:
            reply.done_s = heard_s + count / self.rate_hz
            self._bell.ring()
        return count > 0

    def _add_sound(self, out: Samples) -> None:
        sound = self._playing_sound
        assert sound is not None
        part = sound[self._sound_at : self._sound_at + out.size]
        out[: part.size] += part
        self._sound_at += part.size
        if self._sound_at >= sound.size:
            self._playing_sound = None

    def _add_alarm(self, out: Samples) -> None:
        alarm, part = self._ringing, self._part[: out.size]
        assert alarm is not None
        done = 0
        while done < part.size:
            piece = alarm[self._alarm_at : self._alarm_at + part.size - done]
            part[done : done + piece.size] = piece
            done += piece.size
            self._alarm_at = (self._alarm_at + piece.size) % alarm.size
        if self._alarm is None:
            fall = min(part.size, self._fade.size)
            part[:fall] *= np.linspace(1.0, 0.0, fall, dtype=np.float32)
            part[fall:] = 0.0
            self._ringing = None
        self._duck(Layer.ALARM, part)
        out += part

    def _duck(self, layer: Layer, part: Samples) -> None:
        """As others ask for; a change lasts one block at least and `GAIN_RAMP_S` for the whole way."""
        wanted = 1.0 if self._ducking is None else self._ducking.gain(layer)
        gain = self._ducked[layer]
        if gain != wanted:
            most = part.size / (GAIN_RAMP_S * self.rate_hz)
            reached = min(max(wanted, gain - most), gain + most)
            self._ducked[layer] = reached
            part *= np.linspace(gain, reached, part.size, dtype=np.float32)
        elif gain != 1.0:
            part *= np.float32(gain)

    def _apply_gain(self, out: Samples) -> None:
        gain, wanted = self._gain, self._gain_wanted
        if gain == wanted:
            if gain != 1.0:
                out *= np.float32(gain)
            return
        step = (1.0 if wanted > gain else -1.0) / (GAIN_RAMP_S * self.rate_hz)
        ramp = self._part[: out.size]
        np.multiply(self._steps[: out.size], np.float32(step), out=ramp)
        ramp += np.float32(gain)
        np.clip(ramp, min(gain, wanted), max(gain, wanted), out=ramp)
        out *= ramp
        self._gain = wanted if abs(wanted - gain) <= abs(step) * out.size else float(ramp[-1])

    def _wants_noise(self, ready: bool) -> bool:
        if self.keep_awake or self._rendered < self._awake_until:
            return True
        waits = self._playing_sound is not None or self._ringing is not None
        waits |= self._current is not None and self._current.done_s is None
        return waits and not ready

    def _add_noise(self, out: Samples) -> None:
        at = self._noise_at % (self._noise.size - MAX_BLOCK)
        out += self._noise[at : at + out.size]
        self._noise_at = at + out.size


def _noise(rate_hz: int) -> Samples:
    generator = np.random.default_rng(1)
    level = np.float32(10.0 ** (NOISE_DBFS / 20.0))
    noise: Samples = generator.standard_normal(round(_NOISE_S * rate_hz) + MAX_BLOCK, dtype=np.float32) * level
    return noise
