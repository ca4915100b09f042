from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hassil.sample import sample_sentence
from hypothesis import given
from hypothesis import strategies as st

from appliance.intent.grammar import load_grammar
from appliance.intent.language import load_language
from appliance.intent.lexicon import naming
from appliance.intent.normalise import normalise
from appliance.intent.phrase_graph import DEAD, END, PART_END, GraphBuilder, Kind, PhraseGraph
from appliance.intent.phrase_text import number_words, plain_letters
from appliance.intent.phrases import phrase_graph
from appliance.voice.asr.bias import LetterBias
from tests.intent.homes import assistant, entity, home
from tests.intent.test_names import ODD_NAMES

LAMP, FAN, DOOR = entity("Reading Lamp", area="Office"), entity("Fan 2", "fan"), entity("Anna's Door", "lock")


@pytest.fixture(scope="module")
def bias() -> LetterBias:
    return LetterBias(phrase_graph(home(LAMP, FAN, DOOR).view()))


def phrases_of(graph: PhraseGraph, most: int = 10_000) -> set[str]:
    """Every phrase of a graph without free text, each run of spaces as one; a naive walk."""
    found: set[str] = set()
    todo: list[tuple[int, str, tuple[int, ...]]] = [(graph.start, "", ())]
    while todo:
        assert len(todo) < most
        node, text, back = todo.pop()
        kind, value, target = graph.kinds[node], graph.values[node], graph.targets[node]
        if kind == Kind.LETTER:
            todo.append((target, text + chr(value), back))
        elif kind == Kind.SPLIT:
            todo.extend((n, text, back) for n in graph.pool[target : target + value])
        elif kind in (Kind.CALL, Kind.CALL_PLACE):
            todo.append((graph.parts[value], text, (*back, target)))
        elif kind == Kind.OPEN:
            todo.append((target, text, back))
        elif node == PART_END:
            todo.append((back[-1], text, back[:-1]))
        else:
            assert kind == Kind.FINAL
            found.add(" ".join(text.split()))
    return found


def test_letters_are_what_is_heard() -> None:
    assert plain_letters("Turn on, the “Living-Room” lamp!") == "turn on the living room lamp"
    assert plain_letters("What's 75%?") == "whats 75 percent"
    assert plain_letters("Küche") == "küche"
    assert plain_letters("3/4") is None


@given(st.text(max_size=30), st.text(max_size=30))
def test_letters_piece_by_piece_are_those_of_the_whole(a: str, b: str) -> None:
    # But for characters that combine with what is before them, which no tokeniser cuts off.
    parts = [plain_letters(x) for x in (a, b)]
    whole = plain_letters(a + b)
    if a.isascii() and b.isascii():
        assert whole == (None if None in parts else "".join(p or "" for p in parts))
    elif whole is not None:
        assert whole == (plain_letters(whole) or "")


@given(st.integers(0, 9999))
def test_number_words_are_read_back_by_the_normaliser(number: int) -> None:
    for words in number_words(number, load_language("en")):
        assert normalise(words) == str(number)


@given(st.lists(st.text("abc ", min_size=1, max_size=6), max_size=12))
def test_a_word_list_holds_its_words_and_no_others(words: list[str]) -> None:
    builder = GraphBuilder()
    start = builder.words([(w, END) for w in words])
    if start == DEAD:
        assert not words
        return
    assert phrases_of(builder.graph(1, start)) == {" ".join(w.split()) for w in words}


def test_equal_ends_are_stored_once() -> None:
    one, many = GraphBuilder(), GraphBuilder()
    one.words([("red light", END)])
    many.words([(f"{colour} light", END) for colour in ("red", "bed", "shed")])
    assert len(many.graph(1, 0).kinds) < len(one.graph(1, 0).kinds) + 8


def test_what_leads_nowhere_is_not_built() -> None:
    builder = GraphBuilder()
    assert builder.call(builder.part(builder.words([])), END) == DEAD
    assert builder.split([DEAD, builder.text("x", DEAD)]) == DEAD


def test_every_sample_of_the_grammar_is_a_phrase(bias: LetterBias) -> None:
    """hassil's own sampler against the graph, on templates without free text."""
    grammar, rng = load_grammar("en"), random.Random(7)
    lists = {
        **grammar.slot_lists,
        **assistant(LAMP, FAN, DOOR)
        ._lexicon.spoken_in(["kitchen office bedroom upstairs reading lamp fan 2 anna's door"])
        .slot_lists,
    }
    templates = [t for same in grammar.templates.values() for t in same if not t.lists & grammar.wildcards]
    checked = 0
    for template in rng.sample(templates, 60):
        if template.domains and not template.domains & {"light", "fan", "lock"}:
            continue
        (sentence,) = template.data.sentences
        domains = template.data.requires_context.get("domain")
        samples = []
        for text in sample_sentence(sentence, lists, grammar.rules, language="en"):
            if "/" not in text:
                samples.append(text)
            if len(samples) == 400:
                break
        for text in rng.sample(samples, min(20, len(samples))):
            named = [e for e in (LAMP, FAN, DOOR) if e.name.lower() in text.lower()]
            if domains and not any(e.domain in domains for e in named):
                continue
            assert bias.look(text).complete, (template.data.sentence_texts, text)
            checked += 1
    assert checked > 300


def random_phrase(graph: PhraseGraph, rng: random.Random) -> str:
    """A phrase by chance; free text is left out of it."""
    letters: list[str] = []
    node, back = graph.start, END
    while True:
        kind, value, target = graph.kinds[node], graph.values[node], graph.targets[node]
        if kind == Kind.LETTER:
            letters.append(chr(value))
        elif kind in (Kind.CALL, Kind.CALL_PLACE):
            back, target = target, graph.parts[value]
        elif kind == Kind.WILD:
            letters.append("soap")
        elif node == PART_END:
            target = back
        elif node == END:
            return " ".join("".join(letters).split())
        node = rng.choice(graph.pool[target : target + value]) if kind == Kind.SPLIT else target


def test_what_the_graph_holds_is_understood() -> None:
    house = home(LAMP, FAN, DOOR)
    graph, who, rng = phrase_graph(house.view()), assistant(LAMP, FAN, DOOR), random.Random(3)
    phrases = [random_phrase(graph, rng) for _ in range(1200)]
    # "20.5" has the letters of "205": with the point it is understood, and so it is written by whoever hears it.
    phrases = [p for p in phrases if len(p.split()) < 25 and not any(c.isdecimal() for c in p)]
    lost = [p for p in phrases if who.match(p).intent is None]
    assert len(phrases) > 300
    assert lost == []


def test_a_thing_of_the_home_is_a_phrase_and_one_of_another_home_is_none(bias: LetterBias) -> None:
    assert bias.look("Turn on the reading lamp.").complete
    assert bias.look("turn on fan two").complete
    assert bias.look("is Anna's door locked").complete
    assert not bias.look("turn on the disco ball").inside
    assert not bias.look("lock the reading lamp").inside


@pytest.mark.parametrize(
    "text",
    [
        "set a timer for half an hour",
        "set a timer for four and a half hours",
        "okay, please turn on the reading lamp, thank you",
        "in five minutes turn off the reading lamp",
        "turn off the reading lamp in five minutes",
        "set the reading lamp to seventy-five percent",
        "set reading lamp to 75%",
        "add oat milk to my shopping list",
        "play something by nobody you know",
        "set the colour of the reading lamp to blue",
    ],
)
def test_ways_to_say_it(bias: LetterBias, text: str) -> None:
    assert bias.look(text).complete


@pytest.mark.parametrize(
    "text",
    [
        "in five minutes turn off the reading lamp in ten minutes",  # what is put off already
        "set the color temperature to four thousandkelvin",
        "set a timer for an hour a half",
    ],
)
def test_what_means_nothing_is_no_phrase(bias: LetterBias, text: str) -> None:
    assert not bias.look(text).complete


def test_the_unit_may_touch_figures(bias: LetterBias) -> None:
    for said in ("4000k", "4000 kelvin", "four thousand kelvin", "four thousand"):
        assert bias.look(f"set the color temperature to {said}").complete, said


def test_odd_names_spoil_no_others() -> None:
    things = [entity(name) for name in (*ODD_NAMES, "Desk Lamp")]
    bias = LetterBias(phrase_graph(home(*things).view()))
    for said in (
        "desk lamp",
        "a.c.",
        "number five",
        "wi-fi plug",
        "wifi plug",
        "Küchenlicht",
        "one hundred",
        "Dr Bob's lamp",
    ):
        assert bias.look(f"turn on {said}").complete, said


def test_people_coming_and_going_change_no_names() -> None:
    anna = entity("Anna", "person", state="home")
    view = home(anna).view()
    away, office = (replace(view, entities=(replace(anna, state=state),)) for state in ("not_home", "Tennis Club"))
    assert naming(away) == naming(view)
    assert naming(office) != naming(view)
    assert LetterBias(phrase_graph(office)).look("is Anna at the tennis club").inside
