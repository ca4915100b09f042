"""The table: every row can be told, has a state, and asks for a command that exists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.mqtt.commands import COMMANDS, parse_command
from appliance.mqtt.controls import ControlsView, TimerView, Versions
from appliance.mqtt.entities import Platform, Topics, component, state_payloads
from appliance.mqtt.entities_table import ENTITIES
from appliance.mqtt.state_view import View
from tests.mqtt.bridge_fakes import BASE, WHOLE
from tests.mqtt.schema import ID, check_component, check_update_state

TOPICS = Topics(BASE, f"{BASE}/availability")
ROWS = {row.key: row for row in ENTITIES}


def states(view: View) -> dict[str, str]:
    return {
        topic.rpartition("/")[2]: payload.decode() for topic, payload in state_payloads(ENTITIES, TOPICS, view).items()
    }


def test_keys_are_unique_and_may_stand_in_topics() -> None:
    assert len(ROWS) == len(ENTITIES)
    assert all(ID.fullmatch(key) for key in ROWS)


@pytest.mark.parametrize("row", ENTITIES, ids=lambda row: row.key)
def test_every_row_is_as_home_assistant_documents_it(row) -> None:  # type: ignore[no-untyped-def]
    check_component(row.platform, component(row, TOPICS, WHOLE))


@pytest.mark.parametrize("row", [row for row in ENTITIES if row.command], ids=lambda row: row.key)
def test_every_command_of_a_row_takes_what_home_assistant_sends(row) -> None:  # type: ignore[no-untyped-def]
    sent = {
        Platform.BUTTON: "PRESS",
        Platform.NOTIFY: "Dinner is ready",
        Platform.NUMBER: "40",
        Platform.SELECT: "okay_nabu",
        Platform.SIREN: '{"state": "ON", "duration": 5}',
        Platform.SWITCH: "ON",
        Platform.TEXT: "Dinner is ready",
        Platform.UPDATE: "INSTALL",
    }
    assert row.command in COMMANDS
    assert parse_command(row.command, sent[row.platform].encode()).id is None


def test_what_is_asked_for_is_all_there() -> None:
    kinds = {(row.platform.value, row.key) for row in ENTITIES}
    assert {
        ("sensor", "state"), ("sensor", "response_time"), ("sensor", "response_time_p50"),
        ("sensor", "response_time_p95"), ("sensor", "temperature"), ("sensor", "throttling"),
        ("sensor", "engine_asr"), ("sensor", "engine_tts"), ("switch", "mute"), ("number", "volume"),
        ("number", "wake_sensitivity"), ("select", "wake_word"), ("select", "voice"), ("select", "language"),
        ("event", "wake"), ("event", "intent"), ("event", "timer"), ("button", "restart"), ("button", "test_sound"),
        ("notify", "notify_say"), ("notify", "notify_announce"), ("text", "say"), ("text", "announce"),
        ("siren", "alarm"), ("update", "update_system"), ("update", "update_models"),
    } <= kinds  # fmt: skip


def test_states_of_a_whole_machine() -> None:
    view = View(
        controls=replace(WHOLE, ringing=True),
        timers=(TimerView(3, "pasta", 300, 120.4, True),),
        phases={"local": "listening", "page": "responding"},
        last_intent="HassTurnOn",
        response_ms=(900, 300, 500, 400),
        temperature_c=51.26,
        heat="warm",
        engines={"asr": "ort-cpu int8"},
        models={"asr": "moonshine"},
    )
    told = states(view)
    assert told["state"] == "responding"
    assert told["last_intent"] == "HassTurnOn"
    assert (told["response_time"], told["response_time_p50"], told["response_time_p95"]) == ("400", "400", "900")
    assert told["temperature"] == "51.3"
    assert told["throttling"] == "warm"
    assert json.loads(told["engine_asr"]) == {"engine": "ort-cpu int8", "model": "moonshine"}
    assert told["mute"] == "OFF"
    assert told["volume"] == "60"
    assert told["wake_word"] == "okay_nabu"
    assert told["alarm"] == "ON"
    assert json.loads(told["timers"]) == {
        "count": 1,
        "timers": [{"id": 3, "name": "pasta", "total_s": 300, "state": "active"}],
    }


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    told = states(View(controls=WHOLE))
    for key in ("response_time", "response_time_p50", "temperature", "last_intent", "wake_sensitivity"):
        assert told[key] == "None", key


def test_a_machine_without_sound_devices_shows_none_of_their_entities() -> None:
    bare = View(controls=ControlsView())
    assert not {"mute", "volume", "wake_word", "wake_sensitivity", "alarm", "voice"} & states(bare).keys()
    assert not any(ROWS[key].present(bare.controls) for key in ("test_sound", "listen", "update_system"))


def test_a_wake_word_in_use_is_always_an_option() -> None:
    several = ControlsView(
        microphone="live", wake_words=("okay_nabu", "alexa"), wake_word_options=("okay_nabu", "alexa")
    )
    varies = ROWS["wake_word"].varies
    assert varies is not None
    assert varies(several) == {"options": ["okay_nabu", "alexa", "okay_nabu + alexa"]}
    assert states(View(controls=several))["wake_word"] == "okay_nabu + alexa"


@pytest.mark.parametrize(
    "versions",
    [
        Versions("1", None),
        Versions("1", "2"),
        Versions("1", "2", 40.0, True),
        Versions("1", "2", None, True),
        Versions(None, "2"),
    ],
)
def test_updates_are_told_as_documented(versions: Versions) -> None:
    told = states(View(controls=ControlsView(system=Versions("0.1", None), models=versions)))
    check_update_state(told["update_system"].encode())
    if versions.latest is not None:
        check_update_state(told["update_models"].encode())


def test_what_nobody_has_asked_for_is_not_said_to_be_up_to_date() -> None:
    told = json.loads(states(View(controls=ControlsView(system=Versions("0.1", None))))["update_system"])
    assert told["installed_version"] == "0.1"
    assert "latest_version" not in told
    assert ROWS["update_system"].command is None, "Wren cannot update itself yet"


def test_models_can_be_installed_only_where_there_is_something_to_install() -> None:
    row = ROWS["update_models"]
    assert "command_topic" not in component(row, TOPICS, WHOLE)
    can = ControlsView(models=Versions("1", "2"), models_can_install=True)
    assert component(row, TOPICS, can)["command_topic"] == TOPICS.command("install_models")


def test_no_two_rows_share_a_name_on_one_platform() -> None:
    named = [(row.platform, row.name) for row in ENTITIES]
    assert len(set(named)) == len(named)
    assert all(re.fullmatch(r"[A-Z].*", row.name) for row in ENTITIES)


def test_the_documentation_names_every_entity_and_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mqtt.md").read_text(encoding="utf-8")
    missing = [name for name in (*ROWS, *COMMANDS) if f"`{name}`" not in page]
    assert not missing
