"""Home files are read as they are meant, or refused with one line that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import HomeFileError
from appliance.intent.home_file import MAX_BYTES, load_home_file, parse_home
from appliance.intent.types import Entity
from tests.intent.shared import shared


def view_of(**body: Any) -> Any:
    return parse_home(json.dumps(body).encode(), "home.json")


def only(**body: Any) -> Entity:
    (entity,) = view_of(entities=[body]).entities
    return entity


@pytest.mark.shared
def test_the_home_of_the_spoken_commands_is_read_whole() -> None:
    view = load_home_file(shared("speech", "commands", "home.json"))
    body = json.loads(shared("speech", "commands", "home.json").read_text(encoding="utf-8"))
    assert view.satellite_area == "Kitchen"
    assert [a.name for a in view.areas] == [a["name"] for a in body["areas"]]
    assert [e.name for e in view.entities] == [e["name"] for e in body["entities"]]
    assert len({e.id for e in view.entities}) == len(view.entities)
    assert {e.id for e in view.entities} >= {"media_player.tv", "media_player.tv_2"}


def test_an_empty_home_is_a_home() -> None:
    view = view_of()
    assert (view.language, view.satellite_area, view.areas, view.entities) == ("en", None, (), ())


def test_unknown_keys_are_kept_among_the_attributes() -> None:
    entity = only(name="Heat", domain="climate", current_temperature=21, attributes={"unit": "°C"})
    assert entity.attributes == {"current_temperature": 21, "unit": "°C"}


def test_a_device_class_among_the_attributes_counts() -> None:
    assert only(name="W", domain="cover", attributes={"device_class": "window"}).device_class == "window"
    assert only(name="W", domain="cover", device_class="door", attributes={"device_class": "x"}).device_class == "door"


def test_states_of_any_kind_become_text() -> None:
    states = {True: "on", False: "off", 48: "48", 1.5: "1.5", "open": "open", None: "unknown"}
    for given, state in states.items():
        assert only(name="S", domain="sensor", state=given).state == state


def test_a_light_that_does_not_say_what_it_supports_can_do_all() -> None:
    assert only(name="L", domain="light").supports == {"brightness", "color", "color_temp"}
    assert only(name="L", domain="light", supports=[]).supports == frozenset()


def test_an_unlisted_area_or_floor_is_added(caplog: pytest.LogCaptureFixture) -> None:
    view = view_of(
        areas=[{"name": "Attic", "floor": "Top"}], entities=[{"name": "L", "domain": "light", "area": "Shed"}]
    )
    assert [a.name for a in view.areas] == ["Attic", "Shed"]
    assert [f.name for f in view.floors] == ["Top"]
    assert "Shed" in caplog.text


def test_an_area_is_found_by_alias_and_without_case() -> None:
    view = view_of(
        areas=[{"name": "Living Room", "aliases": ["Lounge"]}],
        satellite_area="living room",
        entities=[{"name": "L", "domain": "light", "area": "lounge"}],
    )
    assert view.satellite_area == view.entities[0].area == "Living Room"


def test_a_byte_order_mark_does_not_matter() -> None:
    assert parse_home(b"\xef\xbb\xbf{}", "home.json").language == "en"


BROKEN = {
    "not JSON": (b"{oops", "not JSON"),
    "empty": (b"", "not JSON"),
    "binary": (b"\x00\xff\xfe", "not UTF-8"),
    "a list": (b"[]", "valid dictionary"),
    "deep nesting": (b"[" * 100_000, "nested too deeply"),
    "deep attributes": (
        b'{"entities": [{"name": "a", "domain": "light", "attributes": {"x": '
        + b"[" * 50_000
        + b"]" * 50_000
        + b"}}]}",
        "nested too deeply",
    ),
    "a huge number": (b'{"entities": [{"name": "a", "domain": "b", "state": ' + b"9" * 5000 + b"}]}", "not allow"),
    "NaN": (b'{"x": NaN}', "NaN"),
    "a nameless entity": (b'{"entities": [{"domain": "light"}]}', "entities.0.name"),
    "a blank name": (b'{"areas": [{"name": "  "}]}', "areas.0.name"),
    "a domain that is none": (b'{"entities": [{"name": "a", "domain": "Light Bulb"}]}', "Light Bulb"),
    "names that are numbers": (b'{"areas": [{"name": 5}]}', "got 5"),
    "areas that are text": (b'{"areas": "Kitchen"}', "areas"),
    "half a character": (b'{"areas": [{"name": "\\ud800"}]}', "areas.0.name"),
    "an area twice": (b'{"areas": [{"name": "Kitchen"}, {"name": "kitchen"}]}', "'kitchen' is there twice"),
    "a floor twice": (b'{"floors": [{"name": "Up"}, {"name": "Up"}]}', "'Up' is there twice"),
    "a lost microphone": (b'{"satellite_area": "Kitchn", "areas": [{"name": "Kitchen"}]}', "Kitchn"),
    "an unknown language": (b'{"language": "tlh"}', "tlh"),
}


@pytest.mark.parametrize(("raw", "says"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_file_is_refused_in_one_line_that_names_the_value(tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "home.json"
    path.write_bytes(raw)
    with pytest.raises(HomeFileError) as refusal:
        load_home_file(path)
    message = str(refusal.value)
    assert says in message
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 500


def test_what_is_no_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HomeFileError, match=r"no home file .*check the path"):
        load_home_file(tmp_path / "absent.json")
    with pytest.raises(HomeFileError, match="is a directory"):
        load_home_file(tmp_path)
    with pytest.raises(HomeFileError, match="cannot be read"):
        load_home_file("\0")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "home.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(HomeFileError, match="at most"):
        load_home_file(path)
    with pytest.raises(HomeFileError, match="more than"):
        load_home_file("/dev/zero")
