"""Stages with limits, breakers and meters around them; and what each step of the ladder makes of a reply."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from appliance.audio.frame import Samples
from appliance.errors import SpeechError
from appliance.intent.types import Reply, Understanding, UtteranceId
from appliance.voice import loop
from appliance.voice.asr.protocol import Bias, Cancel, Cancelled, Hypothesis
from appliance.voice.breaker import Breakers, BreakerSettings
from appliance.voice.feeding import WatchedPlayer
from appliance.voice.guards import BUSY_REPLY, Guard, GuardedRecogniser, GuardedSynthesiser, GuardedThinker
from appliance.voice.limits import StageRestingError, StageTimeoutError, TimeLimits
from appliance.voice.meter import REPORT_FRAMES, Metered, SessionMeter
from appliance.voice.parts import Fault, Message
from appliance.voice.relief import Relief
from appliance.voice.turns import Turns
from models.engines.watchdog import Watchdog
from tests.fakes import FakeRecogniser, FakeSynthesiser, FakeThinker, frames, speech

SHORT = TimeLimits(
    recognition_s=0.05, recognition_factor=0.0, turn_s=0.05, intent_s=0.05, home_s=0.05, commit_s=0.05, piece_s=0.05,
    whole_s=5.0, playback_s=2.0,
)  # fmt: skip


@dataclass
class Room:
    """Guards of one session, and what they reported."""

    limits: TimeLimits = field(default_factory=TimeLimits)
    told: list[tuple[str, float, float, float]] = field(default_factory=list)
    relief: Relief = field(default_factory=Relief)
    now_s: float = 0.0
    breaks: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.meter = SessionMeter(lambda *row: self.told.append(row))
        self.breakers = Breakers(
            lambda: self.now_s, lambda stage, state: self.breaks.append((stage, state.value)), BreakerSettings(3, 10.0)
        )
        self.turns = Turns(1)
        self.guard = Guard(
            self.meter, lambda: self.relief, self.breakers, self.turns, Watchdog("test"), 0.0, self.limits
        )  # fmt: skip

    def stages(self) -> list[str]:
        return [row[0] for row in self.told]


class FakeStuckRecogniser(FakeRecogniser):
    """Hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = True
        self.go = threading.Event()
        self.cancelled = threading.Event()

    def hypothesise(self, until_sample: int, bias: Bias | None, cancel: Cancel) -> Hypothesis:
        if self.stuck:
            self.go.wait(10.0)
            if cancel.cancelled:
                self.cancelled.set()
            cancel.check()
        return super().hypothesise(until_sample, bias, cancel)


def _heard(recogniser: GuardedRecogniser, seconds: float = 1.0) -> int:
    for frame in frames(speech(seconds)):
        recogniser.push(frame)
    return recogniser.samples


def test_a_recognition_is_reported_with_its_sound_and_its_wait() -> None:
    room = Room()
    recogniser = GuardedRecogniser(FakeRecogniser, room.guard)
    room.meter.work_age_s = 0.25
    assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "turn on the lights"
    ((stage, cost_s, sound_s, age_s),) = room.told
    assert (stage, sound_s) == ("recognition", pytest.approx(1.0))
    assert 0.0 < cost_s < 1.0
    assert age_s >= 0.25
    assert room.meter.heard_s == pytest.approx(1.0)


def test_a_recognition_that_hangs_is_given_up_and_made_anew_for_the_next_utterance() -> None:
    room, made = Room(SHORT), []

    def make() -> FakeStuckRecogniser:
        made.append(FakeStuckRecogniser())
        return made[-1]

    recogniser = GuardedRecogniser(make, room.guard)
    until = _heard(recogniser)
    with pytest.raises(StageTimeoutError, match="recognition gave no answer"):
        recogniser.hypothesise(until, None, Cancel())
    with pytest.raises(StageTimeoutError, match="made anew"):
        recogniser.hypothesise(until, None, Cancel())
    assert len(made) == 1, "half an utterance is not given to a new one"
    made[0].go.set()
    assert made[0].cancelled.wait(10.0), "what hangs is told that nobody waits"
    recogniser.reset()
    made[1].stuck = False
    assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "turn on the lights"


def test_which_recogniser_hears_an_utterance_is_decided_when_it_begins() -> None:
    room = Room()
    recogniser = GuardedRecogniser(FakeRecogniser, room.guard, lambda: FakeRecogniser("by the lighter one"))
    until = _heard(recogniser)
    room.relief = Relief(light_recogniser=True)
    assert recogniser.hypothesise(until, None, Cancel()).text == "turn on the lights"
    recogniser.reset()
    assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "by the lighter one"
    room.relief = Relief()
    recogniser.reset()
    assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "turn on the lights"


def test_a_stage_that_fails_again_and_again_rests_and_is_tried_once() -> None:
    room, inner = Room(), FakeRecogniser()
    recogniser = GuardedRecogniser(lambda: inner, room.guard)
    until = _heard(recogniser)
    inner.fail = True
    for _ in range(3):
        with pytest.raises(SpeechError, match="told to fail"):
            recogniser.hypothesise(until, None, Cancel())
    asked = len(inner.asked)
    with pytest.raises(StageRestingError, match="tried again in 10 s"):
        recogniser.hypothesise(until, None, Cancel())
    assert len(inner.asked) == asked
    inner.fail, room.now_s = False, 10.0
    recogniser.hypothesise(until, None, Cancel())
    assert [state for _, state in room.breaks] == ["open", "half-open", "closed"]


def test_what_was_cancelled_is_no_failure() -> None:
    room = Room()
    recogniser = GuardedRecogniser(FakeRecogniser, room.guard)
    cancel = Cancel()
    until = _heard(recogniser)
    cancel.cancel()
    for _ in range(5):
        with pytest.raises(Cancelled):
            recogniser.hypothesise(until, None, cancel)
    assert room.breaks == []


def test_until_the_lighter_recogniser_is_open_the_planned_one_goes_on() -> None:
    room = Room(relief=Relief(light_recogniser=True))
    opened: list[FakeRecogniser] = []
    planned: list[FakeRecogniser] = []

    def make() -> FakeRecogniser:
        planned.append(FakeRecogniser())
        return planned[-1]

    recogniser = GuardedRecogniser(make, room.guard, lambda: opened[-1] if opened else None)
    for _ in range(2):
        recogniser.reset()
        assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "turn on the lights"
    opened.append(FakeRecogniser("light"))
    assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "turn on the lights", "not in the middle"
    for _ in range(2):
        recogniser.reset()
        assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == "light"
    assert len(planned) == 1


def test_a_lighter_recogniser_that_was_let_go_of_while_nobody_spoke_hears_nothing_more() -> None:
    room = Room(relief=Relief(light_recogniser=True))
    opened: list[FakeRecogniser] = [FakeRecogniser("light")]
    recogniser = GuardedRecogniser(FakeRecogniser, room.guard, lambda: opened[-1] if opened else None)
    recogniser.reset()
    heard = recogniser.hypothesise(_heard(recogniser), None, Cancel())
    assert (heard.text, heard.light) == ("light", True)
    opened.clear()  # undone for a long time, then strain again: no utterance in between
    recogniser.reset()
    heard = recogniser.hypothesise(_heard(recogniser), None, Cancel())
    assert (heard.text, heard.light) == ("turn on the lights", False)
    for text in ("light again", "and again"):
        opened[:] = [FakeRecogniser(text)]
        recogniser.reset()
        assert recogniser.hypothesise(_heard(recogniser), None, Cancel()).text == text


class FakeStuckHome(FakeThinker):
    """A home that does not answer."""

    def commit(self, understanding: Understanding, key: UtteranceId) -> Reply:
        time.sleep(0.3)
        return super().commit(understanding, key)


def test_a_home_that_does_not_answer_is_a_fault_with_a_name() -> None:
    room = Room(SHORT)
    thinker = GuardedThinker(FakeStuckHome(), room.guard)
    understanding = thinker.match("turn on the lights")
    with pytest.raises(StageTimeoutError, match="home gave no answer") as raised:
        thinker.commit(understanding, UtteranceId("u"))
    assert raised.value.code == "voice.timeout"
    assert "home" not in room.stages(), "waiting for the home is no strain of this machine"


# ---- speaking


def _voice(room: Room, kept: set[str] | None = None, light: FakeSynthesiser | None = None) -> tuple[
    GuardedSynthesiser, FakeSynthesiser
]:  # fmt: skip
    planned = FakeSynthesiser()
    return GuardedSynthesiser(lambda: planned, room.guard, kept=(kept or set()).__contains__, light=light), planned


def _said(voice: GuardedSynthesiser, text: str) -> list[Samples]:
    return list(voice.stream(text, Cancel()))


def test_how_fast_a_reply_is_made_is_reported_without_its_first_piece() -> None:
    room = Room()
    voice, _ = _voice(room)
    assert len(_said(voice, "one two three four five six")) == 6
    assert room.stages() == ["synthesis"] * 2
    assert [row[2] for row in room.told] == pytest.approx([0.3, 0.2])
    _said(voice, "yes")
    assert len(room.told) == 2


def test_a_reply_that_was_begun_before_a_step_says_nothing_of_it() -> None:
    room = Room()
    voice, _ = _voice(room)
    pieces = voice.stream("one two three four five six", Cancel())
    next(pieces)
    room.relief = Relief(whole_replies=True)
    assert len(list(pieces)) == 1
    assert room.told == []


def test_in_the_middle_of_a_reply_the_rest_is_made_whole() -> None:
    room = Room()
    voice, _ = _voice(room)
    pieces = voice.stream("one two three four", Cancel())
    assert next(pieces).size == 2205
    room.relief = Relief(whole_replies=True)
    assert [piece.size for piece in pieces] == [3 * 2205]


def test_what_is_kept_says_nothing_of_how_fast_speech_is_made() -> None:
    room = Room()
    voice, _ = _voice(room, {"one two"})
    assert len(_said(voice, "one two")) == 2
    assert room.told == []


def test_a_whole_reply_comes_in_one_piece() -> None:
    room = Room(relief=Relief(whole_replies=True))
    voice, _ = _voice(room)
    (whole,) = _said(voice, "one two three")
    assert whole.size == 3 * 2205


def test_a_whole_reply_that_takes_too_long_begins_all_the_same() -> None:
    room = Room(replace(SHORT, whole_s=0.0), relief=Relief(whole_replies=True))
    voice, _ = _voice(room)
    assert [piece.size // 2205 for piece in _said(voice, "one two three")] == [1, 1, 1]


def test_the_light_voice_speaks_where_the_ladder_says_so_or_the_planned_one_fails() -> None:
    room, light = Room(), FakeSynthesiser()
    voice, planned = _voice(room, light=light)
    planned.fail = True
    assert len(_said(voice, "one two")) == 2
    assert light.spoken == ["one two"]
    planned.fail, room.relief = False, Relief(light_voice=True)
    assert len(_said(voice, "three")) == 1
    assert planned.spoken == ["one two"]
    assert light.spoken == ["one two", "three"]


def test_without_a_light_voice_the_fault_is_told_and_the_planned_one_goes_on_being_asked() -> None:
    room = Room(relief=Relief(light_voice=True))
    voice, planned = _voice(room)
    assert len(_said(voice, "one")) == 1
    planned.fail = True
    with pytest.raises(SpeechError, match="told to fail"):
        _said(voice, "one")


def test_only_kept_replies_are_said_where_the_ladder_says_so() -> None:
    room = Room(relief=Relief(kept_replies=True))
    voice, planned = _voice(room, {BUSY_REPLY, "yes"})
    _said(voice, "a long reply that nobody has heard yet")
    _said(voice, "yes")
    assert planned.spoken == [BUSY_REPLY, "yes"]


def test_a_kept_reply_is_said_while_the_voice_rests_and_does_not_vouch_for_it() -> None:
    room = Room()
    voice, planned = _voice(room, {"yes"})
    planned.fail = True
    for _ in range(3):
        with pytest.raises(SpeechError, match="told to fail"):
            _said(voice, "no")
    planned.fail = False  # what is kept needs no making
    assert len(_said(voice, "yes")) == 1
    with pytest.raises(StageRestingError, match="synthesis failed again and again"):
        _said(voice, "no")
    assert room.breaks == [("synthesis", "open")]
    room.now_s = 10.0
    assert len(_said(voice, "no")) == 1
    assert [state for _, state in room.breaks] == ["open", "half-open", "closed"]


def test_what_somebody_wanted_said_is_said_whatever_the_strain() -> None:
    room = Room(relief=Relief(kept_replies=True))
    room.guard.meter.announced = "Dinner is ready."
    voice, planned = _voice(room, {BUSY_REPLY})
    _said(voice, "Dinner is ready.")
    assert planned.spoken == ["Dinner is ready."]


class FakeStuckSynthesiser(FakeSynthesiser):
    """Hangs after its first piece."""

    def stream(self, text: str, cancel: Cancel) -> Iterator[Samples]:
        yield np.full(2205, 0.1, np.float32)
        time.sleep(0.3)
        yield np.full(2205, 0.1, np.float32)


def test_a_voice_that_hangs_is_given_up_and_made_anew() -> None:
    room, made = Room(SHORT), []

    def make() -> FakeSynthesiser:
        made.append(FakeSynthesiser() if made else FakeStuckSynthesiser())
        return made[-1]

    voice = GuardedSynthesiser(make, room.guard, kept=lambda _: False, light=FakeSynthesiser())
    pieces = voice.stream("one two", Cancel())
    assert next(pieces).size == 2205
    with pytest.raises(StageTimeoutError):
        next(pieces)  # in mid-sentence no other voice goes on
    assert len(_said(voice, "one two")) == 2


# ---- playing and hearing


class FakeSilentPlayer:
    """Plays nothing and never says so."""

    def begin(self, generation: int, rate_hz: int) -> None:
        return None

    def write(self, samples: Samples) -> None:
        return None

    def finish(self) -> None:
        return None

    def stop(self) -> None:
        return None


@dataclass
class Player:
    """A watched player on a clock that is set by hand."""

    room: Room
    now_s: float = 0.0
    due: tuple[float, Callable[[], None]] | None = None
    told: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.player = WatchedPlayer(
            FakeSilentPlayer(),
            self.room.meter,
            lambda: self.now_s,
            self.call_at,
            self.told.append,
            lambda: self.room.relief,
            SHORT,
        )

    def call_at(self, time_s: float, action: Callable[[], None]) -> None:
        self.due = (time_s, action)


def test_a_piece_that_comes_late_is_reported_as_late_and_nearly_late_too() -> None:
    room = Room()
    p = Player(room)
    p.player.begin(1, 1000)
    for now_s in (0.0, 0.05, 0.19, 0.5):
        p.now_s = now_s
        p.player.write(np.zeros(100, np.float32))
    assert [round(row[3], 3) for row in room.told] == [0.0, 0.0, 0.02, 0.23]
    assert p.player.gaps == 1
    room.relief = Relief(whole_replies=True)
    p.now_s = 2.0
    p.player.write(np.zeros(100, np.float32))
    assert len(room.told) == 4, "a step that was taken meanwhile is for the next reply"
    assert p.player.gaps == 2


def test_the_end_of_a_reply_that_never_comes_is_a_fault() -> None:
    p = Player(Room())
    p.player.begin(7, 1000)
    p.player.write(np.zeros(500, np.float32))
    p.player.finish()
    assert p.due is not None
    assert p.due[0] == pytest.approx(0.5 + SHORT.playback_s)
    p.due[1]()
    (fault,) = p.told
    assert isinstance(fault, Fault)
    assert (fault.generation, fault.stage, fault.code) == (7, "play", "voice.timeout")


def test_a_reply_that_was_stopped_is_not_overdue() -> None:
    p = Player(Room())
    p.player.begin(7, 1000)
    p.player.write(np.zeros(500, np.float32))
    p.player.stop()
    assert p.due is not None
    p.due[1]()
    assert p.told == []


class FakeDetector:
    """Counts."""

    def __init__(self) -> None:
        self.heard = 0

    def push(self, frame: object) -> tuple[loop.Listen, ...]:
        self.heard += 1
        return ()

    def reset(self) -> None:
        self.heard = 0


def test_what_hears_every_frame_reports_twice_a_second_with_its_latest_frame() -> None:
    room, detector = Room(), FakeDetector()
    metered = Metered("vad", detector, room.meter)
    for number, frame in enumerate(frames(speech(1.0))):
        room.meter.frame_age_s = 0.3 if number == 60 else 0.01
        metered.push(frame)
    assert detector.heard == 100
    assert [(row[0], row[3]) for row in room.told] == [("vad", 0.01), ("vad", 0.3)]
    assert [row[2] for row in room.told] == pytest.approx([REPORT_FRAMES / 100] * 2)
