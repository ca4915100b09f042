"""Who steps back for whom, read off a session's events; what rings until somebody ends it."""

from __future__ import annotations

import pytest

from appliance import events
from appliance.alarm import RingingAlarm
from appliance.audio.ducking import Cause, Ducking
from appliance.audio.sounds import Sound
from appliance.courtesy import Courtesy
from tests.audio.fakes import eventually

LISTENING = events.ListeningStarted(1.0, "local", "u", None)
ENDPOINT = events.EndpointReached(2.0, "local", "u", "test")
FIRST_AUDIO = events.FirstAudio(3.0, "local", "u")
PLAYED = events.PlaybackEnded(4.0, "local", "u", stopped=False)
ENDED = events.UtteranceEnded(4.0, "local", "u", "answered")


def test_holds_follow_an_utterance_and_end_with_the_playback() -> None:
    ducking = Ducking()
    courtesy = Courtesy(ducking, "local")
    held = []
    for event in (LISTENING, ENDPOINT, FIRST_AUDIO, PLAYED, ENDED):
        courtesy(event)
        held.append(ducking.held())
    assert held == [(Cause.LISTENING,), (), (Cause.SPEECH,), (), ()]


@pytest.mark.parametrize("outcome", ["stopped", "failed", "nothing-heard"])
def test_however_an_utterance_ends_nothing_is_held_afterwards(outcome: str) -> None:
    ducking = Ducking()
    courtesy = Courtesy(ducking, "local")
    for event in (LISTENING, FIRST_AUDIO, events.UtteranceEnded(5.0, "local", "u", outcome)):
        courtesy(event)
    assert ducking.held() == ()
    assert ducking.expired == 0


def test_a_second_beginning_replaces_the_first_and_a_browser_ducks_nothing_here() -> None:
    ducking = Ducking()
    courtesy = Courtesy(ducking, "local")
    courtesy(LISTENING)
    courtesy(LISTENING)
    courtesy(events.FirstAudio(3.0, "browser", "b"))
    assert ducking.held() == (Cause.LISTENING,)
    courtesy(ENDED)
    assert ducking.held() == ()


def test_an_alarm_rings_until_it_is_hushed_or_its_time_is_over() -> None:
    played: list[Sound | None] = []
    alarm = RingingAlarm(played.append)
    alarm.hush()
    assert played == []
    alarm.ring(60.0)
    assert alarm.ringing
    alarm.hush()
    assert not alarm.ringing
    assert played == [Sound.RING, None]
    alarm.ring(0.02)
    eventually(lambda: not alarm.ringing)
    assert played == [Sound.RING, None, Sound.RING, None]


def test_an_alarm_that_is_to_ring_longer_does_not_end_with_its_first_time() -> None:
    played: list[Sound | None] = []
    alarm = RingingAlarm(played.append)
    alarm.ring(60.0)
    assert alarm._timer is not None
    over = alarm._timer.function
    alarm.ring(60.0)
    over()  # it was on its way already, and waited for the lock
    assert alarm.ringing
    assert None not in played
    alarm.hush()
