from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymicro_wakeword import MicroWakeWord, MicroWakeWordFeatures, Model

from appliance.app import Wren
from appliance.audio.frame import Framer, Samples
from appliance.errors import UsageError
from appliance.voice.wake import WAKE_WORDS, WakeDetector, WakeHit, WakeSettings
from appliance.voice.wake_model import WakeModel
from tests.fakes import silence, speech
from tests.voice.conftest import say


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


def _features(sound: Samples) -> list[list[np.ndarray]]:
    """What the library's extractor gives for each 10 ms."""
    extractor = MicroWakeWordFeatures()
    pcm = (np.clip(sound, -1.0, 1.0) * 32767.0).astype("<i2")
    return [list(extractor.process_streaming(pcm[at : at + 160].tobytes())) for at in range(0, sound.size - 159, 160)]


def _wild(seed: int, seconds: float = 2.0) -> Samples:
    """Sound that comes and goes, beyond full scale too."""
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal(round(seconds * 16000), dtype=np.float32)
    return noise * np.repeat(10 ** generator.uniform(-3, 0.3, noise.size // 1600), 1600).astype(np.float32)


@pytest.mark.models
@pytest.mark.parametrize("word", WAKE_WORDS)
def test_a_model_gives_the_very_numbers_that_the_library_gives(wren: Wren, word: str) -> None:
    theirs, ours = MicroWakeWord.from_builtin(Model(word)), WakeModel(word)
    said = say(wren, f"{word.replace('_', ' ')}, what time is it?")
    flat = [each for some in _features(np.concatenate((said, _wild(3), said))) for each in some]
    seen = 0
    for at in range(0, len(flat) - ours.stride + 1, ours.stride):
        expected = [theirs.process_streaming_prob(each) for each in flat[at : at + ours.stride]]
        assert ours.push(flat[at : at + ours.stride]) == expected[-1]
        seen += expected[-1] > 0.0
    assert seen  # else nothing was compared
    assert ours.cutoff == theirs.probability_cutoff


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**16), words=st.sets(st.sampled_from(WAKE_WORDS), min_size=1, max_size=2))
def test_frames_that_are_kept_for_their_third_fire_in_the_frame_in_which_each_alone_would(
    seed: int, words: set[str]
) -> None:
    sound = _wild(seed)
    models = {word: MicroWakeWord.from_builtin(Model(word)) for word in sorted(words)}
    expected = []
    for number, some in enumerate(_features(sound)):
        scores = {word: model.process_streaming_prob(each) for each in some for word, model in models.items()}
        best = max(scores, key=lambda word: scores[word], default=None)
        if best is not None and scores[best] > 0.0:
            expected.append((number, best, scores[best]))
    detector = WakeDetector(WakeSettings(tuple(sorted(words)), threshold=0.0, refractory_s=0.0))
    found = [(frame.seq, hit.name, hit.score) for frame in Framer().push(sound) for hit in detector.push(frame)]
    assert found == expected
