from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.app import Wren
from appliance.audio.frame import Framer, Samples
from appliance.voice.vad import WINDOW_S, SpeechGate, VadWindow, VoiceActivity
from tests.fakes import FakeVadEngine, frames, silence, speech


def _windows(vad: VoiceActivity, sound: Samples, cuts: list[int]) -> list[VadWindow]:
    framer, at, found = Framer(), 0, []
    for cut in [*cuts, sound.size]:
        for frame in framer.push(sound[at : at + cut]):
            found += vad.push(frame)
        at += cut
    for frame in framer.flush():
        found += vad.push(frame)
    return found + list(vad.flush())


@given(st.lists(st.integers(1, 3000), max_size=10))
def test_any_chunking_gives_the_same_windows(cuts: list[int]) -> None:
    sound = np.concatenate((silence(0.3), speech(0.3), silence(0.2)))
    assert _windows(VoiceActivity(FakeVadEngine()), sound, cuts) == _windows(VoiceActivity(FakeVadEngine()), sound, [])


def test_windows_tile_time_and_the_tail_is_judged() -> None:
    found = _windows(VoiceActivity(FakeVadEngine()), speech(1.0), [])
    assert [w.start_s for w in found] == pytest.approx([i * WINDOW_S for i in range(32)])
    assert sum(len(w.levels) for w in found) == 100


@pytest.mark.models
@settings(deadline=None, max_examples=5)
@given(cuts=st.lists(st.integers(1, 4000), max_size=6))
def test_silero_does_not_depend_on_chunking_either(wren: Wren, cuts: list[int]) -> None:
    sound = np.concatenate((silence(0.2), speech(0.5), silence(0.2)))
    assert _windows(wren.voice_activity(), sound, cuts) == _windows(wren.voice_activity(), sound, [])


@pytest.mark.models
def test_silero_hears_speech_and_nothing_else(wren: Wren, spoken: Samples) -> None:
    loud = [w.probability for w in _windows(wren.voice_activity(), spoken, [])]
    quiet = [w.probability for w in _windows(wren.voice_activity(), silence(2.0), [])]
    noise = [w.probability for w in _windows(wren.voice_activity(), speech(2.0), [])]
    assert max(loud) > 0.95
    assert np.mean(np.array(loud) > 0.5) > 0.5
    assert max(quiet) < 0.2
    assert np.mean(np.array(noise) > 0.5) < 0.1


@pytest.mark.models
def test_two_streams_do_not_disturb_each_other_and_reset_forgets(wren: Wren, spoken: Samples) -> None:
    alone = _windows(wren.voice_activity(), spoken, [])
    one, other = wren.voice_activity(), wren.voice_activity()
    mixed = []
    for frame, noise in zip(Framer().push(spoken), Framer().push(speech(60.0)), strict=False):
        mixed += one.push(frame)
        other.push(noise)
    assert mixed == alone[: len(mixed)]
    one.reset()
    again = _windows(one, spoken, [])
    assert [w.probability for w in again] == [w.probability for w in alone]


def _gate(*probabilities: float, level: float = -30.0) -> tuple[SpeechGate, list]:  # type: ignore[type-arg]
    gate = SpeechGate()
    states = []
    for number, probability in enumerate(probabilities):
        end_s = (number + 1) * WINDOW_S
        loud = level if probability >= 0.35 else -70.0
        states.append(gate.push(VadWindow(probability, number * WINDOW_S, ((end_s, loud),))))
    return gate, states


def test_one_sure_window_is_a_click_two_are_speech() -> None:
    _, states = _gate(0.1, 0.9, 0.1, 0.1)
    assert not any(s.speaking for s in states)
    _, states = _gate(0.1, 0.9, 0.4, 0.1)
    assert [s.speaking for s in states] == [False, False, True, False]
    assert states[2].started_s == pytest.approx(WINDOW_S)


def test_between_the_thresholds_what_was_goes_on() -> None:
    _, states = _gate(0.4, 0.4, 0.9, 0.9, 0.4, 0.4, 0.2, 0.4)
    assert [s.speaking for s in states] == [False, False, False, True, True, True, False, False]


def test_silence_counts_from_the_last_speech_sample() -> None:
    _, states = _gate(0.9, 0.9, 0.9, *[0.0] * 10)
    assert states[2].ended_s == pytest.approx(3 * WINDOW_S)
    assert states[-1].silence_s == pytest.approx(10 * WINDOW_S)
    assert states[0].silence_s == 0.0


def test_the_end_is_where_the_energy_ends_not_where_the_model_lets_go() -> None:
    gate = SpeechGate()
    time_s = 0.0
    for _ in range(60):
        gate.push(VadWindow(0.0, time_s, ((time_s + WINDOW_S, -70.0),)))
        time_s += WINDOW_S
    for number in range(20):
        level = -20.0 if number < 15 else -69.0
        state = gate.push(VadWindow(0.9, time_s, ((time_s + WINDOW_S, level),)))
        time_s += WINDOW_S
    assert state.ended_s == pytest.approx((60 + 15) * WINDOW_S)


def test_before_any_speech_there_is_no_silence_to_count() -> None:
    _, states = _gate(*[0.0] * 50)
    assert states[-1].silence_s == 0.0
    assert states[-1].started_s is None


def test_frames_of_the_fake_bench_are_what_they_say() -> None:
    assert len(frames(silence(0.5), speech(0.5))) == 100
