"""What the callback renders, sample by sample: no device, no thread, no clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.ducking import Cause, Ducking, Layer
from appliance.audio.frontend.played import PlayedTap
from appliance.audio.mixer import FADE_S, GAIN_RAMP_S, Mixer, QueuedReply, volume_gain
from appliance.audio.sounds import Sound, sound_samples
from appliance.audio.spsc import Doorbell

RATE = 48_000
BLOCK = 480
PREBUFFER = 960


def _mixer(lead_in_s: float = 0.0, *, keep_awake: bool = False) -> Mixer:
    return Mixer(RATE, Doorbell(), lead_in_s=lead_in_s, keep_awake=keep_awake)


def _reply(sound: np.ndarray, *, ended: bool = True) -> QueuedReply:
    reply = QueuedReply(1, RATE * 4, PREBUFFER)
    assert reply.ring.write(sound) == sound.size
    if ended:
        reply.end = reply.ring.written
    return reply


def _tone(seconds: float, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * 300 * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def _render(mixer: Mixer, blocks: int, block: int = BLOCK, start_s: float = 0.0) -> np.ndarray:
    return np.concatenate([mixer.render(block, start_s + i * block / RATE).copy() for i in range(blocks)])


STEEPEST = float(np.abs(np.diff(_tone(1.0))).max())


@given(st.lists(st.integers(1, 1500), min_size=1, max_size=30))
def test_a_reply_comes_out_gapless_and_bit_for_bit_however_the_device_asks(sizes: list[int]) -> None:
    mixer, sound = _mixer(), _tone(0.2)
    mixer.play(_reply(sound))
    out = np.concatenate([mixer.render(size, 0.0).copy() for size in sizes])
    length = min(out.size, sound.size)
    assert np.array_equal(out[:length], sound[:length])
    assert not out[length:].any()


def test_the_end_is_the_time_at_which_the_last_sample_is_heard() -> None:
    bell = Doorbell()
    mixer = Mixer(RATE, bell, lead_in_s=0.0, keep_awake=False)
    reply = _reply(_tone(0.055))
    mixer.play(reply)
    for i in range(5):
        mixer.render(BLOCK, 100.0 + i * 0.01)
        assert reply.done_s is None
    mixer.render(BLOCK, 100.05)
    assert reply.done_s == pytest.approx(100.055)
    assert bell.wait(0.0)
    assert not mixer.sounding


@pytest.mark.parametrize("block", [64, 128, 480, 1440])
def test_a_stop_is_silent_within_the_fade_and_a_block_and_does_not_click(block: int) -> None:
    mixer = _mixer()
    mixer.play(_reply(_tone(2.0)))
    before = _render(mixer, 4 * 1440 // block, block)
    mixer.play(None)
    after = _render(mixer, 4 * 1440 // block, block)
    fade = round(FADE_S * RATE)
    assert not after[fade:].any()
    assert np.abs(np.diff(np.concatenate((before[-2:], after)))).max() < STEEPEST * 1.2
    assert not mixer.sounding


def test_a_new_reply_begins_at_once_while_the_old_one_fades() -> None:
    mixer = _mixer()
    mixer.play(_reply(_tone(1.0)))
    _render(mixer, 5)
    new = np.full(4800, 0.125, dtype=np.float32)
    mixer.play(_reply(new))
    out = _render(mixer, 10)
    fade = round(FADE_S * RATE)
    assert np.array_equal(out[fade:4800], new[fade:])
    assert np.abs(out[:fade]).max() > 0.2


def test_nothing_sounds_before_the_prebuffer_is_full_or_the_reply_is_short() -> None:
    mixer = _mixer()
    reply = _reply(_tone(0.01), ended=False)
    mixer.play(reply)
    assert not _render(mixer, 3).any()
    assert reply.underruns == 0
    reply.end = reply.ring.written
    assert _render(mixer, 1).any()
    assert reply.done_s is not None


def test_an_underrun_is_counted_fades_and_goes_on_when_there_is_enough_again() -> None:
    mixer = _mixer()
    reply = _reply(_tone(0.035), ended=False)
    mixer.play(reply)
    torn = _render(mixer, 8)
    assert reply.underruns == 1
    assert not torn[1680:].any()
    assert np.abs(np.diff(torn)).max() < STEEPEST * 1.3
    reply.ring.write(_tone(0.005))
    assert not _render(mixer, 2).any()  # less than the prebuffer: it would tear again at once
    reply.ring.write(_tone(0.5))
    resumed = _render(mixer, 8)
    assert np.abs(resumed[0]) < 0.01
    assert np.abs(resumed).max() == pytest.approx(0.5, abs=0.01)
    assert reply.underruns == 1


def test_a_change_of_volume_is_a_ramp_and_ends_exactly_there() -> None:
    mixer = _mixer()
    mixer.play(_reply(np.full(RATE, 0.5, dtype=np.float32)))
    _render(mixer, 2)
    mixer.set_gain(volume_gain(50))
    out = _render(mixer, 10)
    ramp = round(GAIN_RAMP_S * RATE)
    assert np.abs(np.diff(out)).max() <= 0.5 / ramp * 1.01
    assert out[ramp:] == pytest.approx(np.full(out.size - ramp, 0.5 * 0.125, dtype=np.float32))


def test_the_first_sound_after_a_change_while_silent_is_not_too_loud() -> None:
    mixer = _mixer()
    _render(mixer, 1)
    mixer.set_gain(0.01)
    mixer.play(_reply(np.full(RATE, 0.5, dtype=np.float32)))
    assert np.abs(_render(mixer, 4)).max() == pytest.approx(0.005)


def test_volume_is_monotone_silent_at_0_and_unchanged_at_100() -> None:
    gains = [volume_gain(volume) for volume in range(-5, 106)]
    assert gains == sorted(gains)
    assert gains[0] == volume_gain(0) == 0.0
    assert gains[-1] == volume_gain(100) == 1.0


def test_a_small_sound_is_heard_alone_and_over_a_reply() -> None:
    sound = sound_samples(Sound.WAKE, RATE)
    mixer = _mixer()
    mixer.play_sound(sound)
    assert mixer.sounding
    alone = _render(mixer, 30)
    assert np.array_equal(alone[: sound.size], sound)
    assert not alone[sound.size :].any()
    reply = _tone(0.2)
    mixer.play(_reply(reply))
    mixer.play_sound(sound)
    both = _render(mixer, 10)
    assert both == pytest.approx(reply[:4800] + sound[:4800], abs=1e-6)


def test_what_is_too_loud_together_is_limited_to_full_scale() -> None:
    mixer = _mixer()
    mixer.play(_reply(np.full(4800, 0.95, dtype=np.float32)))
    mixer.play_sound(np.full(4800, 0.3, dtype=np.float32))
    assert _render(mixer, 5).max() == 1.0


def test_a_sink_that_wakes_slowly_gets_faint_noise_before_the_first_word_and_not_between_words() -> None:
    mixer, sound = _mixer(lead_in_s=0.2), _tone(0.1)
    mixer.play(_reply(sound))
    out = _render(mixer, 31)
    lead = out[:9600]
    assert 0.0 < np.sqrt(np.mean(lead**2)) < 10 ** (-70 / 20)
    assert np.all(np.abs(np.diff(np.flatnonzero(lead))) < 100)  # noise throughout, no digital silence
    assert np.array_equal(out[9600 : 9600 + sound.size], sound)
    mixer.play(_reply(sound))
    assert np.array_equal(_render(mixer, 10), sound)  # still awake
    _render(mixer, 250)
    mixer.play(_reply(sound))
    assert np.abs(_render(mixer, 19)).max() < 0.01  # asleep again after two seconds and a half


def test_a_sink_woken_in_advance_plays_at_once() -> None:
    mixer, sound = _mixer(lead_in_s=0.2), _tone(0.1)
    mixer.wake_sink(1.0)
    _render(mixer, 30)
    mixer.play(_reply(sound))
    assert np.array_equal(_render(mixer, 10), sound)


def test_kept_awake_there_is_never_digital_silence() -> None:
    out = _render(_mixer(keep_awake=True), 300)
    assert np.all(np.abs(out.reshape(300, BLOCK)).max(axis=1) > 0.0)
    assert np.abs(out).max() < 10 ** (-60 / 20)


@pytest.mark.parametrize("sound", list(Sound))
@pytest.mark.parametrize("rate_hz", [16_000, 44_100, 48_000])
def test_the_small_sounds_are_short_soft_and_start_and_end_at_zero(sound: Sound, rate_hz: int) -> None:
    samples = sound_samples(sound, rate_hz)
    seconds = samples.size / rate_hz
    assert seconds < (2.0 if sound in {Sound.TEST, Sound.RING} else 0.35)
    assert 0.05 < np.abs(samples).max() < 0.2
    assert abs(float(samples[0])) < 1e-3
    assert np.abs(samples[-20:]).max() < 1e-3
    assert abs(float(samples.mean())) < 1e-3


def _ducked(ducking: Ducking) -> Mixer:
    return Mixer(RATE, Doorbell(), lead_in_s=0.0, keep_awake=False, ducking=ducking)


def test_a_reply_is_ducked_for_as_long_as_it_is_asked_for_and_without_a_click() -> None:
    ducking = Ducking()
    mixer = _ducked(ducking)
    mixer.play(_reply(_tone(2.0)))
    before = _render(mixer, 10)
    with ducking.hold(Cause.ANNOUNCEMENT):
        during = _render(mixer, 20)
        low = 0.5 * ducking.gain(Layer.REPLY)
    after = _render(mixer, 20)
    assert np.abs(before).max() == pytest.approx(0.5, rel=0.01)
    assert np.abs(during[10 * BLOCK :]).max() == pytest.approx(low, rel=0.02)
    assert np.abs(after[10 * BLOCK :]).max() == pytest.approx(0.5, rel=0.01)
    assert np.abs(np.diff(np.concatenate((before, during, after)))).max() < STEEPEST * 1.2


def test_an_acknowledgement_over_a_ducked_reply_is_as_loud_as_ever() -> None:
    ducking = Ducking()
    mixer, alone = _ducked(ducking), _mixer()
    with ducking.hold(Cause.ANNOUNCEMENT):
        mixer.play_sound(sound_samples(Sound.WAKE, RATE))
        alone.play_sound(sound_samples(Sound.WAKE, RATE))
        assert np.array_equal(_render(mixer, 20), _render(alone, 20))


@pytest.mark.parametrize("block", [64, 480, 1440])
def test_an_alarm_goes_on_until_it_is_ended_and_then_is_silent_at_once(block: int) -> None:
    mixer, ring = _mixer(), _tone(0.1)[:-1]
    mixer.play_alarm(ring)
    out = _render(mixer, 24_000 // block, block)
    assert np.array_equal(out, np.resize(ring, out.size))
    assert mixer.sounding
    mixer.play_alarm(None)
    after = _render(mixer, 4800 // block, block)
    assert not after[max(block, round(FADE_S * RATE)) :].any()
    assert np.abs(np.diff(np.concatenate((out[-2:], after)))).max() < STEEPEST * 1.2
    assert not mixer.sounding


def test_speech_over_an_alarm_ducks_the_alarm_and_not_itself() -> None:
    ducking = Ducking()
    mixer = _ducked(ducking)
    mixer.play_alarm(np.full(4800, 0.4, dtype=np.float32))
    with ducking.hold(Cause.SPEECH):
        _render(mixer, 10)
        mixer.play(_reply(np.full(BLOCK * 10, 0.3, dtype=np.float32)))
        spoken = _render(mixer, 5)
    assert spoken == pytest.approx(np.full(spoken.size, 0.3 + 0.4 * 10 ** (-18 / 20)), abs=1e-3)


@given(st.lists(st.integers(64, 1500), min_size=5, max_size=40))
def test_the_tap_has_what_was_played_and_when(sizes: list[int]) -> None:
    tap = PlayedTap()
    mixer = Mixer(RATE, Doorbell(), lead_in_s=0.0, keep_awake=True, tap=tap.connect(RATE))
    mixer.set_gain(0.5)
    mixer.play(_reply(_tone(0.2)))
    out, at = [], 0
    for size in sizes:
        out.append(mixer.render(size, 50.0 + at / RATE).copy())
        at += size
    sound, start = np.concatenate(out), 0
    blocks = list(tap.read())
    for block in blocks:
        assert block.heard_s == pytest.approx(50.0 + block.index / RATE, abs=1e-6)
        assert np.array_equal(block.samples, sound[block.index : block.index + block.samples.size])
        start = block.index + block.samples.size
    # What keeps a sleepy sink awake is no sound that anybody would hear back.
    assert start <= _tone(0.2).size + max(sizes)
