from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.audio.frame import Framer, Samples
from appliance.errors import UsageError
from appliance.voice.wake import WakeDetector, WakeHit, WakeSettings
from tests.fakes import silence, speech


def _hits(detector: WakeDetector, sound: Samples, cuts: list[int] | None = None) -> list[WakeHit]:
    framer, at, found = Framer(), 0, []
    for cut in [*(cuts or []), sound.size]:
        for frame in framer.push(sound[at : at + cut]):
            found += detector.push(frame)
        at += cut
    return found


@pytest.mark.models
def test_it_wakes_on_its_word_and_not_on_others(spoken: Samples) -> None:
    assert [h.name for h in _hits(WakeDetector(), spoken)] == ["okay_nabu"]
    assert _hits(WakeDetector(WakeSettings(words=("alexa",))), spoken) == []


@pytest.mark.models
def test_several_words_at_once_and_the_right_one_fires(spoken: Samples) -> None:
    detector = WakeDetector(WakeSettings(words=("alexa", "hey_jarvis", "okay nabu", "hey_mycroft")))
    assert detector.words == ("alexa", "hey_jarvis", "okay_nabu", "hey_mycroft")
    hits = _hits(detector, spoken)
    assert [h.name for h in hits] == ["okay_nabu"]
    assert 0.85 < hits[0].score <= 1.0
    assert 0.5 < hits[0].time_s < 2.0


@pytest.mark.models
@settings(deadline=None, max_examples=5)
@given(cuts=st.lists(st.integers(1, 5000), max_size=6))
def test_any_chunking_wakes_at_the_same_moment(spoken: Samples, cuts: list[int]) -> None:
    assert _hits(WakeDetector(), spoken, cuts) == _hits(WakeDetector(), spoken)


@pytest.mark.models
def test_one_word_wakes_once_and_a_second_one_again(spoken: Samples) -> None:
    detector = WakeDetector(WakeSettings(refractory_s=1.5))
    twice = np.concatenate((spoken, silence(1.0), spoken))
    assert len(_hits(detector, twice)) == 2


@pytest.mark.models
def test_a_threshold_of_one_never_fires(spoken: Samples) -> None:
    assert _hits(WakeDetector(WakeSettings(threshold=1.0)), spoken) == []


@pytest.mark.models
def test_reset_forgets_what_was_heard(spoken: Samples) -> None:
    detector = WakeDetector()
    first = _hits(detector, spoken)
    detector.reset()
    assert _hits(detector, spoken) == first


def test_silence_noise_and_wild_samples_do_not_wake() -> None:
    detector = WakeDetector(WakeSettings(words=("okay_nabu", "alexa")))
    wild = np.tile(np.array([5.0, -5.0], np.float32), 8000)
    assert _hits(detector, np.concatenate((np.zeros(16000, np.float32), silence(1), speech(3), wild))) == []


def test_an_unknown_word_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no wake word 'computer'; there are okay_nabu"):
        WakeDetector(WakeSettings(words=("computer",)))
