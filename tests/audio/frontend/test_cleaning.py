"""Echo that goes, voices that stay, nothing changed where nothing is played: on simulated rooms, without a device."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from appliance.audio.frame import FRAME_S, Frame, Samples, level_dbfs
from appliance.audio.frontend.cleaning import Cleaner, EarFrames
from appliance.audio.frontend.ears import Ears
from appliance.audio.frontend.linear import LinearCanceller
from appliance.audio.frontend.played import PlayedTap
from appliance.audio.frontend.webrtc import FrontEndMissingError, Processors, open_processors
from tests.audio.frontend.rooms import LEAD_MS, babble, echo_of, erle_db, frames_of, hum

SECONDS = 8.0


def _frame(samples: Samples, number: int) -> Frame:
    return Frame(samples, number * FRAME_S, number)


def _cleaned(cleaner: Cleaner, microphone: Samples, played: Samples | None) -> list[EarFrames]:
    references = [None] * len(frames_of(microphone)) if played is None else frames_of(played)
    out = []
    for number, (near, far) in enumerate(zip(frames_of(microphone), references, strict=True)):
        reference = None if far is None or not far.any() else far
        out.append(cleaner.push(_frame(near, number), reference))
    return out


def _joined(frames: list[EarFrames], path: str) -> Samples:
    return np.concatenate([getattr(frame, path).samples for frame in frames])


@pytest.fixture(scope="module")
def played() -> Samples:
    return babble(SECONDS)


@pytest.mark.parametrize(("delay_ms", "least_db"), [(0, 18.0), (20, 18.0), (50, 18.0), (100, 18.0), (200, 12.0)])
def test_an_echo_is_gone_for_voice_activity_whatever_its_delay(
    played: Samples, delay_ms: float, least_db: float
) -> None:
    echo = echo_of(played, LEAD_MS + delay_ms)
    frames = _cleaned(Cleaner(open_processors()), echo + hum(echo.size), played)
    # What is left is the room's noise: the echo lies 36 dB above it.
    assert erle_db(echo, _joined(frames, "voice"), 1.0, 3.0) > 12.0
    assert erle_db(echo, _joined(frames, "voice"), 3.0, SECONDS) > least_db


@pytest.mark.parametrize(("delay_ms", "least_db"), [(0.0, 15.0), (20.0, 15.0), (50.0, 13.0), (100.0, 7.0)])
def test_an_echo_within_reach_is_subtracted(played: Samples, delay_ms: float, least_db: float) -> None:
    echo = echo_of(played, LEAD_MS + delay_ms)
    frames = _cleaned(Cleaner(open_processors()), echo + hum(echo.size), played)
    assert erle_db(echo, _joined(frames, "speech"), 3.0, SECONDS) > least_db


def test_a_speaker_clock_that_drifts_is_followed(played: Samples) -> None:
    echo = echo_of(played, LEAD_MS + 20.0, drift=100e-6)
    frames = _cleaned(Cleaner(open_processors()), echo + hum(echo.size), played)
    assert erle_db(echo, _joined(frames, "voice"), 3.0, SECONDS) > 15.0
    assert erle_db(echo, _joined(frames, "speech"), 3.0, SECONDS) > 6.0


def test_who_speaks_over_wren_stays_as_loud_as_he_is(played: Samples) -> None:
    """The path of words: what is subtracted is the echo and not the speaker."""
    echo, speaker = echo_of(played, LEAD_MS + 20.0), babble(SECONDS, seed=9)
    speaker[: round(4.0 * 16000)] = 0.0
    frames = _cleaned(Cleaner(open_processors()), echo + speaker + hum(echo.size), played)
    heard = _joined(frames, "speech")
    passed = _joined(_cleaned(Cleaner(open_processors()), speaker + hum(echo.size), None), "speech")
    part = slice(64_000, heard.size)
    assert level_dbfs(heard[part]) == pytest.approx(level_dbfs(passed[part]), abs=1.0)
    assert level_dbfs((heard - passed)[part]) < level_dbfs(passed[part]) - 8.0


def test_without_the_library_the_echo_is_still_subtracted(played: Samples) -> None:
    echo = echo_of(played, LEAD_MS + 20.0)
    frames = _cleaned(Cleaner(None), echo + hum(echo.size), played)
    for path in ("speech", "wake", "voice"):
        assert erle_db(echo, _joined(frames, path), 3.0, SECONDS) > 15.0


def test_while_nothing_is_played_nothing_is_cancelled_and_without_the_library_nothing_changed() -> None:
    sound = babble(1.0)
    cleaner = Cleaner(None)
    frames = _cleaned(cleaner, sound, None)
    assert np.array_equal(_joined(frames, "speech"), sound)
    assert not cleaner.cancelling


def test_while_nothing_is_played_words_and_voice_activity_hear_it_bit_for_bit() -> None:
    """The same words as without a front end, and the same ends of them."""
    sound = babble(2.0) + hum(32_000)
    frames = _cleaned(Cleaner(open_processors()), sound, None)
    assert np.array_equal(_joined(frames, "speech"), sound)
    assert np.array_equal(_joined(frames, "voice"), sound)


def test_who_is_far_away_is_made_louder_for_the_wake_word() -> None:
    sound = babble(6.0) * np.float32(0.05) + hum(96_000, -80.0)
    frames = _cleaned(Cleaner(open_processors()), sound, None)
    assert level_dbfs(_joined(frames, "wake")[48_000:]) > level_dbfs(sound[48_000:]) + 6.0


def test_a_speaker_that_stumbled_is_learnt_anew_within_two_seconds(played: Samples) -> None:
    """A loaded machine's speaker runs dry: from then on its echo comes 12 ms later."""
    echo = echo_of(played, LEAD_MS + 20.0)
    later = echo_of(played, LEAD_MS + 32.0)
    echo[80_000:] = later[80_000:]
    frames = _cleaned(Cleaner(open_processors()), echo + hum(echo.size), played)
    speech = _joined(frames, "speech")
    assert erle_db(echo, speech, 4.0, 5.0) > 15.0
    assert erle_db(echo, speech, 7.0, SECONDS) > 10.0


def test_cancelling_ends_when_the_room_is_quiet_and_the_joins_are_smooth(played: Samples) -> None:
    reply = np.concatenate((np.zeros(16_000, np.float32), played[:32_000], np.zeros(32_000, np.float32)))
    tone = (0.05 * np.sin(2 * np.pi * 300 * np.arange(reply.size) / 16_000)).astype(np.float32)
    cleaner = Cleaner(None)
    states, heard = [], []
    for number, (near, far) in enumerate(zip(frames_of(tone), frames_of(reply), strict=True)):
        heard.append(cleaner.push(_frame(near, number), far if far.any() else None).speech.samples)
        states.append(cleaner.cancelling)
    assert not any(states[:100])
    assert all(states[105:300])
    assert not any(states[345:])
    joins = [160 * i for i in range(1, len(states)) if states[i] != states[i - 1]]
    assert len(joins) == 2
    steps = np.abs(np.diff(np.concatenate(heard)))
    assert max(steps[join - 2 : join + 2].max() for join in joins) < 1.2 * np.abs(np.diff(tone)).max()
    # Nothing came back of the reply, so that the tone must go through as it is; but for the filter's first guesses.
    assert np.array_equal(np.concatenate(heard[346:]), tone[346 * 160 :][: (len(heard) - 346) * 160])


def test_reset_makes_it_hear_as_for_the_first_time(played: Samples) -> None:
    microphone = echo_of(played, LEAD_MS) + hum(played.size)
    cleaner = Cleaner(open_processors())
    first = _cleaned(cleaner, microphone, played)
    cleaner.reset()
    again = _cleaned(cleaner, microphone, played)
    assert np.array_equal(_joined(first, "speech"), _joined(again, "speech"))
    assert cleaner.flush() == ()


class FaultyProcessor:
    """A fake that fails after a while."""

    def __init__(self) -> None:
        self.left = 3

    def process(self, audio: Samples) -> Samples:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("it fell over")
        return audio

    def reset(self) -> None:
        return None


def test_a_library_that_fails_costs_no_sound_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    real = open_processors()
    cleaner = Cleaner(Processors(real.echo, FaultyProcessor(), real.voice))
    sound = babble(0.2)
    frames = _cleaned(cleaner, sound, None)
    assert cleaner.faults == 1
    assert np.array_equal(_joined(frames[3:], "speech"), sound[3 * 160 :][: 160 * len(frames[3:])])
    assert "it fell over" in caplog.text


def test_a_missing_library_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    with pytest.raises(FrontEndMissingError, match="make setup"):
        open_processors()


def test_the_linear_filter_stays_sane_on_silence_clipping_and_a_reference_without_echo() -> None:
    canceller, random = LinearCanceller(), np.random.default_rng(0)
    silence = np.zeros(160, dtype=np.float32)
    for near, far in ((silence, silence), (np.ones(160, np.float32), silence), (silence, np.ones(160, np.float32))):
        for _ in range(50):
            assert np.isfinite(canceller.process(near, far)).all()
    speaker = (0.1 * random.standard_normal(160 * 300)).astype(np.float32)
    far = (0.1 * random.standard_normal(160 * 300)).astype(np.float32)
    out = np.concatenate([canceller.process(n, f) for n, f in zip(frames_of(speaker), frames_of(far), strict=True)])
    assert level_dbfs(out[16_000:]) == pytest.approx(level_dbfs(speaker[16_000:]), abs=1.0)


def test_ears_without_the_library_say_so_and_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    ears = Ears(PlayedTap())
    frame = _frame(babble(0.1)[:160], 0)
    assert np.array_equal(ears.push(frame).speech.samples, frame.samples)
    missing = ears.state().missing
    assert missing is not None
    assert "make setup" in missing
    assert "hears its own voice" in caplog.text


def test_ears_that_are_not_wanted_change_nothing_and_miss_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pywebrtc_audio", None)
    ears = Ears(PlayedTap(), wanted=False)
    frame = _frame(babble(0.1)[:160], 0)
    assert ears.push(frame).wake is frame
    assert ears.state().missing is None
