"""The home in memory does what it is told, once, and keeps it."""

from __future__ import annotations

import asyncio

import pytest

from appliance.intent.assistant import Assistant
from appliance.intent.memory_home import MemoryHome, default_home
from appliance.intent.types import Entity, HomeCommand, UtteranceId
from tests.intent.homes import entity, home, say, state_of

EFFECTS = [
    ("turn on the x", entity("X", "light", state="off"), {"state": "on"}),
    ("turn off the x", entity("X", "switch", state="on"), {"state": "off"}),
    ("set x to 40 percent", entity("X", "light"), {"state": "on", "brightness": 102}),
    ("set x to 0 percent", entity("X", "light", state="on"), {"state": "off"}),
    ("dim x", entity("X", "light", state="on", attributes={"brightness": 255}), {"brightness": 204}),
    ("dim x", entity("X", "light", state="on", attributes={"brightness": 20}), {"brightness": 13, "state": "on"}),
    ("brighten x", entity("X", "light", state="off"), {"brightness": 51, "state": "on"}),
    ("set x to red", entity("X", "light"), {"state": "on", "color_name": "red"}),
    ("set x to warm white", entity("X", "light"), {"color_temp_kelvin": 2700}),
    ("open x", entity("X", "cover", state="closed"), {"state": "open", "current_position": 100}),
    ("close x", entity("X", "valve", state="open"), {"state": "closed", "current_position": 0}),
    ("set x to 30 percent", entity("X", "cover"), {"state": "open", "current_position": 30}),
    ("lock x", entity("X", "lock", state="unlocked"), {"state": "locked"}),
    ("unlock x", entity("X", "lock", state="locked"), {"state": "unlocked"}),
    ("set x to 30 percent", entity("X", "fan"), {"state": "on", "percentage": 30}),
    ("set x to 21 degrees", entity("X", "climate", state="heat"), {"state": "heat", "temperature": 21}),
    ("turn off x", entity("X", "climate", state="heat"), {"state": "off"}),
    ("pause x", entity("X", "media_player", state="playing"), {"state": "paused"}),
    ("resume x", entity("X", "media_player", state="paused"), {"state": "playing"}),
    ("next track on x", entity("X", "media_player", state="playing"), {"media_track": 1}),
    ("mute x", entity("X", "media_player"), {"is_volume_muted": True}),
    ("unmute x", entity("X", "media_player"), {"is_volume_muted": False}),
    ("set x volume to 30", entity("X", "media_player"), {"volume_level": 0.3}),
    ("decrease x volume by 20", entity("X", "media_player", attributes={"volume_level": 0.1}), {"volume_level": 0.0}),
    ("play jazz on x", entity("X", "media_player", attributes={"media": ["Jazz"]}), {"media_title": "jazz"}),
    ("start x", entity("X", "vacuum", state="docked"), {"state": "cleaning"}),
    ("return x to base", entity("X", "vacuum", state="cleaning"), {"state": "returning"}),
    ("vacuum the office with x", entity("X", "vacuum"), {"state": "cleaning", "cleaning_area": "Office"}),
    ("start x", entity("X", "lawn_mower", state="docked"), {"state": "mowing"}),
    ("dock x", entity("X", "lawn_mower", state="mowing"), {"state": "returning"}),
    ("activate x", entity("X", "scene"), {"state": "activated", "starts": 1}),
    ("run x", entity("X", "script"), {"state": "started", "starts": 1}),
    ("press x", entity("X", "button"), {"state": "pressed"}),
    ("turn on x", entity("X", "siren", state="off"), {"state": "on"}),
    ("broadcast dinner is ready", entity("X", "media_player"), {"announcement": "dinner is ready"}),
]


@pytest.mark.parametrize(("text", "thing", "after"), EFFECTS, ids=[f"{t} ({e.domain})" for t, e, _ in EFFECTS])
def test_a_command_has_its_effect(text: str, thing: Entity, after: dict[str, object]) -> None:
    house = home(thing)
    version = house.view().version
    reply = say(Assistant(house), text)
    assert reply.ok, reply
    changed = state_of(house, "X")
    assert {name: getattr(changed, name, changed.attributes.get(name)) for name in after} == after
    assert house.view().version == version + 1


def test_only_what_is_meant_changes() -> None:
    house = home(entity("A", area="Kitchen", state="off"), entity("B", area="Office", state="off"))
    say(Assistant(house), "turn on the lights")
    assert [e.state for e in house.view().entities] == ["on", "off"]


def test_everything_spares_locks_covers_and_heating() -> None:
    domains = ("light", "switch", "fan", "media_player", "lock", "cover", "climate")
    house = home(*(entity(f"X {d}", d, state="on") for d in domains))
    say(Assistant(house), "turn everything off in the house")
    assert {e.domain for e in house.view().entities if e.state == "off"} == {"light", "switch", "fan", "media_player"}


def test_lights_that_cannot_are_left_as_they_are() -> None:
    house = home(
        entity("A", area="Kitchen", state="off", supports=frozenset()), entity("B", area="Kitchen", state="off")
    )
    assert say(Assistant(house), "set the kitchen lights to red").ok
    assert [e.state for e in house.view().entities] == ["off", "on"]


def test_one_key_acts_once() -> None:
    house = home(entity("X", "media_player", attributes={"volume_level": 0.5}))
    command = HomeCommand("HassSetVolumeRelative", {"volume_step": "up"}, ("media_player.x_none",))

    async def act() -> None:
        first = await house.act(command, UtteranceId("k"))
        again = await house.act(command, UtteranceId("k"))
        assert (first.changed, first.repeated) == (("media_player.x_none",), False)
        assert (again.changed, again.repeated) == (("media_player.x_none",), True)
        for n in range(2000):  # the memory of keys is bounded
            await house.act(HomeCommand("HassTurnOn", {}, ()), UtteranceId(f"n{n}"))
        assert len(house._done) <= 1000

    asyncio.run(act())
    assert state_of(house, "X").attributes["volume_level"] == 0.6


def test_the_home_of_the_demo_is_sound() -> None:
    house = default_home()
    assert isinstance(house, MemoryHome)
    view = house.view()
    assert view.satellite_area == "Kitchen"
    domains = {e.domain for e in view.entities}
    assert domains >= {"light", "climate", "lock", "cover", "sensor", "weather", "media_player", "todo", "scene"}
    assert {e.area for e in view.entities} <= {a.name for a in view.areas} | {None}
