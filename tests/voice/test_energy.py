from __future__ import annotations

import pytest

from appliance.voice.energy import EnergyEdge

FRAME_S = 0.01
ROOM, VOICE, TELEVISION = -65.0, -20.0, -35.0


class _Room:
    """Levels in, 10 ms each."""

    def __init__(self) -> None:
        self.edge, self.now_s = EnergyEdge(), 0.0

    def hear(
        self, level_dbfs: float, seconds: float, probability: float = 0.0, *, speaking: bool = False
    ) -> EnergyEdge:
        for _ in range(round(seconds / FRAME_S)):
            self.now_s += FRAME_S
            self.edge.push(level_dbfs, self.now_s, probability, speaking=speaking)
        return self.edge


@pytest.fixture
def spoken() -> _Room:
    """A quiet room in which somebody has just stopped speaking."""
    room = _Room()
    room.hear(ROOM, 1.0)
    room.hear(VOICE, 1.0, 0.9, speaking=True)
    return room


def test_before_any_speech_nothing_is_quiet() -> None:
    edge = _Room().hear(ROOM, 1.0)
    assert (edge.quiet_s, edge.faint_s, edge.loud_s) == (0.0, 0.0, None)


def test_the_end_of_sound_is_known_to_ten_milliseconds_while_the_detector_hangs_on(spoken: _Room) -> None:
    edge = spoken.hear(ROOM, 0.05, 0.9, speaking=True)
    assert edge.quiet_s == pytest.approx(0.05)
    assert edge.loud_s == pytest.approx(2.0)


def test_a_click_is_no_speech_and_two_frames_are(spoken: _Room) -> None:
    spoken.hear(ROOM, 0.1)
    assert spoken.hear(VOICE, 0.01).quiet_s == pytest.approx(0.11)
    spoken.hear(ROOM, 0.1)
    assert spoken.hear(VOICE, 0.02).quiet_s == 0.0


def test_breath_far_below_the_speaker_is_quiet(spoken: _Room) -> None:
    assert spoken.hear(VOICE - 30.0, 0.2, 0.3, speaking=True).quiet_s == pytest.approx(0.2)


def test_under_a_television_it_is_not_quiet_but_faint(spoken: _Room) -> None:
    edge = spoken.hear(TELEVISION, 1.0, 0.9, speaking=True)
    assert edge.quiet_s == 0.0
    assert edge.faint_s == pytest.approx(1.0)


def test_speech_goes_on_when_there_is_voice_and_energy_after_a_moment(spoken: _Room) -> None:
    edge = spoken.hear(ROOM, 0.1, 0.5)
    guessed_s = spoken.now_s
    assert not edge.goes_on(guessed_s)
    spoken.hear(VOICE, 0.02, 0.9)
    assert not edge.goes_on(guessed_s)
    spoken.hear(VOICE, 0.01, 0.9)
    assert edge.goes_on(guessed_s)


def test_a_slammed_door_is_not_speech_that_goes_on(spoken: _Room) -> None:
    spoken.hear(ROOM, 0.3)
    guessed_s = spoken.now_s
    assert not spoken.hear(VOICE, 0.1, 0.1).goes_on(guessed_s)


def test_a_television_is_not_the_speaker_going_on(spoken: _Room) -> None:
    guessed_s = spoken.now_s
    edge = spoken.hear(TELEVISION, 0.1, 0.9, speaking=True)
    assert edge.goes_on(guessed_s)
    assert not edge.goes_on(guessed_s, near=True)
    spoken.hear(VOICE, 0.03, 0.9, speaking=True)
    assert edge.goes_on(guessed_s, near=True)


def test_a_new_utterance_keeps_the_floor_and_forgets_the_speaker(spoken: _Room) -> None:
    spoken.edge.reset()
    edge = spoken.hear(VOICE, 0.1)
    assert edge.loud_s is None
    spoken.hear(ROOM + 5.0, 0.1, 0.9, speaking=True)
    assert edge.loud_s is None
