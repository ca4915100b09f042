"""Voice activity that dozes in a quiet room says the same, once somebody speaks, as one that listened all the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.app import Wren
from appliance.audio.frame import FRAME_S, FRAME_SAMPLES, RATE_HZ, Frame, Samples
from appliance.voice.doze import AFTER_S, Doze, Dozing
from appliance.voice.hearing import REPLAYED_S, Hearing
from appliance.voice.vad import VadWindow
from tests.voice.conftest import say

ROOM = np.float32(1e-3)


class LoudnessVad:
    """A fake detector that counts its frames, and takes what is loud for speech, window by window of three frames; all
    sound, from the frame `speech_from` on."""

    def __init__(self, speech_from: int | None = None) -> None:
        self._speech_from = speech_from
        self.heard: list[Frame] = []
        self.resets = 0
        self._window: list[Frame] = []

    def push(self, frame: Frame) -> Sequence[VadWindow]:
        self.heard.append(frame)
        self._window.append(frame)
        if len(self._window) < 3:
            return ()
        window, self._window = self._window, []
        loud = max(float(np.abs(one.samples).max()) for one in window) > 0.05
        loud |= self._speech_from is not None and window[0].seq >= self._speech_from
        return (VadWindow(float(loud), window[0].time_s, tuple((one.end_s, -60.0 + 40.0 * loud) for one in window)),)

    def reset(self) -> None:
        self.resets += 1
        self._window = []


def _frames(sound: Samples) -> list[Frame]:
    whole = sound[: sound.size // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    return [Frame(samples, number * FRAME_S, number) for number, samples in enumerate(whole)]


def _room(seconds: float, seed: int = 1) -> Samples:
    return np.random.default_rng(seed).standard_normal(round(seconds * RATE_HZ), dtype=np.float32) * ROOM


def _tone(seconds: float) -> Samples:
    return (0.2 * np.sin(np.arange(round(seconds * RATE_HZ)) * 0.3)).astype(np.float32)


def _dozing(vad: LoudnessVad | None = None) -> tuple[LoudnessVad, Hearing, Frame]:
    """A detector and its owner in a room that was quiet for four seconds, and the next frame of it."""
    vad = LoudnessVad() if vad is None else vad
    hearing = Hearing(vad)
    *frames, last = _frames(_room(4.0))
    for frame in frames:
        hearing.push(frame, resting=True)
    assert hearing.dozing
    return vad, hearing, last


def test_a_quiet_room_is_judged_no_more_while_nobody_waits_for_it() -> None:
    vad = LoudnessVad()
    hearing = Hearing(vad)
    for frame in _frames(_room(10.0)):
        hearing.push(frame, resting=True)
    assert len(vad.heard) <= round((AFTER_S + 0.2) / FRAME_S)


def test_whoever_waits_has_every_frame_judged() -> None:
    vad = LoudnessVad()
    hearing = Hearing(vad)
    frames = _frames(_room(5.0))
    for frame in frames:
        hearing.push(frame)
    assert vad.heard == frames
    assert vad.resets == 0


@given(quiet=st.floats(1.2, 6.0), speech=st.floats(0.1, 1.0), after=st.floats(0.0, 1.0))
@settings(max_examples=30, deadline=None)
def test_sound_wakes_it_with_what_was_before_in_order_and_without_a_hole(
    quiet: float, speech: float, after: float
) -> None:
    vad = LoudnessVad()
    hearing = Hearing(vad)
    frames = _frames(np.concatenate((_room(quiet), _tone(speech), _room(after, 2))))
    first = next(i for i, frame in enumerate(frames) if float(np.abs(frame.samples).max()) > 0.05)
    for frame in frames:
        hearing.push(frame, resting=True)
    assert vad.resets == (len(vad.heard) < len(frames)), "what missed nothing goes on"
    since = next(i for i, frame in enumerate(vad.heard) if frame is frames[first])
    before = vad.heard[:since]
    replayed = round(REPLAYED_S / FRAME_S)
    tail = before[-min(replayed, len(before)) :]
    assert [frame.seq for frame in tail] == list(range(first - len(tail), first))
    assert [frame.seq for frame in vad.heard[since:]] == list(range(first, len(frames)))


def test_a_listener_that_begins_while_it_dozes_has_what_was_just_before_judged() -> None:
    vad, hearing, last = _dozing()
    judged = len(vad.heard)
    hearing.reset()
    hearing.push(last)
    assert len(vad.heard) - judged == round(REPLAYED_S / FRAME_S) + 1


def test_lost_sound_is_not_heard_again() -> None:
    vad, hearing, last = _dozing()
    judged = len(vad.heard)
    hearing.forget()
    hearing.push(last)
    assert len(vad.heard) - judged == 1


def test_speech_that_began_while_it_dozed_is_told_to_the_listener_that_begins() -> None:
    """A voice too faint to wake it: else the listener would wait for the next word to begin."""
    _, hearing, last = _dozing(LoudnessVad(speech_from=370))
    hearing.reset()
    heard = hearing.push(last)
    assert heard.speech.speaking
    assert heard.speech.began
    assert heard.speech.started_s == pytest.approx(370 * FRAME_S, abs=0.03)


def test_what_slept_only_a_moment_goes_on_where_it_was() -> None:
    vad = LoudnessVad()
    hearing = Hearing(vad)
    frames = _frames(np.concatenate((_room(1.2), _tone(0.1))))
    slept = sum(1 for frame in frames if not hearing.push(frame, resting=True).speech.speaking and hearing.dozing)
    assert 0 < slept < REPLAYED_S / FRAME_S
    assert vad.resets == 0
    assert vad.heard == frames


@pytest.mark.parametrize("kind", ["offset", "hum"])
def test_what_stands_in_the_microphone_does_not_hide_a_voice(kind: str) -> None:
    """Both are louder than the voice; detectors hear it all the same."""
    at_s = np.arange(5 * RATE_HZ) / RATE_HZ
    standing = np.full(at_s.size, 0.05) if kind == "offset" else 0.01 * np.sin(2 * np.pi * 50 * at_s)
    sound = (_room(5.0) + standing).astype(np.float32)
    sound[4 * RATE_HZ :] += 0.03 * _tone(1.0)
    doze = Doze()
    slept = [doze.push(frame.samples, resting=True, speaking=False) for frame in _frames(sound)]
    assert sum(slept[200:400]) > 150
    assert not any(slept[400:])


@pytest.mark.models
def test_real_voice_activity_finds_the_same_speech_either_way(wren: Wren) -> None:
    sound = np.concatenate((_room(5.0), say(wren, "okay nabu"), _room(3.0, 2)))
    found = []
    for resting in (False, True):
        hearing = Hearing(wren.voice_activity())
        for frame in _frames(sound):
            heard = hearing.push(frame, resting=resting)
        found.append((heard.speech.started_s, heard.speech.ended_s))
    assert found[0][0] is not None
    assert found[1] == pytest.approx(found[0], abs=0.033)


class FakeDetector:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def push(self, frame: Frame) -> Sequence[int]:
        self.heard.append(frame.seq)
        return (frame.seq,)

    def reset(self) -> None:
        self.heard.append(-1)


@given(dozing=st.lists(st.booleans(), max_size=80), afresh=st.booleans())
@settings(deadline=None)
def test_a_detector_hears_all_it_was_awake_for_and_so_much_before_each_time(dozing: list[bool], afresh: bool) -> None:
    fake = FakeDetector()
    detector = Dozing(fake, 5 * FRAME_S, afresh=afresh)
    found: list[int] = []
    for seq, asleep in enumerate(dozing):
        found += detector.push(Frame(np.zeros(FRAME_SAMPLES, np.float32), seq * FRAME_S, seq), dozing=asleep)
    expected: list[int] = []
    for seq, asleep in enumerate(dozing):
        if asleep:
            continue
        if seq and dozing[seq - 1]:
            run = next((back for back in range(1, seq + 1) if not dozing[seq - back]), seq + 1) - 1
            expected += [-1] * (afresh and run > 5) + list(range(seq - min(run, 5), seq))
        expected.append(seq)
    assert fake.heard == expected
    assert found == [seq for seq in expected if seq >= 0]
