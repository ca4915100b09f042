from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from appliance.audio import keeper
from appliance.audio.capture import Microphone
from appliance.audio.frame import Frame
from appliance.audio.framing import Gap
from appliance.audio.keeper import DeviceState
from appliance.audio.spsc import Doorbell
from tests.audio.fakes import MICROPHONE, FakeHost, FakeStream, eventually

BLOCK = np.full(160, 0.25, dtype=np.float32)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "STALL_S", 0.2)
    monkeypatch.setattr(keeper, "FIRST_BLOCK_S", 0.3)
    monkeypatch.setattr(keeper, "BACK_OFF_S", (0.01, 0.02))


class Heard:
    """A microphone on a fake host, and everything it says."""

    def __init__(self, host: FakeHost, **options: object) -> None:
        self.host = host
        self.frames: list[Frame] = []
        self.states: list[DeviceState] = []
        self.gaps: list[Gap] = []
        self.sent = 0
        self.kept: list[tuple[str, int]] = []
        self.microphone = Microphone(
            MICROPHONE,
            self.frames.append,
            self.states.append,
            on_gap=self.gaps.append,
            keep_block=lambda name, block: self.kept.append((name, block)),
            host=host,
            **options,  # type: ignore[arg-type]
        )

    @property
    def phases(self) -> list[str]:
        return [state.phase for state in self.states]


@pytest.fixture
def heard() -> Iterator[Heard]:
    made = Heard(FakeHost())
    made.microphone.start()
    yield made
    made.microphone.close()


def test_frames_reach_the_sink_with_their_capture_times(heard: Heard) -> None:
    stream = heard.host.wait_opened()
    for number in range(10):
        stream.hear(BLOCK, 50.0 + (number + 1) * 0.01)
    eventually(lambda: len(heard.frames) == 10)
    assert [frame.seq for frame in heard.frames] == list(range(10))
    assert heard.frames[9].time_s == pytest.approx(50.09)
    assert heard.frames[0].samples == pytest.approx(BLOCK)
    eventually(lambda: heard.phases == ["running"])
    assert heard.microphone.stats().format == stream.format


def test_unplugged_and_plugged_in_again_it_goes_on_by_itself(heard: Heard) -> None:
    stream = heard.host.wait_opened()
    stream.hear(BLOCK)
    eventually(lambda: heard.phases == ["running"])
    heard.host.unplug()
    eventually(lambda: heard.phases[:2] == ["running", "lost"])
    assert stream.closed
    time.sleep(0.1)
    heard.host.plugged = True
    again = heard.host.wait_opened(2)
    again.hear(BLOCK)
    eventually(lambda: heard.phases[-1] == "running")
    assert [gap.cause for gap in heard.gaps] == ["lost"]
    assert heard.frames[-1].seq - heard.frames[0].seq > 5
    assert heard.microphone.stats().times_lost == 1


def test_a_device_that_falls_silent_without_a_word_is_lost_and_tried_again(heard: Heard) -> None:
    heard.host.wait_opened().hear(BLOCK)
    heard.host.wait_opened(2).hear(BLOCK)
    eventually(lambda: heard.phases == ["running", "lost", "running"])
    assert "nothing came" in heard.states[1].reason


def test_a_device_that_opens_but_never_gives_anything_is_never_called_running(heard: Heard) -> None:
    heard.host.wait_opened(2)
    assert heard.phases == ["lost"]
    assert "nothing came" in heard.states[0].reason


def test_one_that_is_not_there_at_first_is_found_when_it_comes(heard: Heard) -> None:
    late = Heard(FakeHost(plugged=False))
    late.microphone.start()
    eventually(lambda: late.phases == ["lost"])
    late.host.plugged = True
    late.host.wait_opened().hear(BLOCK)
    eventually(lambda: late.phases == ["lost", "running"])
    assert late.microphone.close()


def test_closing_closes_the_stream_before_it_returns_and_starting_hears_again(heard: Heard) -> None:
    stream = heard.host.wait_opened()
    stream.hear(BLOCK)
    eventually(lambda: len(heard.frames) == 1)
    assert heard.microphone.close()
    assert stream.closed
    assert heard.phases[-1] == "closed"
    heard.microphone.start()
    again = heard.host.wait_opened(2)
    again.hear(BLOCK)
    eventually(lambda: heard.phases[-1] == "running")
    eventually(lambda: len(heard.gaps) == 1)
    assert heard.gaps[0].cause == "closed"
    # What is missing on purpose is not held against the microphone.
    assert heard.microphone.stats().gaps == 0


def test_a_sink_that_fails_costs_a_stream_and_not_the_microphone() -> None:
    host = FakeHost()
    frames: list[Frame] = []
    states: list[DeviceState] = []

    def sink(frame: Frame) -> None:
        frames.append(frame)
        if len(frames) == 1:
            raise RuntimeError("the fake sink fails once")

    microphone = Microphone(MICROPHONE, sink, states.append, host=host).start()  # type: ignore[arg-type]
    host.wait_opened().hear(BLOCK)
    host.wait_opened(2).hear(BLOCK)
    eventually(lambda: len(frames) == 2)
    assert "fake sink" in states[0].reason
    assert microphone.close()


def test_lost_sound_is_told_and_three_losses_within_a_minute_make_the_blocks_larger(heard: Heard) -> None:
    arrival_s = 100.0

    def hear_for(stream: FakeStream, seconds: float) -> None:
        nonlocal arrival_s
        for number in range(round(seconds / 0.01)):
            if stream.closed:
                return
            arrival_s += 0.01
            stream.hear(BLOCK, arrival_s)
            heard.sent += 1
            if number % 50 == 49:
                eventually(lambda: stream.closed or len(heard.frames) == heard.sent)

    stream = heard.host.wait_opened()
    assert stream.format.block == 256
    hear_for(stream, 3.0)
    for _ in range(3):
        arrival_s += 0.1
        hear_for(stream, 3.0)
    eventually(lambda: len(heard.gaps) == 3)
    assert {gap.cause for gap in heard.gaps} == {"device"}
    assert heard.microphone.stats().lost_s == pytest.approx(0.3, abs=0.05)
    assert heard.host.wait_opened(2).format.block == 480
    assert "lost" not in heard.phases
    assert heard.kept == [(MICROPHONE.name, 480)]


def test_blocks_that_come_faster_than_they_are_taken_are_dropped_and_counted() -> None:
    host = FakeHost()
    held = threading.Event()
    frames: list[Frame] = []

    def sink(frame: Frame) -> None:
        held.wait(5.0)
        frames.append(frame)

    microphone = Microphone(MICROPHONE, sink, host=host, block=64).start()  # type: ignore[arg-type]
    stream = host.wait_opened()
    for number in range(300):
        stream.hear(BLOCK, 10.0 + number * 0.01)
    assert microphone.stats().overruns >= 99  # the ring holds two seconds
    held.set()
    eventually(lambda: len(frames) >= 200)
    for number in range(300, 310):
        stream.hear(BLOCK, 10.0 + number * 0.01)
    eventually(lambda: bool(frames) and frames[-1].time_s > 12.9)
    assert max(b.seq - a.seq for a, b in itertools.pairwise(frames)) > 80
    assert microphone.close()


@pytest.mark.parametrize("hurry", [True, False])
def test_blocks_are_taken_as_they_come_or_several_at_a_time_and_none_is_lost(
    hurry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung = []
    ring = Doorbell.ring
    monkeypatch.setattr(Doorbell, "ring", lambda bell: (rung.append(bell), ring(bell)))
    heard = Heard(FakeHost(), hurry=lambda: hurry)
    heard.microphone.start()
    try:
        stream = heard.host.wait_opened()
        for number in range(24):
            stream.hear(BLOCK, 50.0 + (number + 1) * 0.01)
        eventually(lambda: len(heard.frames) == 24)
        assert [frame.seq for frame in heard.frames] == list(range(24))
        assert heard.gaps == []
        assert len(rung) == (24 if hurry else 4)
    finally:
        heard.microphone.close()


def test_where_there_is_no_device_one_that_comes_is_found_long_before_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = [0]
    monkeypatch.setattr(keeper, "BACK_OFF_S", (60.0,))
    monkeypatch.setattr(keeper, "landscape", lambda: tuple(seen))
    heard = Heard(FakeHost(plugged=False))
    heard.microphone.start()
    try:
        eventually(lambda: heard.phases == ["lost"])
        heard.host.plugged = True
        seen[0] += 1
        heard.host.wait_opened()
    finally:
        heard.microphone.close()
