"""Acting once, previewing without acting, and choosing among things of one name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import IntentError
from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome, default_home
from appliance.intent.skills.timers import TimerBook
from appliance.intent.types import ActResult, HomeCommand, HomeView, UtteranceId
from tests.intent.homes import NOON, assistant, entity, home, say, state_of

KEY = UtteranceId("u1")


class FakeBrokenHome:
    """A home that cannot be reached."""

    def __init__(self, error: Exception | None = None, problem: str | None = None) -> None:
        self.acted = 0
        self._inner = home(entity("Desk Lamp"))
        self._error = error
        self._problem = problem

    def view(self) -> HomeView:
        return self._inner.view()

    async def act(self, command: HomeCommand, key: UtteranceId) -> ActResult:
        self.acted += 1
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        return ActResult(ok=self._problem is None, problem=self._problem)


def test_commit_acts_and_answers() -> None:
    house = home(entity("Desk Lamp", state="off"))
    reply = say(Assistant(house), "turn on the desk lamp")
    assert (reply.text, reply.ok) == ("Turned on the light", True)
    assert state_of(house, "Desk Lamp").state == "on"


def test_committing_twice_with_one_key_acts_once() -> None:
    house = home(entity("TV", "media_player", state="playing", attributes={"volume_level": 0.5}))
    who = Assistant(house)
    understood = who.match("turn the tv up")

    async def twice() -> None:
        first, second = await asyncio.gather(who.commit(understood, KEY), who.commit(understood, KEY))
        assert first is second
        assert await who.commit(understood, KEY) is first

    asyncio.run(twice())
    assert state_of(house, "TV").attributes["volume_level"] == 0.6
    say(who, "turn the tv up", "u2")
    assert state_of(house, "TV").attributes["volume_level"] == 0.7


def test_a_timer_committed_twice_is_one_timer() -> None:
    who = assistant()
    for _ in range(2):
        say(who, "set a timer for five minutes")
    assert len(who.timers) == 1


def test_a_home_that_acted_on_a_key_is_not_asked_to_act_again() -> None:
    house = home(entity("TV", "media_player", attributes={"volume_level": 0.5}))
    for _ in range(2):  # a restarted appliance has forgotten the key, the home has not
        assert say(Assistant(house), "turn the tv up").ok
    assert state_of(house, "TV").attributes["volume_level"] == 0.6


def test_a_home_that_fails_is_answered_for() -> None:
    reply = say(Assistant(FakeBrokenHome(problem="The lamp does not answer")), "turn on the desk lamp")
    assert (reply.text, reply.ok) == ("The lamp does not answer", False)


def test_an_error_of_the_home_reaches_everyone_who_waits_and_a_retry_asks_again() -> None:
    broken = FakeBrokenHome(error=IntentError("the broker is away"))
    who = Assistant(broken)
    understood = who.match("turn on the desk lamp")

    async def both() -> None:
        results = await asyncio.gather(who.commit(understood, KEY), who.commit(understood, KEY), return_exceptions=True)
        assert [type(r) for r in results] == [IntentError, IntentError]
        assert broken.acted == 1
        with pytest.raises(IntentError):
            await who.commit(understood, KEY)
        assert broken.acted == 2

    asyncio.run(both())


def test_a_cancelled_commit_leaves_the_key_free() -> None:
    who = assistant(entity("Desk Lamp"))
    understood = who.match("turn on the desk lamp")

    async def cancel_then_commit() -> None:
        task = asyncio.create_task(who.commit(understood, KEY))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await who.commit(understood, KEY)).ok

    asyncio.run(cancel_then_commit())


SENTENCES = st.sampled_from(
    [
        "turn off the lights",
        "turn on the kitchen lights",
        "set a timer for five minutes",
        "cancel all timers",
        "add milk to the shopping list",
        "turn the tv up",
        "lock the front door",
        "turn everything off in the house",
        "good night",
        "turn off the lights in five minutes",
        "what time is it",
        "nonsense",
    ]
)


@settings(deadline=None, max_examples=25)
@given(st.lists(SENTENCES, min_size=1, max_size=4))
def test_a_preview_changes_nothing_and_says_what_commit_will(sentences: list[str]) -> None:
    house = default_home()
    who = Assistant(house, clock=lambda: NOON)
    for n, text in enumerate(sentences):
        before = (house.view(), len(who.timers), who.lists.open_items("Shopping List"))
        understood = who.match(text)
        previewed = who.preview(understood)
        assert (house.view(), len(who.timers), who.lists.open_items("Shopping List")) == before
        assert previewed == say(who, text, f"u{n}")


@settings(deadline=None)
@given(st.one_of(st.text(max_size=300), st.lists(SENTENCES, max_size=6).map(" ".join), st.binary().map(repr)))
def test_match_takes_any_text(text: str) -> None:
    understood = ANYONE.match(text)
    assert understood.text == text
    assert (understood.intent is None) == (understood.sorry is not None)
    assert ANYONE.preview(understood).text is not None


ANYONE = assistant(entity("Desk Lamp"), entity("TV", "media_player"))


def test_long_talk_is_no_command() -> None:
    assert ANYONE.match("play " * 5000).intent is None
    assert ANYONE.match("in 5 minutes " * 19 + "turn on the desk lamp").intent in (None, "HassStartTimer")


@pytest.fixture
def two_tvs() -> tuple[MemoryHome, Assistant]:
    house = home(
        entity("TV", "media_player", "Kitchen", state="off"), entity("TV", "media_player", "Office", state="off")
    )
    return house, Assistant(house)


def test_of_two_the_one_in_the_room_is_meant(two_tvs: tuple[MemoryHome, Assistant]) -> None:
    house, who = two_tvs
    understood = who.match("turn on the tv")
    assert understood.slots == {"name": "TV"}
    say(who, "turn on the tv")
    assert [state_of(house, "TV", area).state for area in ("Kitchen", "Office")] == ["on", "off"]


def test_of_two_the_one_whose_room_is_said_is_meant(two_tvs: tuple[MemoryHome, Assistant]) -> None:
    house, who = two_tvs
    assert who.match("turn on the tv in the office").slots == {"name": "TV", "area": "Office"}
    say(who, "turn on the tv in the office")
    assert [state_of(house, "TV", area).state for area in ("Kitchen", "Office")] == ["off", "on"]


def test_of_two_elsewhere_neither_is_guessed(two_tvs: tuple[MemoryHome, Assistant]) -> None:
    house, who = two_tvs
    understood = who.match("turn on the tv", area="Bedroom")
    assert understood.intent == "HassTurnOn"
    reply = asyncio.run(who.commit(understood, KEY))
    assert (reply.ok, reply.text) == (
        False,
        "There are 2 called TV: in the Kitchen and in the Office. Please say which room",
    )
    assert [e.state for e in house.view().entities] == ["off", "off"]


def test_two_that_nothing_tells_apart_are_said_to_be_two() -> None:
    reply = say(assistant(entity("Lamp A"), entity("Lamp A", area="Kitchen"), here=None), "turn on lamp a")
    assert (reply.ok, reply.text) == (False, "Sorry, there are multiple devices called Lamp A")


def test_two_main_lights_are_told_apart_by_room() -> None:
    who = assistant(entity("Office Main Light", area="Office"), entity("Kitchen Main Light", area="Kitchen"))
    assert who.match("turn on the main light").slots["name"] == "Kitchen Main Light"
    assert who.match("turn on the main light", area="office").slots["name"] == "Office Main Light"
    assert "which room" in who.preview(who.match("turn on the main light", area="Bedroom")).text


def test_a_thing_is_not_taken_from_another_room_than_was_said() -> None:
    reply = say(assistant(entity("Desk Lamp", area="Office")), "turn on the desk lamp in the bedroom")
    assert reply.text == "Sorry, I am not aware of any device called Desk Lamp in the Bedroom area"


def test_a_thing_in_no_room_is_where_the_speaker_says() -> None:
    assert say(assistant(entity("Desk Lamp")), "turn on the desk lamp in the bedroom").ok


def test_the_rooms_lights_are_meant_and_never_another_rooms() -> None:
    house = home(entity("A", area="Office", state="on"), entity("B", area="Bedroom", state="on"))
    reply = say(Assistant(house), "turn off the lights")
    assert reply.text == "Sorry, I am not aware of any light in the Kitchen area"
    assert [e.state for e in house.view().entities] == ["on", "on"]


def test_without_a_room_of_its_own_the_appliance_asks_which() -> None:
    lamps = (entity("A", area="Office"), entity("B", area="Bedroom"))
    assert say(assistant(*lamps, here=None), "turn off the lights").text.startswith("In which room?")
    assert say(assistant(lamps[0], here=None), "turn off the lights").ok


def test_an_unknown_area_of_the_microphone_is_no_area() -> None:
    assert assistant(entity("A")).match("turn off the lights", area="Nowhere").area is None


def test_what_cannot_be_reached_is_said() -> None:
    reply = say(assistant(entity("Desk Lamp", state="unavailable")), "turn on the desk lamp")
    assert (reply.ok, reply.text) == (False, "Sorry, Desk Lamp cannot be reached right now")


def test_what_is_not_known_is_not_made_up() -> None:
    who = assistant(entity("Desk Lamp"), entity("Sky", "weather", state="unknown"), entity("Heat", "climate"))
    assert say(who, "is the desk lamp on", "a").text == "I do not know, Desk Lamp has not reported its state"
    assert say(who, "what's the weather", "b").text == "I do not know, Sky has not reported its state"
    assert say(who, "what's the temperature of heat", "c").text == "Sorry, nothing here measures the temperature"


def test_nothing_is_called_paused_that_does_not_play() -> None:
    reply = say(assistant(entity("TV", "media_player", "Kitchen", state="off")), "pause")
    assert (reply.ok, reply.text) == (False, "Nothing is playing")


def test_nobody_hears_a_broadcast_in_a_home_without_speakers() -> None:
    assert not say(assistant(entity("Desk Lamp")), "broadcast dinner is ready").ok


def test_new_names_are_understood_once_the_home_changed() -> None:
    house = home(entity("Desk Lamp"))
    who = Assistant(house)
    assert who.match("turn on the disco ball").intent is None
    view = house.view()
    house._view = replace(view, version=view.version + 1, entities=(*view.entities, entity("Disco Ball")))
    assert who.match("turn on the disco ball").intent == "HassTurnOn"


def test_a_thing_that_vanished_between_match_and_commit_is_missed() -> None:
    house = home(entity("Desk Lamp"))
    who = Assistant(house)
    understood = who.match("turn on the desk lamp")
    house._view = replace(house.view(), version=2, entities=())
    reply = asyncio.run(who.commit(understood, KEY))
    assert reply.text == "Sorry, I am not aware of any device called Desk Lamp"


def test_what_shall_be_done_later_is_done_when_it_is_due() -> None:
    now = [NOON]

    def clock() -> datetime:
        return now[0]

    house = home(entity("A", area="Kitchen", state="on"))
    who = Assistant(house, clock=clock, timers=TimerBook(clock))
    say(who, "turn off the lights in ten minutes", "a")
    say(who, "set a timer for five minutes", "b")
    now[0] += timedelta(minutes=5)
    ((ringing, reply),) = asyncio.run(who.tick())
    assert (ringing.command, reply) == (None, None)
    assert state_of(house, "A").state == "on"
    now[0] += timedelta(minutes=5)
    ((done, reply),) = asyncio.run(who.tick())
    assert done.command == "turn off the lights"
    assert reply is not None
    assert reply.text == "Turned off the lights"
    assert state_of(house, "A").state == "off"
    assert asyncio.run(who.tick()) == []


def test_a_language_without_data_is_refused() -> None:
    view = replace(home().view(), language="tlh")
    with pytest.raises(IntentError, match="tlh"):
        Assistant(MemoryHome(view))
