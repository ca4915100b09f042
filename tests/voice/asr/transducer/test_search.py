from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.intent.phrase_graph import END, GraphBuilder
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.reading import Found, LeadSettings
from appliance.voice.asr.transducer.networks import Predicted
from appliance.voice.asr.transducer.search import Search, SearchSettings

PIECES = (None, None, " on", " off", " the", " lamp", " fan", " zz", "s")
BLANK, UNKNOWN = 0, 1
PHRASES = ("on", "off", "on the lamp", "off the lamp", "off the fan")
WIDE = SearchSettings(beams=200, width=1e9, leads=LeadSettings(tokens=0))


class FakeScorer:
    """A frame is its own logits; with memory, what was said last makes some labels likelier."""

    def __init__(self, memory: float = 0.0) -> None:
        self._memory = np.random.default_rng(7).standard_normal((len(PIECES), len(PIECES))) * memory

    def first(self) -> Predicted:
        return Predicted(np.zeros(1, np.float32))

    def after(self, rows: Sequence[tuple[Predicted, int]]) -> list[Predicted]:
        return [Predicted(np.zeros(1, np.float32), (*before.context, label)) for before, label in rows]

    def logp(self, frame: npt.NDArray[np.float32], rows: Sequence[Predicted]) -> npt.NDArray[np.float32]:
        return np.stack([self.of(frame, row.context) for row in rows]).astype(np.float32)

    def of(self, frame: npt.NDArray[np.float32], ids: Sequence[int]) -> npt.NDArray[Any]:
        logits = frame + self._memory[ids[-1] if ids else BLANK]
        return logits - np.log(np.exp(logits).sum())


def grammar(*phrases: str) -> LetterBias:
    builder = GraphBuilder()
    return LetterBias(builder.graph(1, builder.words([(p, END) for p in phrases])))


def search_of(
    how: SearchSettings | None = None, *, symbols: int = 1, memory: float = 0.0, phrases: Sequence[str] | None = PHRASES
) -> Search:
    return Search(
        FakeScorer(memory),
        how or SearchSettings(),
        blank=BLANK,
        unknown=UNKNOWN,
        context=2,
        max_symbols=symbols,
        letters=Letters(PIECES),
        bias=None if phrases is None else grammar(*phrases),
    )


def found_in(search: Search, frames: npt.NDArray[np.float32]) -> Found:
    return search.found(search.advance_all(search.start(), frames))


def noise(seed: int, frames: int, sharp: float = 2.0) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((frames, len(PIECES))) * sharp).astype(np.float32)


def spoken(*said: str | None, also: Sequence[tuple[int, str, float]] = ()) -> npt.NDArray[np.float32]:
    """Frames that are sure of one label each (None: of blank); `also` a little of others: (frame, label, logit)."""
    frames = np.full((len(said), len(PIECES)), -20.0, dtype=np.float32)
    for row, piece in zip(frames, said, strict=True):
        row[BLANK if piece is None else PIECES.index(piece)] = 0.0
    for at, piece, logit in also:
        frames[at, PIECES.index(piece)] = logit
    return frames


def words(ids: Sequence[int] | None) -> str | None:
    return None if ids is None else "".join(PIECES[i] or "" for i in ids).strip()


def alignments(scorer: FakeScorer, frames: npt.NDArray[np.float32], ids: Sequence[int], symbols: int) -> list[float]:
    """Log-probability of every way to say the labels in the frames, by trying all."""
    found = []
    for cut in itertools.combinations_with_replacement(range(len(frames)), len(ids)):  # frame of each label
        if max((cut.count(at) for at in cut), default=0) > symbols:
            continue
        logp, said = 0.0, 0
        for at, frame in enumerate(frames):
            here = cut.count(at)
            for _ in range(here):
                logp += scorer.of(frame, ids[:said])[ids[said]]
                said += 1
            if symbols == 1 and not here:
                logp += float(np.logaddexp(*scorer.of(frame, ids[:said])[[BLANK, UNKNOWN]]))
            elif symbols > 1 and here < symbols:
                logp += scorer.of(frame, ids[:said])[BLANK]
        found.append(logp)
    return found


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), frames=st.integers(4, 5))
def test_a_phrase_has_the_probability_of_all_its_alignments(seed: int, frames: int) -> None:
    sound, scorer = noise(seed, frames), FakeScorer(1.0)
    found = found_in(search_of(WIDE, memory=1.0, phrases=("off the lamp",)), sound)
    ids = [PIECES.index(piece) for piece in (" off", " the", " lamp")]
    assert words(found.phrase) == "off the lamp"
    assert found.phrase_logp == pytest.approx(np.logaddexp.reduce(alignments(scorer, sound, ids, 1)), abs=1e-4)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), frames=st.integers(2, 4))
def test_where_a_frame_gives_several_labels_the_best_alignment_counts(seed: int, frames: int) -> None:
    sound, scorer = noise(seed, frames), FakeScorer(1.0)
    ids = [PIECES.index(piece) for piece in (" off", " the", " lamp")]
    search = Search(
        scorer, WIDE, blank=BLANK, context=1, max_symbols=2, letters=Letters(PIECES), bias=grammar("off the lamp")
    )
    found = found_in(search, sound)
    assert found.phrase_logp == pytest.approx(max(alignments(scorer, sound, ids, 2)), abs=1e-4)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_with_room_for_all_paths_the_free_text_is_the_best_there_is(seed: int) -> None:
    sound, scorer = noise(seed, 3, sharp=3.0), FakeScorer(1.0)
    found = found_in(search_of(SearchSettings(paths=800), memory=1.0, phrases=None), sound)
    labels = [label for label in range(len(PIECES)) if label not in (BLANK, UNKNOWN)]
    best = max(
        np.logaddexp.reduce(alignments(scorer, sound, ids, 1)) / (len(ids) + 2)
        for length in range(4)
        for ids in itertools.product(labels, repeat=length)
    )
    assert found.logp / (len(found.ids) + 2) == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("symbols", [1, 3])
def test_a_search_leaves_the_state_alone_that_it_went_on_from(symbols: int) -> None:
    search = search_of(symbols=symbols, memory=1.0)
    sound = noise(1, 12)
    here = search.advance_all(search.start(), sound[:6])
    onward = search.found(search.advance_all(here, sound[6:]))
    elsewhere = search.found(search.advance_all(here, noise(2, 6)))
    assert search.found(search.advance_all(here, sound[6:])) == onward == found_in(search, sound)
    assert elsewhere != onward


def test_one_path_is_greedy_search() -> None:
    sound = noise(3, 40)
    found = found_in(search_of(SearchSettings(paths=1), phrases=None), sound)
    assert found.ids == tuple(i for i in sound.argmax(axis=1) if i not in (BLANK, UNKNOWN))


def test_a_text_that_is_a_phrase_is_its_own_phrase() -> None:
    found = found_in(search_of(), spoken(" on", None, " the", " lamp", None))
    assert words(found.ids) == words(found.phrase) == "on the lamp"
    assert found.phrase_logp == found.logp


def test_a_phrase_near_the_text_is_found() -> None:
    sound = spoken(" off", " zz", None, " lamp", None, also=[(1, " the", -3.0)])
    found = found_in(search_of(), sound)
    assert words(found.ids) == "off zz lamp"
    assert words(found.phrase) == "off the lamp"
    assert 2.5 < found.logp - found.phrase_logp < 3.5


def test_a_phrase_too_far_from_the_text_is_not_found() -> None:
    sound = spoken(" zz", " zz", None, " zz", None)
    assert found_in(search_of(), sound).phrase is None


def test_a_phrase_may_come_later_than_the_text_beside_it() -> None:
    """The label that the text gives at once, the phrase gives some frames later."""
    sound = spoken(" off", " zz", None, None, None, " lamp", also=[(4, " the", -4.0)])
    sound[1, BLANK] = -4.0
    assert words(found_in(search_of(), sound).phrase) == "off the lamp"


def test_a_phrase_may_begin_behind_other_words_if_it_is_long_enough() -> None:
    long = found_in(search_of(), spoken(" zz", None, " off", " the", " fan"))
    assert words(long.ids) == "zz off the fan"
    assert words(long.phrase) == "off the fan"
    assert long.logp - long.phrase_logp == pytest.approx(LeadSettings().cost, abs=0.01)
    assert found_in(search_of(), spoken(" zz", None, " off")).phrase is None


def test_but_not_behind_a_word_that_phrases_begin_with() -> None:
    found = found_in(search_of(), spoken(" on", None, " zz", " off", " the", " fan", None))
    assert words(found.ids) == "on zz off the fan"
    assert found.phrase is None


def test_what_was_said_on_is_not_left_out() -> None:
    found = found_in(search_of(), spoken(" on", " the", " zz", None))
    assert words(found.ids) == "on the zz"
    assert words(found.phrase) != "on"


def test_the_unknown_label_counts_as_nothing() -> None:
    sound = spoken(" on", None, " the", " lamp")
    sound[1, UNKNOWN], sound[1, BLANK] = 5.0, -5.0
    assert words(found_in(search_of(), sound).ids) == "on the lamp"


def test_a_grammar_needs_letters() -> None:
    with pytest.raises(ValueError, match="letters"):
        Search(FakeScorer(), SearchSettings(), blank=0, context=1, max_symbols=1, bias=grammar("on"))
