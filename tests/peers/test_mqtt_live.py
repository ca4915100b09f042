"""A conversation in a room of virtual sound while the broker does its worst: it dies in mid-sentence, or is flooded.

All of Wren is real, and so are sound server and broker; the flood comes from a program of its own.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from appliance.app import Wren
from appliance.audio.frame import Samples
from appliance.service import LOCAL
from tests.peers.mosquitto import PASSWORDS, Gate, Mosquitto, Watcher, at, mosquitto, until
from tests.peers.mqtt_house import House, ask, latest, started, virtual_sound
from tests.peers.pulse import PulseServer
from tests.voice.conftest import say

pytestmark = [pytest.mark.models, pytest.mark.slow]

BACK_S = 5.0
ANSWER_S = 30.0
FLOOD = 10_000
LONG = (
    "The washing machine has finished, and the dryer has been waiting for it since half past nine. "
    "Please take the towels out before you leave, because the heating comes on at noon and the cellar gets damp."
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with mosquitto(folder, persistence=False) as running:
        yield running


@pytest.fixture
def house(
    wren: Wren, pulse: PulseServer, broker: Mosquitto, gate: Gate, watcher: Watcher, tmp_path: Path
) -> Iterator[House]:
    """Wren, with ears and a voice, at the broker."""
    with started(wren, at(broker, port=gate.port), tmp_path / "wren.toml", virtual_sound) as running:
        running.hear()
        until(lambda: latest(watcher, f"{running.base}/availability") == b"online", "online")
        yield running


@pytest.fixture(scope="module")
def command(wren: Wren) -> Samples:
    quiet = (1e-4 * np.random.default_rng(4).standard_normal(8000)).astype(np.float32)
    return np.concatenate((quiet, say(wren, "okay nabu, switch on the kitchen lights"), quiet))


@pytest.mark.parametrize(("end", "meanwhile"), [("stop", False), ("kill", True)])
def test_a_broker_that_is_restarted_in_mid_utterance_knows_how_things_stand_within_five_seconds(
    house: House,
    pulse: PulseServer,
    broker: Mosquitto,
    watcher: Watcher,
    gate: Gate,
    command: Samples,
    end: str,
    meanwhile: bool,
) -> None:
    """`meanwhile`: it comes back only after the answer. It keeps nothing: what it knows then is what it was told."""
    base = house.base

    def answered() -> bool:
        return any(trace.outcome == "answered" for trace in house.service.traces())

    pulse.say(command)
    until(lambda: latest(watcher, f"{base}/state/state") == b"listening", "it listens", ANSWER_S)
    watcher.absent()
    getattr(broker, end)()
    gate.shut()  # so that the watcher is back before Wren is, and sees all of it
    assert house.service.sessions()[LOCAL] == "listening", "the broker went in mid-utterance"
    if meanwhile:
        until(answered, "answered without a broker", ANSWER_S)
    broker.start()
    watcher.ready()
    seen = len(watcher.seen)
    gate.open()
    until(
        lambda: watcher.payloads(f"{base}/availability")[-1] == b"online" and len(watcher.seen) > seen, "back", BACK_S
    )
    if not meanwhile:
        until(answered, "answered", ANSWER_S)
    (trace,) = house.service.traces()
    right = {
        "state": b"idle",
        "last_intent": b"HassTurnOn",
        "response_time": b"%d" % round(1000 * (trace.response_s or 0.0)),
    }
    until(lambda: {key: latest(watcher, f"{base}/state/{key}") for key in right} == right, "all is right", BACK_S)
    late = Watcher(broker, f"{base}/state/#")
    until(lambda: len(late.seen) >= len(right), "what stands at the broker")
    assert {key: latest(late, f"{base}/state/{key}") for key in right} == right
    late.close()
    told = {
        name: [json.loads(payload) for payload in watcher.payloads(f"{base}/event/{name}")]
        for name in ("wake", "intent")
    }
    assert [event["wake_word"] for event in told["wake"]] == ["okay_nabu"]
    assert [(event["intent"], event["utterance"]) for event in told["intent"]] == [("HassTurnOn", trace.utterance)]
    assert house.local._runner.dropped_frames == 0


def test_an_announcement_is_done_when_its_last_sample_has_been_heard_and_not_before(
    house: House, pulse: PulseServer, watcher: Watcher
) -> None:
    with pulse.record() as recording:
        told = ask(house, watcher, "announce", text="The washing machine has finished, and so have I.")
        answered_s, so_far = time.monotonic(), recording.samples.size
        until(lambda: recording.samples.size > so_far + recording.rate_hz, "a second more")
        loud = np.flatnonzero(np.abs(recording.samples) > 0.02)
        last_s = recording.time_of(int(loud[-1]))
    assert told["outcome"] == "done"
    assert loud[-1] - loud[0] > 2.0 * recording.rate_hz
    assert np.diff(loud).max() > 0.15 * recording.rate_hz, "a sound makes people listen, and then come the words"
    assert last_s - 0.1 < answered_s < last_s + 1.5


def test_ten_thousand_messages_while_it_speaks_are_not_heard(
    house: House, pulse: PulseServer, broker: Mosquitto, watcher: Watcher
) -> None:
    base = house.base
    player = house.local._player
    before = player.stats()
    with pulse.record() as recording:
        watcher.publish(f"{base}/command/say", json.dumps({"text": LONG, "id": "long"}).encode())
        until(lambda: np.abs(recording.samples[-4800:]).max(initial=0.0) > 0.05, "it speaks", ANSWER_S)
        flood = threading.Thread(target=_flood, args=(broker, base))
        flood.start()
        until(lambda: any(b'"long"' in payload for payload in watcher.payloads(f"{base}/result")), "said", 120.0)
        flood.join()
    after = player.stats()
    (answer,) = [told for told in map(json.loads, watcher.payloads(f"{base}/result")) if told["id"] == "long"]
    assert answer["outcome"] == "done"
    assert (after.underruns, after.device_underruns) == (before.underruns, before.device_underruns)
    state = house.link.state()
    assert (state.connected, state.reconnects, state.faults) == (True, 0, 0)
    refused = [json.loads(payload) for payload in watcher.payloads(f"{base}/error")]
    assert refused
    assert len(refused) < FLOOD / 20, "a flood must not come back as one"


def _flood(broker: Mosquitto, base: str) -> None:
    """Bad commands, good ones too many, and what is no command, from another process."""
    topics = itertools.cycle([f"{base}/command/volume", f"{base}/command/mute", f"{base}/command/nonsense"])
    payload = json.dumps({"percent": 1000, "padding": "x" * 400})
    publishers = [
        subprocess.Popen(
            [
                *("mosquitto_pub", "-h", "127.0.0.1", "-p", str(broker.port), "-u", "home", "-P", PASSWORDS["home"]),
                *("-t", topic, "-l", "-q", "0"),
            ],
            stdin=subprocess.PIPE,
        )
        for topic in itertools.islice(topics, 3)
    ]
    for publisher, share in zip(publishers, (FLOOD // 2, FLOOD // 4, FLOOD - FLOOD // 2 - FLOOD // 4), strict=True):
        publisher.communicate(f"{payload}\n".encode() * share, timeout=60)
        assert publisher.returncode == 0
