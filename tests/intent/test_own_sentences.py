"""Sentences that Home Assistant's package lacks: whole classes of them, in homes of their own."""

from __future__ import annotations

import pytest

from appliance.intent.assistant import Assistant
from tests.intent.homes import assistant, entity

CEILING = entity("Ceiling", area="Office")
BLIND = entity("North Blind", "cover", "Office", device_class="blind")
SHADE = entity("Sun Shade", "cover", "Kitchen", device_class="shade")
GARAGE = entity("Big Door", "cover", device_class="garage")


@pytest.fixture(scope="module")
def who() -> Assistant:
    return assistant(CEILING, BLIND, SHADE, GARAGE)


@pytest.mark.parametrize(
    ("text", "intent", "slots"),
    [
        ("close all the blinds in the office", "HassTurnOff", {"device_class": "blind", "area": "Office"}),
        ("open all of the office blinds", "HassTurnOn", {"device_class": "blind", "area": "Office"}),
        ("open the garage", "HassTurnOn", {"domain": "cover", "device_class": "garage"}),
        ("please close the garage", "HassTurnOff", {"domain": "cover", "device_class": "garage"}),
        ("open the sun shade halfway", "HassSetPosition", {"name": "Sun Shade", "position": 50}),
        ("close north blind half way", "HassSetPosition", {"name": "North Blind", "position": 50}),
        ("open the office blinds halfway", "HassSetPosition", {"area": "Office", "position": 50}),
        ("open the shades halfway", "HassSetPosition", {"area": "Kitchen", "position": 50}),
        ("make the office brighter", "HassLightSet", {"area": "Office", "brightness_step": "up"}),
        ("make the office darker", "HassLightSet", {"area": "Office", "brightness_step": "down"}),
        ("are the lights on", "HassGetState", {"domain": "light", "state": "on", "area": "Kitchen"}),
        ("is the light off in here", "HassGetState", {"domain": "light", "state": "off", "area": "Kitchen"}),
        ("set the office lights to blue", "HassLightSet", {"area": "Office", "color": "blue"}),
        ("open all of the blinds", "HassTurnOn", {"domain": "cover", "device_class": "blind"}),
    ],
)
def test_a_sentence_of_our_own_is_understood(who: Assistant, text: str, intent: str, slots: dict[str, object]) -> None:
    understood = who.match(text)
    assert understood.intent == intent
    assert {name: understood.slots.get(name) for name in slots} == slots


@pytest.mark.parametrize("behind", ["please", "thank you", "for me"])
def test_a_courtesy_behind_a_sentence_means_nothing(who: Assistant, behind: str) -> None:
    assert who.match(f"what can you do {behind}").intent == "HassRespond"
    assert who.match(f"play {behind}").slots["search_query"] == behind


def test_a_garage_is_still_a_room_where_one_is_meant(who: Assistant) -> None:
    assert who.match("turn on the garage").intent is None
    home = assistant(entity("Garage Light", area="Garage"), GARAGE)
    assert home.match("turn on the garage light").slots["name"] == "Garage Light"
