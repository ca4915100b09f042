from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.app import TTS_PACK, Wren
from appliance.audio.frame import Samples
from appliance.errors import ProgramMissingError, SpeechError
from appliance.voice.asr.moonshine import MoonshineRecogniser
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.tts.cache import ReplyCache, ReplyKey
from appliance.voice.tts.phonemes import EspeakPhonemiser, clauses
from appliance.voice.tts.piper import ChunkPlan, PiperSynthesiser, VoiceConfig
from appliance.voice.tts.spoken import MAX_REPLY_CHARS, spoken
from models.engines.onnx_cpu import OrtCpuEngine
from tests.voice.conftest import say

TEXT = "Timer set for five minutes"


@pytest.fixture(scope="module")
def offline(wren: Wren) -> Samples:
    """The text made in one run of the voice as it was shipped."""
    pack = wren.store.open(TTS_PACK)
    shipped = OrtCpuEngine(pack.path("en_US-joe-medium.onnx")).stream()
    (tokens,) = wren.synthesiser()._sentences(TEXT)
    inputs = {
        "input": np.array([tokens], np.int64),
        "input_lengths": np.array([len(tokens)], np.int64),
        "scales": np.array([0, 1, 0], np.float32),
    }
    sound: Samples = shipped.run(inputs)["output"].reshape(-1)
    return sound


@pytest.mark.models
@settings(deadline=None, max_examples=6)
@given(first=st.lists(st.integers(1, 40), max_size=3), rest=st.integers(5, 90), ahead=st.integers(0, 80))
def test_streamed_speech_equals_speech_made_in_one_piece_by_the_shipped_voice(
    wren: Wren, offline: Samples, first: list[int], rest: int, ahead: int
) -> None:
    plan = ChunkPlan(first=tuple(first), rest=rest, flow_ahead=ahead)
    streamed = PiperSynthesiser(replace(wren._voice, plan=plan)).whole(TEXT)
    assert streamed.shape == offline.shape
    assert np.abs(streamed - offline).max() < 1e-4


@pytest.mark.models
@settings(deadline=None, max_examples=4)
@given(first=st.lists(st.integers(8, 40), max_size=3), rest=st.integers(10, 60))
def test_with_trimmed_margins_the_chunks_fade_into_each_other_near_enough(
    wren: Wren, first: list[int], rest: int
) -> None:
    text = "The kitchen is at twenty one degrees, and the window has been open since this morning."
    exact = PiperSynthesiser(replace(wren._voice, plan=ChunkPlan())).whole(text)
    plan = ChunkPlan(first=tuple(first), rest=rest).trimmed()
    trimmed = PiperSynthesiser(replace(wren._voice, plan=plan)).whole(text)
    assert trimmed.shape == exact.shape
    error = np.abs(trimmed - exact)
    assert 0.0 < error.max() <= 3e-3 * np.abs(exact).max()


@pytest.mark.models
def test_on_a_slow_machine_chunks_are_longer_and_what_is_said_is_the_same(wren: Wren, offline: Samples) -> None:
    class SlowClock:
        """A fake clock on which every look takes so long."""

        def __init__(self, step_s: float) -> None:
            self.now_s, self.step_s = 0.0, step_s

        def __call__(self) -> float:
            self.now_s += self.step_s
            return self.now_s

    sizes = {}
    for step_s in (0.001, 0.5):
        voice = replace(wren._voice, plan=ChunkPlan())
        PiperSynthesiser(voice, clock=SlowClock(step_s)).whole(TEXT)
        chunks = list(PiperSynthesiser(voice, clock=SlowClock(step_s)).stream(TEXT, Cancel()))
        sizes[step_s] = [chunk.size // 256 for chunk in chunks]
        assert np.abs(np.concatenate(chunks) - offline).max() < 3e-3 * np.abs(offline).max()
    assert sizes[0.001][0] == 12
    assert sizes[0.5][0] > 40


@pytest.mark.models
def test_what_is_said_is_what_is_heard(wren: Wren) -> None:
    for text in ("Turned on the lights.", "It is ten oh five.", "The front door is locked."):
        recogniser: MoonshineRecogniser = wren.recogniser()
        recogniser.push_samples(say(wren, text))
        heard = "".join(c for c in recogniser.flush().text.lower() if c.isalpha() or c == " ").strip()
        assert heard == text.lower().strip("."), heard


@pytest.mark.models
def test_several_sentences_follow_each_other_with_a_pause(wren: Wren) -> None:
    synthesiser = wren.synthesiser()
    one, two = synthesiser.whole("Timer set."), synthesiser.whole("It is sunny.")
    both = synthesiser.whole("Timer set. It is sunny.")
    assert both.size == one.size + two.size + int(0.15 * 22_050)


@pytest.mark.models
@pytest.mark.parametrize("text", ["", "...", "   ", "🎉", "\u0000", "[[a]]", "x" * 5000, "a\nb\tc", "ﷺ 漢字 Привет"])
def test_any_text_is_spoken_or_passed_over(wren: Wren, text: str) -> None:
    sound = wren.synthesiser().whole(text[:200])
    assert np.isfinite(sound).all()
    assert np.abs(sound).max(initial=0.0) <= 1.5


@pytest.mark.models
def test_a_cancelled_reply_stops_between_chunks(wren: Wren) -> None:
    cancel = Cancel()
    chunks = wren.synthesiser().stream(
        "This sentence is long enough to be made in several chunks, as you hear.", cancel
    )
    next(chunks)
    cancel.cancel()
    with pytest.raises(Cancelled):
        next(chunks)


@pytest.mark.models
def test_a_reply_comes_from_the_cache_the_second_time(wren: Wren) -> None:
    cache = ReplyCache()
    synthesiser = PiperSynthesiser(wren._voice, cache)
    first = synthesiser.whole(TEXT)
    chunks = list(synthesiser.stream(TEXT, Cancel()))
    assert len(chunks) == 1
    assert (cache.hits, cache.misses) == (1, 1)
    assert np.abs(chunks[0] - np.clip(first, -1, 1)).max() < 1e-4


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3000)), max_size=40))
def test_the_cache_stays_within_its_size(puts: list[tuple[int, int]]) -> None:
    cache = ReplyCache(max_bytes=8000)
    for number, length in puts:
        cache.put(ReplyKey(str(number), "v", "d"), np.zeros(length, np.float32))
        assert cache.size_bytes <= 8000
    held = sum(s.nbytes // 2 for n in range(6) if (s := cache.get(ReplyKey(str(n), "v", "d"))) is not None)
    assert held == cache.size_bytes


@given(st.integers(0, 600), st.lists(st.integers(1, 50), max_size=4), st.integers(1, 100))
def test_chunks_tile_the_frames(frames: int, first: list[int], rest: int) -> None:
    at = 0
    for new, end in ChunkPlan(first=tuple(first), rest=rest).chunks(frames):
        assert new == at < end <= frames
        at = end
    assert at == frames


def test_clauses_keep_numbers_whole_and_know_their_marks() -> None:
    assert list(clauses("It is 21.5 degrees, and sunny! Really?")) == [
        ("It is 21.5 degrees", ","), ("and sunny", "!"), ("Really", "?"),
    ]  # fmt: skip
    assert list(clauses("...")) == []
    assert list(clauses("[[hello]]")) == [("hello", "")]


@given(st.text(max_size=500))
def test_clauses_are_total_bounded_and_one_line(text: str) -> None:
    for clause, mark in clauses(text):
        assert 0 < len(clause) <= 400
        assert "\n" not in clause
        assert "[[" not in clause
        assert mark in ("", *".,;:!?")


def test_phonemes_are_the_same_one_by_one_and_in_any_order() -> None:
    phonemiser = EspeakPhonemiser("en-us")
    try:
        texts = [
            "turned on the lights",
            "Dr. Smith's car",
            "(hello)",
            "one. two. three",
            "7 4 9 1 3 8 2 6 1",
            "x" * 400,
        ]
        first = {text: phonemiser.phonemes(text) for text in texts}
        for text in reversed(texts):
            assert phonemiser.phonemes(text) == first[text]
        assert first["turned on the lights"] == "tˈɜːnd ɔnðə lˈaɪts"
        assert phonemiser.restarts == 0
    finally:
        phonemiser.close()


def test_a_killed_phoneme_program_is_started_again() -> None:
    phonemiser = EspeakPhonemiser("en-us")
    try:
        first = phonemiser.phonemes("hello")
        assert phonemiser._process is not None
        phonemiser._process.kill()
        phonemiser._process.wait()
        assert phonemiser.phonemes("hello") == first
    finally:
        phonemiser.close()


def test_a_missing_or_mute_phoneme_program_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProgramMissingError, match="sudo apt-get install espeak-ng"):
        EspeakPhonemiser("en-us", program="espeak-ng-that-is-not-there").phonemes("hello")
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexit 3\n")
    mute.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SpeechError, match="does not answer"):
        EspeakPhonemiser("en-us", program="mute").phonemes("hello")


def test_a_broken_voice_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "voice.json"
    for text in ("", "{}", "[]", json.dumps({"phoneme_id_map": {"a": ["x"]}, "audio": {}, "espeak": {}})):
        path.write_text(text)
        with pytest.raises(SpeechError, match="no Piper voice"):
            VoiceConfig.load(path)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10:05 AM", "10 oh 5 A M"),
        ("7:00 PM", "7 P M"),
        ("It is 12:30", "It is 12 30"),
        ("November 29th, 2026", "November 29th, 20 26"),
        ("May 1st, 2007", "May 1st, two thousand 7"),
        ("21 °C", "21 degrees"),
        ("-5 degrees", "minus 5 degrees"),
        ("1 °C", "1 degree"),
        ("380 W", "380 watts"),
        ("Dr. Who", "Dr Who"),
        ("Turned on the lights", "Turned on the lights"),
    ],
)
def test_replies_are_put_into_words_that_are_read_well(text: str, read: str) -> None:
    assert spoken(text) == read


@given(st.text(max_size=4000))
def test_wording_is_total_and_bounded(text: str) -> None:
    assert len(spoken(text)) <= MAX_REPLY_CHARS * 20
