from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio import feed, keeper, playback
from appliance.audio.adaptive import PLAYBACK
from appliance.audio.frontend import PlayedTap
from appliance.audio.keeper import DeviceState
from appliance.audio.playback import DevicePlayer, PlayerSettings
from appliance.audio.sounds import Sound
from tests.audio.fakes import SPEAKER, FakeHost, FakeStream, eventually

RATE = 22_050
FULL = PlayerSettings(volume=100.0)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "BACK_OFF_S", (0.01, 0.02))


class FakeSpeaker:
    """A fake device that takes a block every 10 ms, as long as it is plugged in, and keeps what it played."""

    def __init__(self, host: FakeHost, delay_s: float = 0.03) -> None:
        self.host = host
        self.delay_s = delay_s
        self.asleep = False
        """It takes nothing, as a sink that its server has sent to sleep."""
        self.played: list[np.ndarray] = []
        self.times: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._over.is_set():
            streams = [stream for stream in self.host.streams if stream.alive() and not stream.resting]
            if streams and not self.asleep:
                self.played.append(streams[-1].play(480, self.delay_s)[:, 0].copy())
                self.times.append(time.monotonic())
            due_s = max(due_s + 0.01, time.monotonic() - 0.05)
            time.sleep(max(0.0, due_s - time.monotonic()))

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    @property
    def sound(self) -> np.ndarray:
        return np.concatenate(self.played)


class Played:
    """Collects what the player posts."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, float]] = []

    def __call__(self, generation: int) -> None:
        self.posted.append((generation, time.monotonic()))


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def speaker(host: FakeHost) -> Iterator[FakeSpeaker]:
    made = FakeSpeaker(host)
    yield made
    made.close()


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def player(host: FakeHost, played: Played) -> Iterator[DevicePlayer]:
    states: list[DeviceState] = []
    made = DevicePlayer(SPEAKER, played, states.append, host=host, settings=FULL)  # type: ignore[arg-type]
    made.start()
    host.wait_opened().play(480)
    eventually(lambda: [state.phase for state in states] == ["running"])
    yield made
    made.close()


def _tone(seconds: float) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def _say(player: DevicePlayer, generation: int, seconds: float) -> None:
    player.begin(generation, RATE)
    player.write(_tone(seconds))
    player.finish()


def test_played_is_posted_when_the_last_sample_is_heard_and_not_when_it_is_written(
    player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    eventually(lambda: len(speaker.played) > 2)
    player.begin(7, RATE)
    for piece in np.array_split(_tone(0.4), 5):
        player.write(piece)
    player.finish()
    assert played.posted == []
    eventually(lambda: played.posted != [])
    generation, at_s = played.posted[0]
    assert generation == 7
    last = max(i for i, block in enumerate(speaker.played) if np.abs(block).max() > 0.01)
    heard_s = speaker.times[last] + speaker.delay_s
    assert heard_s <= at_s < heard_s + 0.06
    assert player.stats().underruns == 0


def test_the_pieces_come_out_as_one_sound_at_the_rate_of_the_device(
    player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    player.begin(1, RATE)
    for piece in np.array_split(_tone(0.5), 23):
        player.write(piece)
    player.finish()
    eventually(lambda: played.posted != [])
    sound = speaker.sound
    at = np.flatnonzero(np.abs(sound) > 1e-4)
    heard = sound[at[0] : at[-1] + 1]
    assert heard.size == pytest.approx(0.5 * 48_000, abs=100)
    inner = heard[1000:-1000]
    turn = 2 * np.pi * 440 * np.arange(inner.size) / 48_000
    waves = np.stack([np.sin(turn), np.cos(turn)], axis=1)
    fit = np.linalg.lstsq(waves, inner, rcond=None)[0]
    assert np.abs(inner - waves @ fit).max() < 1e-3


def test_stop_posts_nothing_and_is_silent_within_two_blocks(
    player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    player.begin(1, RATE)
    player.write(_tone(3.0))
    player.finish()
    eventually(lambda: len(speaker.played) > 3 and np.abs(speaker.played[-1]).max() > 0.3)
    player.stop()
    stopped = len(speaker.played)
    eventually(lambda: len(speaker.played) > stopped + 10)
    # One block may have been on its way, the next fades.
    assert np.abs(np.concatenate(speaker.played[stopped + 2 :])).max() == 0.0
    assert played.posted == []
    player.write(_tone(0.1))
    player.finish()
    time.sleep(0.1)
    assert played.posted == []


def test_a_reply_that_begins_while_another_plays_is_the_only_one_that_is_posted(
    player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    player.begin(1, RATE)
    player.write(_tone(3.0))
    player.finish()
    eventually(lambda: len(speaker.played) > 3)
    player.begin(2, RATE)
    player.write(_tone(0.1))
    player.finish()
    eventually(lambda: played.posted != [])
    assert [generation for generation, _ in played.posted] == [2]


def test_while_the_speaker_is_away_time_goes_on_and_the_session_is_told(
    host: FakeHost, player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    player.begin(1, RATE)
    player.write(_tone(0.8))
    player.finish()
    began_s = time.monotonic()
    eventually(lambda: len(speaker.played) > 5)
    host.unplug()
    eventually(lambda: played.posted != [])
    assert played.posted[0][0] == 1
    assert 0.7 < played.posted[0][1] - began_s < 1.6
    host.plugged = True
    host.wait_opened(2)
    player.begin(2, RATE)
    player.write(_tone(0.1))
    player.finish()
    eventually(lambda: len(played.posted) == 2)
    assert player.stats().times_lost == 1
    assert np.abs(np.concatenate(speaker.played[-20:])).max() > 0.3


def test_a_speaker_that_never_was_there_keeps_nobody_waiting(played: Played) -> None:
    states: list[DeviceState] = []
    player = DevicePlayer(
        SPEAKER,
        played,
        states.append,
        host=FakeHost(plugged=False),  # type: ignore[arg-type]
    ).start()
    eventually(lambda: [state.phase for state in states] == ["lost"])
    player.begin(3, RATE)
    player.write(_tone(0.2))
    player.finish()
    eventually(lambda: [generation for generation, _ in played.posted] == [3])
    assert player.close()


def test_a_sound_can_be_played_without_a_reply(player: DevicePlayer, speaker: FakeSpeaker, played: Played) -> None:
    eventually(lambda: len(speaker.played) > 2)
    player.play_sound(Sound.WAKE)
    eventually(lambda: np.abs(speaker.sound).max() > 0.05)
    eventually(lambda: not player.sounding)
    assert played.posted == []


def test_volume_is_kept_between_0_and_100_and_heard(player: DevicePlayer, speaker: FakeSpeaker) -> None:
    player.volume = 140
    assert player.volume == 100
    player.volume = 50
    player.begin(1, RATE)
    player.write(_tone(0.3))
    player.finish()
    eventually(lambda: not player.sounding)
    assert np.abs(speaker.sound).max() == pytest.approx(0.5 * 0.125, rel=0.02)


def test_more_speech_than_anybody_would_listen_to_is_refused_and_counted(
    player: DevicePlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_QUEUED_S", 2.0)
    player.begin(1, RATE)
    for _ in range(5):
        player.write(_tone(1.0))
    assert 1.0 < player.stats().refused_s <= 3.0
    player.stop()


def test_a_device_that_runs_dry_again_and_again_is_opened_with_larger_blocks(
    host: FakeHost, player: DevicePlayer
) -> None:
    kept: list[tuple[str, int]] = []
    player._keep_block = lambda name, block: kept.append((name, block))
    first = host.stream
    assert first.format.block == 480
    player.begin(1, RATE)
    player.write(_tone(0.2))
    player.finish()
    eventually(lambda: np.abs(first.play(480)).max() > 0.1)
    for _ in range(3):
        first.play(480, dry=True)
    assert player.stats().device_underruns == 3
    assert len(host.streams) == 1  # not while it speaks

    def drained() -> bool:
        if not first.closed:
            first.play(480)
        return len(host.streams) == 2

    eventually(drained)
    assert host.stream.format.block == 960
    assert kept == [(SPEAKER.name, 960)]


def test_a_driver_that_is_short_of_sound_and_does_not_say_so_is_found_by_the_clock(
    host: FakeHost, player: DevicePlayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0

    class FakeTime:
        @staticmethod
        def monotonic() -> float:
            return now_s

    player.begin(1, RATE)
    player.write(_tone(8.0))
    monkeypatch.setattr(playback, "time", FakeTime)
    stream: FakeStream = host.stream
    for number in range(600):
        now_s += 0.01 + (0.06 if number == 300 else 0.0)
        stream.play(480)
        if number % 30 == 29:
            time.sleep(0.02)  # the feeder's turn
    monkeypatch.undo()
    assert player.stats().device_underruns == 1


def test_a_reply_that_comes_unevenly_is_met_by_a_deeper_buffer_and_a_steady_one_again_by_less(
    host: FakeHost, player: DevicePlayer, speaker: FakeSpeaker, played: Played
) -> None:
    assert player.stats().depth_s == PLAYBACK.first_s
    assert player.stats().rtf is None
    player.begin(1, RATE)
    player.write(_tone(0.1))
    time.sleep(0.25)
    player.write(_tone(0.1))
    player.finish()
    eventually(lambda: played.posted != [])
    stats = player.stats()
    assert stats.underruns == 1
    assert PLAYBACK.first_s + PLAYBACK.underrun_s <= stats.depth_s <= PLAYBACK.most_s
    assert stats.rtf == pytest.approx(2.5, rel=0.4)
    player.begin(2, RATE)
    player.write(_tone(stats.depth_s - 0.02))
    heard = len(speaker.played)
    eventually(lambda: len(speaker.played) > heard + 5)
    assert not np.abs(np.concatenate(speaker.played[heard:])).any()  # not enough to begin with, by now
    player.write(_tone(0.05))
    player.finish()
    eventually(lambda: len(played.posted) == 2)
    assert player.stats().underruns == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20_000)), max_size=20))
def test_pieces_are_late_only_by_what_a_player_would_have_to_wait_for_them(pieces: list[tuple[float, int]]) -> None:
    pace = feed.Pace(RATE)
    now_s = waited_s = sound_s = 0.0
    first_s: float | None = None
    for step_s, samples in pieces:
        now_s += step_s
        came = pace.piece(now_s, samples)
        if first_s is None:
            first_s = now_s
            assert came is None
        elif came is not None:
            late_s, rtf = came
            assert late_s >= 0.0
            assert rtf >= 0.0
            waited_s += late_s
            # With all the pauses so far, every piece was there when it was due.
            assert now_s <= first_s + sound_s + waited_s + 1e-9
        sound_s += samples / RATE


class Restful:
    """A started player, and what is told of its device (which rests after `playback.REST_S` of silence)."""

    def __init__(self, host: FakeHost, played: Played, tap: PlayedTap | None = None) -> None:
        self.states: list[DeviceState] = []
        self.player = DevicePlayer(
            SPEAKER,
            played,
            self.states.append,
            settings=FULL,
            tap=tap,
            host=host,  # type: ignore[arg-type]
        ).start()

    def __enter__(self) -> Restful:
        return self

    def __exit__(self, *_: object) -> None:
        self.player.close()

    @property
    def phase(self) -> str:
        return self.states[-1].phase if self.states else ""


@pytest.fixture
def restful(host: FakeHost, speaker: FakeSpeaker, played: Played, monkeypatch: pytest.MonkeyPatch) -> Iterator[Restful]:
    monkeypatch.setattr(playback, "REST_S", 0.1)
    with Restful(host, played) as made:
        yield made


def test_after_a_while_of_silence_the_device_rests_and_plays_the_next_reply_all_the_same(
    host: FakeHost, speaker: FakeSpeaker, played: Played, restful: Restful
) -> None:
    eventually(lambda: restful.player.resting)
    _say(restful.player, 1, 0.2)
    eventually(lambda: bool(played.posted))
    assert np.abs(speaker.sound).max() > 0.1
    assert restful.player.stats().device_underruns == 0  # the rest is not taken for sound that was lost
    eventually(lambda: restful.player.resting)
    assert len(host.streams) == 1


def test_a_device_that_may_be_needed_soon_does_not_rest(restful: Restful) -> None:
    eventually(lambda: restful.player.resting)
    restful.player.prepare(2.0)
    eventually(lambda: not restful.player.resting)
    time.sleep(0.5)
    assert not restful.player.resting


def test_a_speaker_that_is_gone_when_it_is_needed_again_keeps_nobody_waiting(
    host: FakeHost, played: Played, restful: Restful
) -> None:
    eventually(lambda: restful.player.resting)
    host.unplug()
    _say(restful.player, 1, 0.2)
    eventually(lambda: bool(played.posted))
    assert restful.phase == "lost"
    assert not restful.player.resting
    host.plugged = True
    eventually(lambda: restful.phase == "running")


def test_a_sink_that_slept_while_its_device_rested_may_take_its_time_to_wake(
    speaker: FakeSpeaker, played: Played, restful: Restful, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it is opened: a stall would be told after `STALL_S`, and the reply's beginning be lost."""
    monkeypatch.setattr(keeper, "STALL_S", 0.5)
    eventually(lambda: restful.player.resting)
    speaker.asleep = True
    _say(restful.player, 1, 0.2)
    eventually(lambda: not restful.player.resting)
    time.sleep(1.0)
    speaker.asleep = False
    eventually(lambda: bool(played.posted))
    assert [state.phase for state in restful.states] == ["running"]
    assert np.abs(speaker.sound).max() > 0.1


def test_a_speaker_that_comes_back_tells_when_its_sound_is_heard_from_the_first_block_on(
    host: FakeHost, speaker: FakeSpeaker, played: Played
) -> None:
    """Else the echo's reference would be late by as long as it was away."""
    tap = PlayedTap()
    with Restful(host, played, tap) as used:
        eventually(lambda: bool(used.states))
        time.sleep(0.1)
        host.unplug()
        eventually(lambda: used.phase == "lost")
        time.sleep(1.0)
        host.plugged = True
        eventually(lambda: used.phase == "running")
        used.player.play_sound(Sound.WAKE)
        began_s = time.monotonic()
        eventually(lambda: not used.player.sounding)
        heard = [block.heard_s for block in tap.read()]
        assert heard
        assert heard[-1] > began_s - 0.4  # of a machine that is busy, and far from the second that it was away


def test_a_device_that_cannot_be_stopped_is_left_running(
    host: FakeHost, speaker: FakeSpeaker, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be lost and opened again for ever, a few seconds apart."""
    monkeypatch.setattr(playback, "REST_S", 0.05)
    host.restless = True
    with Restful(host, played) as restless:
        eventually(lambda: len(host.streams) == 1 + keeper.MAX_BAD_RESTS and restless.phase == "running")
        time.sleep(0.6)
        assert len(host.streams) == 1 + keeper.MAX_BAD_RESTS
        assert restless.phase == "running"
        assert not restless.player.resting
