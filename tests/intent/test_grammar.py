"""The grammar loses no reading by leaving templates out, and leaves no intent of the package unanswered."""

from __future__ import annotations

import re

import pytest
from hassil.intents import Intents
from hassil.recognize import RecognizeResult, recognize_all
from home_assistant_intents import get_intents

from appliance.errors import IntentError
from appliance.intent.decide import QUESTIONS
from appliance.intent.edges import beginnings, endings
from appliance.intent.effects import CARRIED_OUT
from appliance.intent.grammar import NO_AREA, load_grammar
from appliance.intent.lexicon import build_lexicon
from appliance.intent.memory_home import default_home
from appliance.intent.normalise import normalise
from appliance.intent.skills.list_intents import LIST_INTENTS
from appliance.intent.skills.timer_intents import TIMER_INTENTS
from appliance.intent.template import Template
from tests.intent.test_households import SORRY, rows

GRAMMAR = load_grammar("en")
LEXICON = build_lexicon(default_home().view(), GRAMMAR.language)


def everything() -> Intents:
    """The same grammar with no template left out, as hassil would use it."""
    package = get_intents("en")
    assert package is not None
    ours = GRAMMAR.language.grammar
    intents: dict[str, dict[str, list[object]]] = {}
    for source in (package, ours):
        for name, body in source["intents"].items():
            intents.setdefault(name, {"data": []})["data"].extend(body["data"])
    whole = Intents.from_dict({"language": "en", "intents": intents, "lists": {}, "expansion_rules": {}})
    whole.slot_lists = GRAMMAR.slot_lists
    whole.expansion_rules = GRAMMAR.rules
    whole.skip_words = GRAMMAR.skip_words
    return whole


def readings(results: object) -> set[tuple[str, str, str]]:
    assert hasattr(results, "__iter__")
    found: list[RecognizeResult] = list(results)
    return {
        (r.intent.name, r.response or "", repr(sorted((n, str(e.value)) for n, e in r.entities.items()))) for r in found
    }


def test_leaving_templates_out_loses_no_reading() -> None:
    whole = everything()
    texts = [normalise(t) for t in [*(row[0] for row in rows()), *SORRY, "please turn on the kitchen light thanks"]]
    for text in filter(None, texts):
        slot_lists = LEXICON.spoken_in([text]).slot_lists
        unfiltered = recognize_all(text, whole, slot_lists=slot_lists, intent_context={"area": "Kitchen"})
        assert readings(GRAMMAR.matches(text, LEXICON, "Kitchen")) == readings(unfiltered), text


def test_every_intent_of_the_package_is_carried_out_or_answered() -> None:
    package = get_intents("en")
    assert package is not None
    ours = {*CARRIED_OUT, *QUESTIONS, *TIMER_INTENTS, *LIST_INTENTS}
    assert set(package["intents"]) <= ours
    assert set(GRAMMAR.language.grammar["intents"]) <= set(package["intents"])


def test_every_reply_key_that_a_sentence_asks_for_has_a_reply() -> None:
    keys = {(t.intent, t.data.response) for templates in GRAMMAR.templates.values() for t in templates}
    assert [(intent, key) for intent, key in keys if key not in GRAMMAR.replies[intent]] == []


def test_every_template_parses_and_names_only_known_lists_and_rules() -> None:
    for template in (t for templates in GRAMMAR.templates.values() for t in templates):
        (sentence,) = template.data.sentences
        (text,) = template.data.sentence_texts
        assert set(re.findall(r"<([^<>]+)>", text)) <= set(GRAMMAR.rules), text
        names = {n.split(":")[0] for n in re.findall(r"\{([^{}]+)\}", text)}
        assert names <= set(GRAMMAR.slot_lists) | {"name", "area", "floor"}, text
        assert isinstance(beginnings(sentence, GRAMMAR.rules), tuple)
        assert isinstance(endings(sentence, GRAMMAR.rules), tuple)


def template(sentence: str) -> Template:
    from hassil.intents import IntentData

    return Template("X", IntentData([sentence], requires_context={"domain": ["light"]}))


def test_a_template_knows_what_it_cannot_do_without() -> None:
    found = template("<turn> on [(<all>|<the>)] {name} [to {brightness}] ({area};fan[s]) (a {zone}|b)")
    assert found.required == ("on",)
    assert found.lists == {"name", "area"}
    assert found.domains == {"light"}
    assert template("turn on the light").domains == frozenset()


def test_a_template_knows_how_it_begins_and_ends() -> None:
    (sentence,) = template("[<the>] (open|shut) {name} [<in> [<the>] (house|flat)[s]]").data.sentences
    assert beginnings(sentence, GRAMMAR.rules) == ("my", "open", "our", "shut", "the")
    assert endings(sentence, GRAMMAR.rules) == ()
    (sentence,) = template("[{name}] light[s] (on;here)").data.sentences
    assert beginnings(sentence, GRAMMAR.rules) == ()
    assert endings(sentence, GRAMMAR.rules) == ("here", "on")


def test_without_an_area_area_sentences_are_still_read() -> None:
    (result,) = GRAMMAR.matches("turn on the lights", LEXICON, None)
    assert result.entities["area"].value == NO_AREA


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(IntentError, match="en"):
        load_grammar("xx")
