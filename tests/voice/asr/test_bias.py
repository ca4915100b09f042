from __future__ import annotations

import random
import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.intent.phrase_graph import END, PART_END, GraphBuilder, PhraseGraph
from appliance.intent.phrase_text import plain_letters
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Extension

WORDS = st.text("ab", min_size=1, max_size=3)
Choice = list[list[str]]
"""A sentence: at each place one of some words; "" may be left out."""
SENTENCES = st.lists(st.lists(st.one_of(WORDS, st.just("")), min_size=1, max_size=3), min_size=1, max_size=3)


def graph_of(sentences: list[Choice], *, as_part: bool) -> PhraseGraph:
    """Built as templates are: blanks between the places, words as a list of their own or in place."""
    builder = GraphBuilder()
    starts = []
    for places in sentences:
        follow = END
        for words in reversed(places):
            said = [w for w in words if w]
            behind = builder.letter(" ", follow)
            if as_part:
                node = builder.call(builder.part(builder.words([(w, PART_END) for w in said])), behind)
            else:
                node = builder.words([(w, behind) for w in said])
            follow = builder.split([node, *([behind] if "" in words else [])])
        starts.append(follow)
    start = builder.reserve()
    builder.fill(start, starts)
    return builder.graph(1, start)


def said_by(sentences: list[Choice]) -> set[str]:
    """The same by naive enumeration."""
    found = set()
    for places in sentences:
        texts = [""]
        for words in places:
            texts = [f"{text} {word}".strip() for text in texts for word in words]
        found.update(" ".join(t.split()) for t in texts)
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(SENTENCES, max_size=4), st.booleans(), st.lists(st.text("ab ", max_size=8), max_size=10))
def test_it_holds_what_naive_enumeration_finds_and_nothing_else(
    sentences: list[Choice], as_part: bool, others: list[str]
) -> None:
    bias, phrases = LetterBias(graph_of(sentences, as_part=as_part)), said_by(sentences)
    for text in [*phrases, *others]:
        plain = " ".join(text.split())
        reach = bias.look(text)
        assert reach.complete == (plain in phrases), text
        begun = any(p.startswith(plain) for p in phrases)
        assert begun or not reach.inside or not plain, text
        assert reach.inside or plain not in phrases
        if reach.complete and any(p.startswith(f"{plain} ") for p in phrases if plain):
            assert reach.extension is not Extension.NONE


@settings(deadline=None, max_examples=60)
@given(st.lists(SENTENCES, min_size=1, max_size=3), st.data())
def test_any_tokenisation_of_a_phrase_leads_to_its_end(sentences: list[Choice], data: st.DataObject) -> None:
    bias = LetterBias(graph_of(sentences, as_part=True))
    phrase = data.draw(st.sampled_from(sorted(said_by(sentences))))
    text = "".join(data.draw(st.sampled_from((c, c.upper()))) if c != " " else c for c in phrase)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    signs = data.draw(st.lists(st.sampled_from((",", ".", "'", "")), min_size=len(pieces), max_size=len(pieces)))
    tokens = [piece for pair in zip(pieces, signs, strict=True) for piece in pair]
    letters = Letters([*tokens, None])
    state = bias.start
    for number in range(len(tokens)):
        following = letters.step(bias, state, number)
        assert following is not None, (tokens, number)
        state = following
    assert bias.complete(state) or not phrase
    assert letters.step(bias, state, len(tokens)) is None
    assert letters.of(len(tokens) + 5) is None


def test_free_text_is_free_inside_its_sentence() -> None:
    builder = GraphBuilder()
    start = builder.text("add ", builder.wild(builder.text(" to my list", END)))
    bias = LetterBias(builder.graph(1, start))
    assert bias.look("Add milk & honey to my list").complete
    assert bias.look("add to to my list").complete
    assert not bias.look("add to my list").complete
    assert not bias.look("buy milk").inside
    reach = bias.look("add milk")
    assert reach.inside
    assert not reach.complete
    assert reach.extension is Extension.LIKELY


def test_what_may_follow_is_told_by_what_people_pause_before() -> None:
    builder = GraphBuilder()
    place = builder.part(builder.words([("kitchen", PART_END), ("kitchen sink", PART_END)]))
    builder.fill(
        start := builder.reserve(),
        [
            builder.text(
                "light on", builder.split([END, builder.text(" in the ", builder.call(place, END, place=True))])
            ),
            builder.text("play", builder.split([END, builder.text(" ", builder.wild(END)), builder.text(" now", END)])),
            builder.text("stop", builder.split([END, builder.text(" please", END)])),
            builder.text("twenty", END),
            builder.text("20", builder.open(END)),
            builder.text("done", END),
        ],
    )
    bias = LetterBias(builder.graph(1, start))
    for text, extension in {
        "light on": Extension.LIKELY,  # a place is still to come
        "light on in the kitchen": Extension.LIKELY,  # the kitchen sink
        "light on in the kitchen sink": Extension.NONE,
        "play": Extension.RARE,
        "play the blues": Extension.LIKELY,  # free text has no end
        "stop": Extension.RARE,
        "20": Extension.LIKELY,  # twenty-five
        "done": Extension.NONE,
        "light": Extension.LIKELY,  # unfinished
        "dance": Extension.NONE,
    }.items():
        assert bias.look(text).extension is extension, text


def test_states_are_bounded_and_a_held_one_stays_good() -> None:
    rng = random.Random(5)
    phrases = {"".join(rng.choices("abcdef", k=12)) for _ in range(200)}
    builder = GraphBuilder()
    bias = LetterBias(builder.graph(1, builder.words([(p, END) for p in phrases])), max_states=100)
    held = bias.step(bias.start, min(phrases)[:6])
    assert held is not None
    for phrase in sorted(phrases):
        assert bias.look(phrase).complete
        assert bias.states <= 101
    assert bias.resets > 5
    end = bias.step(held, min(phrases)[6:])
    assert end is not None
    assert bias.complete(end)


def test_warming_makes_states_that_walking_then_finds() -> None:
    builder = GraphBuilder()
    bias = LetterBias(builder.graph(1, builder.words([(p, END) for p in ("red light", "blue light", "off")])))
    bias.warm(1000)
    made = bias.states
    assert bias.look("blue light").complete
    assert not bias.look("blue lamp").inside
    assert bias.states == made


def test_many_threads_walk_one_bias() -> None:
    rng = random.Random(6)
    phrases = sorted({" ".join(rng.choices(["red", "blue", "light", "on"], k=5)) for _ in range(300)})
    builder = GraphBuilder()
    bias = LetterBias(builder.graph(1, builder.words([(p, END) for p in phrases])))
    wrong: list[str] = []

    def walk(seed: int) -> None:
        mine = phrases[:]
        random.Random(seed).shuffle(mine)
        wrong.extend(p for p in mine if not bias.look(p).complete or bias.look(f"{p} x").inside)

    threads = [threading.Thread(target=walk, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@given(st.text(max_size=40))
def test_any_text_can_be_looked_at(text: str) -> None:
    builder = GraphBuilder()
    bias = LetterBias(builder.graph(1, builder.text("turn on", END)))
    assert bias.look(text).complete == ((plain_letters(text) or "").split() == ["turn", "on"])


def test_an_empty_grammar_holds_nothing() -> None:
    builder = GraphBuilder()
    builder.fill(start := builder.reserve(), [])
    bias = LetterBias(builder.graph(1, start))
    assert not bias.look("anything").inside
    assert not bias.look("").complete
