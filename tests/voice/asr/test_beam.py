from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.intent.phrase_graph import END, GraphBuilder
from appliance.voice.asr.beam import BeamSettings, Decoding, Logits, decode
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Cancel, Cancelled
from appliance.voice.asr.reading import LeadSettings

PIECES = [
    None,
    None,
    None,
    " on",
    " off",
    " o",
    "n",
    "ff",
    " the",
    ".",
    ",",
    " lamp",
    " l",
    "amp",
    " Lamp",
    " fan",
    " zz",
]
BOS, EOS, STOP, ZZ = 1, 2, 9, 16
PHRASES = ("on", "off", "on the lamp", "off the lamp", "on the fan", "lamp on")
WIDE = BeamSettings(beams=50, width=1e9, width_inside=1e9, leads=LeadSettings(tokens=0))
MOST = 6


class FakeModel:
    """Logits that depend on the number of the step and, if told, on all tokens before; keeps count of its rows."""

    def __init__(self, seed: int, *, memory: bool, sharp: float = 3.0) -> None:
        self._seed, self._memory, self._sharp = seed, memory, sharp
        self._rows: list[tuple[int, ...]] = [()]
        self.steps = self.computed = 0

    def logits(self, before: Sequence[int]) -> np.ndarray:
        key = [self._seed, *before] if self._memory else [self._seed, len(before)]
        return (np.random.default_rng(key).standard_normal(len(PIECES)) * self._sharp).astype(np.float32)

    def logp(self, before: Sequence[int], token: int) -> float:
        logits = self.logits(before).astype(np.float64)
        return float(logits[token] - np.log(np.exp(logits).sum()))

    def __call__(self, tokens: Sequence[int], rows: Sequence[int]) -> Logits:
        assert len(set(zip(rows, tokens, strict=True))) == len(tokens), "the same row is computed twice"
        self._rows = [(*self._rows[row], token) for row, token in zip(rows, tokens, strict=True)]
        self.steps += 1
        self.computed += len(tokens)
        return np.stack([self.logits(row) for row in self._rows])


class FakeSpeech(FakeModel):
    """Sure of one text; of the alternatives at some places a little less so."""

    def __init__(self, said: Sequence[int], also: dict[int, dict[int, float]] | None = None) -> None:
        super().__init__(0, memory=False)
        self._said, self._also = [*said, EOS], also or {}

    def logits(self, before: Sequence[int]) -> np.ndarray:
        logits = np.full(len(PIECES), -20.0, dtype=np.float32)
        at = len(before) - 1
        logits[self._said[at] if at < len(self._said) else EOS] = 0.0
        for token, logit in self._also.get(at, {}).items():
            logits[token] = logit
        return logits


def grammar(*phrases: str) -> LetterBias:
    builder = GraphBuilder()
    return LetterBias(builder.graph(1, builder.words([(p, END) for p in phrases])))


def decoding(beam: BeamSettings | None = None) -> Decoding:
    return Decoding(BOS, EOS, 12, 4, Letters(PIECES), beam or BeamSettings())


def ids(*pieces: str) -> list[int]:
    return [PIECES.index(p) for p in pieces]


def text_of(tokens: Sequence[int]) -> str:
    return "".join(PIECES[t] or "" for t in tokens).strip()


def best_by_brute_force(model: FakeModel, phrases: Sequence[str]) -> tuple[float, str] | None:
    """The most probable way to write any phrase in fewer than MOST tokens, by trying all."""
    best: tuple[float, str] | None = None
    letters = Letters(PIECES)
    todo: list[tuple[float, tuple[int, ...], str]] = [(0.0, (BOS,), "")]
    while todo:
        logp, before, text = todo.pop()
        plain = " ".join(text.split())
        if plain in phrases:
            whole = logp + model.logp(before, EOS)
            if best is None or whole > best[0]:
                best = (whole, plain)
        if len(before) == MOST:
            continue
        for token in range(3, len(PIECES)):
            more = text + (letters.of(token) or "")
            said = " ".join(more.split())
            if any(
                p.startswith(said) and f" {p} ".startswith(more if more[:1] == " " else f" {more}") for p in phrases
            ):
                todo.append((logp + model.logp(before, token), (*before, token), more))
    return best


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000))
def test_the_best_phrase_is_the_one_that_brute_force_finds(seed: int) -> None:
    """With a model that remembers only where it is, merging beams by grammar state loses nothing."""
    model = FakeModel(seed, memory=False)
    found = decode(model, decoding(WIDE), MOST, Cancel(), grammar(*PHRASES))
    free = text_of(found.ids)
    if free.startswith(PHRASES) or found.cut:  # what the free text passes through is left out on purpose
        return
    expected = best_by_brute_force(FakeModel(seed, memory=False), PHRASES)
    assert expected is not None
    assert found.phrase is not None
    assert found.phrase_logp == pytest.approx(expected[0], abs=1e-3)
    said = text_of(found.phrase).lower()
    assert " ".join("".join(c for c in said if c not in ".,").split()) == expected[1]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_the_free_text_is_the_same_with_phrases_and_without(seed: int, narrow: bool) -> None:
    settings_ = BeamSettings() if narrow else WIDE
    without = decode(FakeModel(seed, memory=True), decoding(settings_), 20, Cancel())
    beside = decode(FakeModel(seed, memory=True), decoding(settings_), 20, Cancel(), grammar(*PHRASES))
    assert beside.ids == without.ids
    assert beside.logp == pytest.approx(without.logp, abs=1e-4)
    assert beside.cut == without.cut
    assert without.phrase is None


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_a_phrase_is_one_and_its_probability_is_its_own(seed: int) -> None:
    model, bias = FakeModel(seed, memory=True), grammar(*PHRASES)
    found = decode(model, decoding(replace(WIDE, beams=4)), 20, Cancel(), bias)
    if found.phrase is None:
        return
    assert bias.look(text_of(found.phrase)).complete
    logp, before = 0.0, [BOS]
    for token in (*found.phrase, EOS):
        logp += model.logp(before, token)
        before.append(token)
    assert found.phrase_logp == pytest.approx(logp, abs=1e-3)


def test_clear_speech_costs_no_row_more_and_is_its_own_phrase() -> None:
    model = FakeSpeech(ids(" on", " the", " lamp", "."))
    found = decode(model, decoding(), 20, Cancel(), grammar(*PHRASES))
    assert found.phrase == found.ids == tuple(ids(" on", " the", " lamp", "."))
    assert found.phrase_logp == found.logp
    assert model.computed == model.steps == 5


def test_speech_outside_the_grammar_costs_little_more() -> None:
    model = FakeSpeech(ids(" zz", " zz", " the", " zz"))
    found = decode(model, decoding(), 20, Cancel(), grammar(*PHRASES))
    assert found.phrase is None
    assert found.rows == model.computed == model.steps == 5


def test_a_word_heard_wrong_is_put_right_by_the_phrase() -> None:
    model = FakeSpeech(ids(" on", " the", " zz"), {2: {PIECES.index(" lamp"): -1.5}})
    found = decode(model, decoding(), 20, Cancel(), grammar(*PHRASES))
    assert text_of(found.ids) == "on the zz"
    assert found.phrase is not None
    assert text_of(found.phrase) == "on the lamp"
    assert found.logp - found.phrase_logp == pytest.approx(1.5, abs=0.01)


def test_a_phrase_does_not_leave_out_what_was_said_after_it() -> None:
    model = FakeSpeech(ids(" on", " the", " zz"), {1: {EOS: -2.0}, 2: {EOS: -2.0}})
    found = decode(model, decoding(), 20, Cancel(), grammar(*PHRASES))
    assert found.phrase is None


def test_a_phrase_may_begin_behind_what_no_phrase_begins_with() -> None:
    said = ids(" zz", " on", " the", " lamp")
    found = decode(FakeSpeech(said), decoding(), 20, Cancel(), grammar(*PHRASES))
    assert found.phrase is not None
    assert text_of(found.phrase) == "on the lamp"
    assert found.logp - found.phrase_logp == pytest.approx(LeadSettings().cost, abs=0.01)


def test_but_not_behind_words_of_the_command_nor_as_a_mere_name() -> None:
    other = decode(FakeSpeech(ids(" on", " zz", " off")), decoding(), 20, Cancel(), grammar(*PHRASES))
    assert other.phrase is None
    name = decode(FakeSpeech(ids(" zz", " lamp", " on")), decoding(), 20, Cancel(), grammar(*PHRASES))
    assert name.phrase is None


def test_no_phrase_is_found_behind_a_word_that_phrases_begin_with() -> None:
    found = decode(FakeSpeech(ids(" on", " zz", " on", " the", " lamp")), decoding(), 20, Cancel(), grammar(*PHRASES))
    assert found.phrase is None


def test_a_loop_is_cut_with_phrases_too() -> None:
    model = FakeSpeech(ids(*[" zz"] * 30))
    found = decode(model, decoding(), 40, Cancel(), grammar(*PHRASES))
    assert found.cut == "repetition"
    assert len(found.ids) == 1


def test_it_stops_when_it_is_not_wanted_any_more() -> None:
    cancel = Cancel()

    class FakeImpatient(FakeSpeech):
        def __call__(self, tokens: Sequence[int], rows: Sequence[int]) -> Logits:
            if self.steps == 2:
                cancel.cancel()
            return super().__call__(tokens, rows)

    model = FakeImpatient(ids(" on", " the", " lamp"))
    with pytest.raises(Cancelled):
        decode(model, decoding(), 20, cancel, grammar(*PHRASES))
    assert model.steps == 3
