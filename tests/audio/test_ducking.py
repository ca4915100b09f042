"""Holds that nest, count by the deepest, and always end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audio.ducking import Cause, Duck, Ducking, Layer


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_an_announcement_ducks_a_reply_and_speech_ducks_an_alarm() -> None:
    ducking = Ducking(Clock())
    with ducking.hold(Cause.ANNOUNCEMENT):
        assert ducking.gain(Layer.REPLY) < 0.2
    with ducking.hold(Cause.SPEECH):
        assert ducking.gain(Layer.ALARM) < 0.2
        assert ducking.gain(Layer.REPLY) == 1.0
    assert [ducking.gain(layer) for layer in Layer] == [1.0, 1.0]


def test_while_listening_everything_that_goes_on_is_ducked() -> None:
    ducking = Ducking(Clock())
    with ducking.hold(Cause.LISTENING):
        assert ducking.gain(Layer.REPLY) < 0.1
        assert ducking.gain(Layer.ALARM) < 0.1


def test_nested_holds_end_with_the_last_and_the_deepest_counts() -> None:
    ducking = Ducking(Clock())
    announcement = ducking.hold(Cause.ANNOUNCEMENT)
    shallow = ducking.gain(Layer.ALARM)
    listening = ducking.hold(Cause.LISTENING)
    assert ducking.gain(Layer.ALARM) < shallow
    announcement.release()
    assert ducking.gain(Layer.ALARM) < shallow
    listening.release()
    assert ducking.gain(Layer.ALARM) == 1.0


def test_a_hold_of_a_lost_owner_ends_by_itself_and_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    ducking = Ducking(clock)
    lost = ducking.hold(Cause.SPEECH)
    clock.now_s += 149.0
    assert ducking.gain(Layer.ALARM) < 1.0
    clock.now_s += 1.0
    assert ducking.gain(Layer.ALARM) == 1.0
    assert ducking.held() == ()
    assert ducking.expired == 1
    assert "quieter for: speech" in caplog.text
    lost.release()
    assert ducking.expired == 1


def test_a_hold_of_known_length_ends_by_itself_and_is_nobodys_fault() -> None:
    clock = Clock()
    ducking = Ducking(clock)
    ducking.duck_for(Cause.ANNOUNCEMENT, 0.5)
    clock.now_s += 0.4
    assert ducking.gain(Layer.REPLY) < 0.2
    clock.now_s += 0.1
    assert ducking.gain(Layer.REPLY) == 1.0
    assert ducking.held() == ()
    assert ducking.expired == 0


def test_an_error_inside_lets_go() -> None:
    ducking = Ducking(Clock())
    with pytest.raises(ZeroDivisionError), ducking.hold(Cause.LISTENING):
        raise ZeroDivisionError
    assert ducking.held() == ()


@given(st.lists(st.tuples(st.sampled_from(["hold", "release", "wait"]), st.integers(0, 9)), max_size=60))
def test_whatever_happens_it_ends(steps: list[tuple[str, int]]) -> None:
    clock = Clock()
    ducking, mine = Ducking(clock), list[Duck]()
    for step, number in steps:
        if step == "hold":
            mine.append(ducking.hold(list(Cause)[number % len(Cause)]))
        elif step == "release" and mine:
            mine[number % len(mine)].release()
        else:
            clock.now_s += 10.0 * number
        assert all(0.0 < ducking.gain(layer) <= 1.0 for layer in Layer)
    clock.now_s += 150.0
    assert [ducking.gain(layer) for layer in Layer] == [1.0, 1.0]
    assert ducking.held() == ()
