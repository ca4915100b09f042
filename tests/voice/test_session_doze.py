"""A session's detectors sleep only while nobody waits, and nothing that matters is slept through."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from appliance import events
from appliance.audio.frame import FRAME_S, Frame
from appliance.voice.loop import Phase
from appliance.voice.runner import LiveRunner, SimulatedPlayer, SimulatedRunner
from appliance.voice.session import WAKE_REPLAYED_S, Session
from appliance.voice.wake import WakeHit
from tests.audio.fakes import eventually
from tests.fakes import FakePlayer, frames, silence, speech
from tests.voice.conversation import Bench, hear

ASLEEP_S = 4.0
"""Of quiet, after which all sleep."""


class FakeWake:
    """A fake detector that remembers what it was given, and fires on the frames that it is told."""

    words = ("fake",)

    def __init__(self, *fires_on: int) -> None:
        self.fires_on = fires_on
        self.heard: list[int] = []

    def push(self, frame: Frame) -> Sequence[WakeHit]:
        self.heard.append(frame.seq)
        return (WakeHit("fake", 1.0, frame.end_s),) if frame.seq in self.fires_on else ()

    def reset(self) -> None:
        self.heard.append(-1)


class FakeAlarm:
    """A fake alarm."""

    def __init__(self) -> None:
        self.ringing = False

    def hush(self) -> None:
        self.ringing = False


class House:
    """A session with fakes, in a room that has been quiet for so long that all sleep."""

    def __init__(self, *fires_on: int, follow_up: bool = False) -> None:
        self.runner, self.wake, self.alarm = SimulatedRunner(), FakeWake(*fires_on), FakeAlarm()
        self.bench = Bench(
            self.runner, SimulatedPlayer(self.runner), follow_up=follow_up, wake=self.wake, alarm=self.alarm
        )
        self.runner.attach(self.bench.session)
        self.seq = 0
        self.hear(frames(silence(ASLEEP_S)))
        self.given = len(self.wake.heard)

    def hear(self, sound: list[Frame]) -> None:
        """What comes next."""
        sound = [Frame(frame.samples, (self.seq + at) * FRAME_S, self.seq + at) for at, frame in enumerate(sound)]
        self.seq += len(sound)
        hear(self.runner, sound)

    @property
    def session(self) -> Session:
        return self.bench.session

    @property
    def since(self) -> list[int]:
        """Numbers of the frames that the wake detector was given since all slept."""
        return self.wake.heard[self.given :]


def test_in_a_quiet_room_the_wake_detector_is_given_nothing() -> None:
    house = House()
    assert house.given < 1.2 / FRAME_S
    house.hear(frames(silence(1.0)))
    assert house.since == []


def test_a_wake_word_is_heard_with_two_seconds_before_it_and_starts_an_utterance() -> None:
    first = round(ASLEEP_S / FRAME_S)
    house = House(first + 30)
    house.hear(frames(speech(0.6)))
    assert house.since == list(range(first - round(WAKE_REPLAYED_S / FRAME_S), first + 60))
    (told,) = [event for event in house.bench.told if isinstance(event, events.WakeHeard)]
    assert told.time_s == pytest.approx((first + 31) * FRAME_S)
    assert house.session.phase is Phase.LISTENING


@pytest.mark.parametrize("why", ["listen", "announce", "alarm"])
def test_whatever_begins_wakes_the_detector_and_keeps_it_awake_though_the_room_is_quiet(why: str) -> None:
    house = House()
    house.bench.thinker.reply = "word " * 50
    if why == "listen":
        house.runner.call(house.session.listen)
    elif why == "announce":
        house.runner.call(lambda: house.session.announce("word " * 50))
    else:
        house.alarm.ringing = True
    house.hear(frames(silence(3.0)))
    assert house.since[-300:] == list(range(house.seq - 300, house.seq))
    assert all(after - before == 1 for before, after in pairwise(house.since))


def test_what_is_said_after_the_button_is_heard_from_its_beginning() -> None:
    house = House()
    house.runner.call(house.session.listen)
    said = frames(silence(0.3), speech(0.6), silence(2.0))
    house.hear(said)
    assert house.bench.one(events.SpeechStarted).time_s == pytest.approx(ASLEEP_S + 0.3, abs=0.05)
    assert house.bench.one(events.UtteranceEnded).outcome == "answered"
    heard = np.concatenate(house.bench.recogniser.sound)
    assert any(np.array_equal(heard[at : at + 160], said[30].samples) for at in range(0, heard.size, 160))


def test_a_follow_up_is_heard_though_the_room_was_quiet_while_wren_spoke() -> None:
    house = House(follow_up=True)
    house.bench.thinker.reply = "word " * 30
    house.runner.call(house.session.listen)
    house.hear(frames(speech(0.6), silence(4.5)))
    assert house.session.phase is Phase.LISTENING
    house.bench.told.clear()
    house.hear(frames(speech(0.6, 1), silence(1.0)))
    assert house.bench.one(events.SpeechStarted).time_s == pytest.approx(house.seq * FRAME_S - 1.6, abs=0.05)


def test_sound_before_a_hole_is_not_heard_after_it() -> None:
    house = House()
    house.seq += 50
    house.hear(frames(silence(0.5)))
    house.hear(frames(speech(0.1)))
    assert house.since[0] == -1
    assert house.since[1] == round(ASLEEP_S / FRAME_S) + 50


def test_who_listens_is_in_a_hurry_and_who_rests_is_not() -> None:
    alarm = FakeAlarm()
    runner = LiveRunner(lambda r: Bench(r, FakePlayer(r), alarm=alarm).session)  # type: ignore[arg-type]
    try:
        sound = frames(silence(0.3))
        runner.push(sound[0])
        time.sleep(0.05)
        assert not runner.in_a_hurry
        runner.call(runner.session.listen)
        eventually(lambda: runner.in_a_hurry)
        runner.call(runner.session.stop)
        eventually(lambda: not runner.in_a_hurry)
        alarm.ringing = True
        runner.push(sound[1])
        eventually(lambda: runner.in_a_hurry)
    finally:
        runner.close()
