"""Discovery messages, from one form to the other, and away: checked against the written schema, and on a fake Home
Assistant that knows entities the way the real one does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.mqtt.controls import ControlsView
from appliance.mqtt.discovery import DeviceInfo, Discovery, Mode, Outgoing, discovery_messages, transition
from appliance.mqtt.entities import Topics
from appliance.mqtt.entities_table import ENTITIES
from tests.mqtt.bridge_fakes import BASE, WHOLE, matches
from tests.mqtt.schema import check_component_message, check_device_message

MODES: tuple[Mode, ...] = ("device", "components", "both", "off")


def discovery(mode: Mode) -> Discovery:
    topics = Topics(BASE, f"{BASE}/availability")
    return Discovery(topics, DeviceInfo("Wren Küche", "PC", "0.1.0", "Kitchen"), mode=mode)


class FakeHomeAssistant:
    """Keeps entities as documented: found by platform and id; a device message lists them all; a component with its
    platform alone goes; an empty payload takes all of its topic away; migration keeps entities without a source."""

    def __init__(self, *, device_based: bool = True) -> None:
        self.device_based = device_based
        self.retained: dict[str, bytes] = {}
        self.source: dict[tuple[str, str], str | None] = {}
        self.lost: set[tuple[str, str]] = set()
        """Entities that were removed, with all that a person had set for them."""

    def take(self, topic: str, payload: bytes) -> None:
        if payload and payload != b'{"migrate_discovery":true}':
            self.retained[topic] = payload
        elif not payload:
            self.retained.pop(topic, None)
        _, platform, *middle, _ = topic.split("/")
        if platform == "device" and not self.device_based:
            return
        if payload == b'{"migrate_discovery":true}':
            for entity, source in self.source.items():
                if source == topic:
                    self.source[entity] = None
        elif not payload:
            self._remove({entity for entity, source in self.source.items() if source == topic})
        elif platform == "device":
            components = json.loads(payload)["cmps"]
            for key, told in components.items():
                entity = (told["p"], key)
                if set(told) == {"p"}:
                    self._remove({entity} & {known for known, source in self.source.items() if source == topic})
                else:
                    self._add(entity, topic)
        else:
            self._add((platform, middle[-1]), topic)

    def _add(self, entity: tuple[str, str], topic: str) -> None:
        if self.source.get(entity) in {None, topic}:  # another topic's claim is a conflict, and ignored
            self.source[entity] = topic

    def _remove(self, entities: set[tuple[str, str]]) -> None:
        for entity in entities:
            del self.source[entity]
        self.lost |= entities


def lead(home: FakeHomeAssistant, to: Discovery, found: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    """As the bridge does: farewells are said, the rest stands."""
    farewells, kept, removed = transition(to, found, wanted)
    for topic, payload in farewells:
        standing = dict(home.retained)
        home.take(topic, payload)
        home.retained = standing
    steps: list[Outgoing] = [*kept, *removed]
    for topic, payload in steps:
        home.take(topic, payload)


def expected(mode: Mode, controls: ControlsView, *, device_based: bool = True) -> set[tuple[str, str]]:
    if mode == "off" or (mode == "device" and not device_based):
        return set()
    whole = device_based and mode in {"device", "both"}
    return {
        (row.platform.value, row.key) for row in ENTITIES if row.present(controls) and (whole or not row.device_only)
    }


def test_the_device_message_is_as_documented() -> None:
    messages = discovery_messages(discovery("device"), ENTITIES, WHOLE)
    ((topic, payload),) = messages.items()
    assert topic == "homeassistant/device/wren-ab12/config"
    told = check_device_message(topic, payload)
    assert told["dev"]["sa"] == "Kitchen"
    assert {(c["p"], key) for key, c in told["cmps"].items()} == expected("device", WHOLE)


def test_every_component_message_is_as_documented() -> None:
    messages = discovery_messages(discovery("components"), ENTITIES, WHOLE)
    for topic, payload in messages.items():
        check_component_message(topic, payload)
    assert len(messages) == len(expected("components", WHOLE))


def test_a_person_may_choose_another_prefix() -> None:
    chosen = replace(discovery("both"), prefix="ha/discovery")
    messages = discovery_messages(chosen, ENTITIES, WHOLE)
    assert all(topic.startswith("ha/discovery/") for topic in messages)
    assert all(any(matches(pattern, topic) for pattern in chosen.filters) for topic in messages)


@pytest.mark.parametrize("mode", MODES)
def test_the_filters_match_all_that_may_stand_and_each_only_once(mode: Mode) -> None:
    for topic in discovery_messages(discovery(mode), ENTITIES, WHOLE):
        assert sum(matches(pattern, topic) for pattern in discovery(mode).filters) == 1


def test_nothing_is_sent_where_all_stands_already() -> None:
    wanted = discovery_messages(discovery("both"), ENTITIES, WHOLE)
    assert transition(discovery("both"), wanted, wanted) == ([], [], [])


@pytest.mark.parametrize("before", MODES)
@pytest.mark.parametrize("after", MODES)
def test_going_from_one_form_to_another_leaves_no_ghosts_and_loses_nothing(before: Mode, after: Mode) -> None:
    home = FakeHomeAssistant()
    old = discovery_messages(discovery(before), ENTITIES, WHOLE)
    for topic, payload in old.items():
        home.take(topic, payload)
    wanted = discovery_messages(discovery(after), ENTITIES, WHOLE)
    for topic, payload in wanted.items():  # what Wren tells at once, before it knows what stands
        home.take(topic, payload)
    lead(home, discovery(after), old, wanted)
    assert home.retained == wanted
    assert set(home.source) == expected(after, WHOLE)
    assert all(source in wanted for source in home.source.values())
    assert home.lost <= expected(before, WHOLE) - expected(after, WHOLE)


def test_an_entity_that_vanishes_is_taken_out_of_the_device_message() -> None:
    deaf = replace(WHOLE, microphone=None)
    home = FakeHomeAssistant()
    old = discovery_messages(discovery("device"), ENTITIES, WHOLE)
    new = discovery_messages(discovery("device"), ENTITIES, deaf)
    for topic, payload in old.items():
        home.take(topic, payload)
    lead(home, discovery("device"), old, new)
    assert set(home.source) == expected("device", deaf)
    assert ("switch", "mute") in home.lost
    check_device_message(*next(iter(home.retained.items())))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("device_based", [True, False])
def test_who_clears_what_the_filters_match_removes_all(mode: Mode, device_based: bool) -> None:
    home = FakeHomeAssistant(device_based=device_based)
    told = discovery_messages(discovery(mode), ENTITIES, WHOLE)
    for topic, payload in told.items():
        home.take(topic, payload)
    assert set(home.source) == expected(mode, WHOLE, device_based=device_based)
    for topic in told:
        if any(matches(pattern, topic) for pattern in discovery(mode).filters):
            home.take(topic, b"")
    assert home.source == {}
    assert home.retained == {}


@given(
    st.binary(max_size=200) | st.sampled_from([b"[" * 100_000, b'{"cmps": 3}', b'{"cmps": {"a": 1, "b": {"p": []}}}'])
)
def test_whatever_somebody_left_on_our_topics_is_replaced(left: bytes) -> None:
    chosen = discovery("device")
    wanted = discovery_messages(chosen, ENTITIES, WHOLE)
    found = {chosen.device_topic: left, "homeassistant/sensor/wren-ab12/old/config": left}
    _, kept, removed = transition(chosen, found, wanted)
    standing = {topic: payload for topic, payload in found.items() if payload}
    standing |= dict([*kept, *removed])
    assert {topic: payload for topic, payload in standing.items() if payload} == wanted or not left
