"""Timers run on the clock they are given, are bounded, and are found the way people speak of them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.skills.timers import MAX_TIMERS, TimerBook, local_now
from appliance.intent.types import UtteranceId
from tests.intent.homes import NOON, home


class FakeClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Kitchen:
    """An assistant with a clock, spoken to from a room."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.who = Assistant(home(), clock=self.clock)
        self._keys = count()

    def say(self, text: str, area: str = "Kitchen") -> str:
        understood = self.who.match(text, area)
        return asyncio.run(self.who.commit(understood, UtteranceId(f"u{next(self._keys)}"))).text


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


def test_a_timer_ends_when_its_time_has_passed(kitchen: Kitchen) -> None:
    kitchen.say("set a timer for one hour two minutes and three seconds")
    kitchen.clock.pass_s(3600 + 2 * 60 + 2)
    assert kitchen.who.timers.due() == ()
    kitchen.clock.pass_s(1)
    (ended,) = kitchen.who.timers.due()
    assert (ended.start_hours, ended.start_minutes, ended.start_seconds) == (1, 2, 3)
    assert kitchen.who.timers.due() == ()


def test_timers_end_in_order(kitchen: Kitchen) -> None:
    for text in ("set a 5 minute tea timer", "set a 3 minute egg timer", "set a 9 minute pasta timer"):
        kitchen.say(text)
    assert kitchen.who.timers.next_due() == NOON + timedelta(minutes=3)
    kitchen.clock.pass_s(6 * 60)
    assert [t.name for t in kitchen.who.timers.due()] == ["egg", "tea"]


def test_the_status_says_what_is_left(kitchen: Kitchen) -> None:
    kitchen.say("set a timer for ten minutes")
    kitchen.clock.pass_s(4 * 60 + 3)
    assert kitchen.say("how long is left") == "6 minutes left."
    kitchen.say("set a timer for 1 hour called roast")
    assert kitchen.say("timer status") == "2 running timers. 6 minutes left on 10 minute Kitchen timer."
    assert kitchen.say("how long is left on the roast timer") == "1 hour left."


def test_a_paused_timer_keeps_what_is_left(kitchen: Kitchen) -> None:
    kitchen.say("set a timer for five minutes")
    kitchen.clock.pass_s(60)
    assert kitchen.say("pause the timer") == "Timer paused"
    kitchen.clock.pass_s(3600)
    assert kitchen.say("timer status") == "Timer is paused. 4 minutes left."
    assert kitchen.say("pause the timer") == "Sorry, I couldn't find that timer"
    assert kitchen.say("resume the timer") == "Timer resumed"
    kitchen.clock.pass_s(239)
    assert kitchen.who.timers.due() == ()
    kitchen.clock.pass_s(1)
    assert len(kitchen.who.timers.due()) == 1


def test_timers_can_be_lengthened_and_shortened(kitchen: Kitchen) -> None:
    kitchen.say("set a timer for five minutes")
    assert kitchen.say("add two more minutes") == "two minutes added to timer"
    assert kitchen.who.timers.next_due() == NOON + timedelta(minutes=7)
    assert kitchen.say("take 90 seconds off the timer") == "90 seconds removed from timer"
    assert kitchen.who.timers.next_due() == NOON + timedelta(minutes=5, seconds=30)
    kitchen.say("remove 1 hour from the timer")
    assert len(kitchen.who.timers.due()) == 1


def test_a_timer_is_found_by_name_length_or_room(kitchen: Kitchen) -> None:
    kitchen.say("set a five minute timer")
    kitchen.say("set a ten minute timer called pizza", area="Office")
    assert kitchen.say("cancel the ten minute timer") == "Timer cancelled"
    kitchen.say("set a ten minute timer called pizza", area="Office")
    assert kitchen.say("cancel the pizza timer") == "Timer cancelled"
    kitchen.say("set a ten minute timer called pizza", area="Office")
    assert kitchen.say("cancel the timer in the office") == "Timer cancelled"
    assert kitchen.say("cancel the 7 minute timer") == "Sorry, I couldn't find that timer"
    assert len(kitchen.who.timers) == 1


def test_a_timer_of_120_seconds_is_one_of_2_minutes(kitchen: Kitchen) -> None:
    kitchen.say("set a timer for 120 seconds")
    assert kitchen.say("cancel the 2 minute timer") == "Timer cancelled"


def test_of_several_the_one_of_the_room_is_meant_or_none(kitchen: Kitchen) -> None:
    kitchen.say("set a five minute timer")
    kitchen.say("set a six minute timer", area="Office")
    assert kitchen.say("cancel the timer", area="Bedroom") == "Sorry, I am unable to target multiple timers"
    assert kitchen.say("cancel the timer") == "Timer cancelled"
    assert [t.area for t in kitchen.who.timers.find()] == ["Office"]


def test_all_timers_or_those_of_a_room_can_be_cancelled(kitchen: Kitchen) -> None:
    for area in ("Kitchen", "Kitchen", "Office"):
        kitchen.say("set a five minute timer", area=area)
    assert kitchen.say("cancel all timers in the kitchen") == "Canceled 2 timers in Kitchen."
    assert kitchen.say("cancel all timers") == "Canceled 1 timer."
    assert kitchen.say("cancel all timers") == "No timers were canceled."


@pytest.mark.parametrize("said", ["cancel all the timer", "cancel every timer", "stop all of my timer"])
def test_all_is_no_timers_name(kitchen: Kitchen, said: str) -> None:
    """The last letter of "timers" is easily lost."""
    for _ in range(2):
        kitchen.say("set a five minute timer")
    assert kitchen.say(said) == "Canceled 2 timers."


def test_there_is_an_end_to_timers(kitchen: Kitchen) -> None:
    for _ in range(MAX_TIMERS):
        kitchen.say("set a timer for five minutes")
    assert kitchen.say("set a timer for five minutes") == "Sorry, there are too many timers already"
    assert len(kitchen.who.timers) == MAX_TIMERS


def test_a_copy_is_its_own() -> None:
    book = TimerBook(FakeClock())
    book.start(minutes=5)
    copy = book.copy()
    copy.cancel(copy.find()[0])
    copy.start(minutes=1)
    assert len(book) == 1
    assert book.find()[0].start_minutes == 5


@pytest.mark.parametrize(
    ("left_s", "said"),
    [(0.2, (0, 0, 1)), (7, (0, 0, 7)), (58, (0, 1, 0)), (100, (0, 1, 40)), (190, (0, 3, 0)), (3599, (1, 0, 0))],
)
def test_the_time_left_is_rounded_as_one_would_say_it(left_s: float, said: tuple[int, int, int]) -> None:
    clock = FakeClock()
    book = TimerBook(clock)
    timer = book.start(hours=2)
    assert timer is not None
    clock.pass_s(7200 - left_s)
    state = book.state(timer)
    assert (state.rounded_hours_left, state.rounded_minutes_left, state.rounded_seconds_left) == said


def test_summer_time_does_not_move_a_timer() -> None:
    moments = [datetime(2024, 3, 31, 1, 59, tzinfo=timezone(timedelta(hours=1)))]
    book = TimerBook(lambda: moments[-1])
    book.start(minutes=5)
    moments.append(datetime(2024, 3, 31, 3, 3, 59, tzinfo=timezone(timedelta(hours=2))))
    assert book.due() == ()
    moments.append(datetime(2024, 3, 31, 3, 4, tzinfo=timezone(timedelta(hours=2))))
    assert len(book.due()) == 1


def test_the_default_clock_knows_its_offset() -> None:
    assert local_now().utcoffset() is not None
