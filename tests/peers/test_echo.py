"""The appliance's own sound in a room that plays it back at -6 dB: it does not wake itself, and can be stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import events
from appliance.app import Wren, WrenSettings
from appliance.voice.wake import WakeSettings
from tests.audio.fakes import eventually
from tests.peers.echo_room import REPLIES, EchoRoom, Try, human_wakes, spoken_stops
from tests.peers.pulse import pulse_server

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.shared, pytest.mark.timeout(600)]

REPLIES_S = 30.0
TRIES = 10
LEAST = 0.9


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EchoRoom]:
    with (
        Wren.open(WrenSettings(wake=WakeSettings(("okay_nabu", "alexa")))) as wren,
        pulse_server(tmp_path_factory.mktemp("pulse")) as pulse,
        EchoRoom(wren, pulse) as made,
    ):
        yield made


def test_wren_does_not_wake_or_stop_itself(room: EchoRoom) -> None:
    """Half a minute; benchmarks/echo_bench.py does ten."""
    count, wrong = room.reply_for(REPLIES_S)
    assert count >= 3
    assert wrong == []


def test_people_and_stop_end_a_reply(room: EchoRoom, shared: Path, tmp_path: Path) -> None:
    tries: list[Try] = []
    for number, said in enumerate([*human_wakes(shared, TRIES), *spoken_stops(room.service.wren, tmp_path, TRIES)]):
        tries.append(room.interrupt(number, said))
    print("silent after ms:", [None if one.silence_ms is None else round(one.silence_ms) for one in tries])
    assert sum(one.ended for one in tries) >= LEAST * len(tries)
    # A busy machine is late for some, a fault of ours for all.
    assert min(one.silence_ms for one in tries if one.silence_ms is not None) <= 100


def test_a_ringing_timer_steps_back_for_speech_and_stops_for_stop(room: EchoRoom, tmp_path: Path) -> None:
    assert room.local.ring(20.0)
    time.sleep(1.0)
    since = room.reply(REPLIES[1])
    eventually(lambda: bool(room.told(events.UtteranceEnded, since)), 30.0)
    assert room.local.ringing
    for said in spoken_stops(room.service.wren, tmp_path, 3):
        room.pulse.say(said).wait(20.0)
        time.sleep(1.5)
    assert not room.local.ringing
