"""The sentence that answers: an outcome put into the language's reply template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from appliance.intent.grammar import Grammar
from appliance.intent.numbers import digits_for_number_words
from appliance.intent.outcome import Outcome
from appliance.intent.problems import sentence_for
from appliance.intent.templating import render
from appliance.intent.types import Entity, Understanding
from appliance.intent.words import clean_words

__all__ = ["reply_text"]


@dataclass(frozen=True, slots=True)
class _StateView:
    """What a template may read of an entity, under Home Assistant's names."""

    entity_id: str
    domain: str
    name: str
    state: str
    state_with_unit: str
    attributes: Mapping[str, object]

    def __str__(self) -> str:
        return self.state


def reply_text(grammar: Grammar, understood: Understanding, outcome: Outcome) -> str:
    """What to say about an outcome. Raises IntentError where the language has no words for it."""
    if outcome.problem is not None:
        return sentence_for(outcome.problem, grammar)
    source = grammar.replies[understood.intent or ""][outcome.key]
    matched = [_view(grammar, e) for e in outcome.entities]
    unmatched = [_view(grammar, e) for e in outcome.unmatched]
    spoken_of = [*matched, *unmatched]
    return render(
        source,
        {
            "slots": {**_spoken_slots(grammar, understood), **outcome.slots},
            "state": spoken_of[0] if spoken_of else None,
            "query": {"matched": matched, "unmatched": unmatched},
            "state_attr": _state_attr(spoken_of),
        },
    )


def _spoken_slots(grammar: Grammar, understood: Understanding) -> dict[str, object]:
    """Slots as the templates take them: words, and numbers as they were said ("five", not 5)."""
    slots: dict[str, object] = {}
    for name, value in understood.slots.items():
        if isinstance(value, str):
            slots[name] = value
            continue
        said = understood.said.get(name, "")
        words = digits_for_number_words(clean_words(said), grammar.language)
        just_a_number = said.replace(" ", "").replace("-", "").isalpha() and [w.text for w in words] == [str(value)]
        slots[name] = said if just_a_number else str(value)
    return slots


def _view(grammar: Grammar, entity: Entity) -> _StateView:
    return _StateView(
        entity_id=entity.id,
        domain=entity.domain,
        name=entity.name,
        state=entity.state,
        state_with_unit=_with_unit(grammar, entity),
        attributes=_with_temperature_unit(entity),
    )


def _with_unit(grammar: Grammar, entity: Entity) -> str:
    if entity.domain == "binary_sensor":
        words = grammar.language.states.get(entity.device_class or "", {})
        return words.get(entity.state, entity.state)
    if entity.state == "not_home":
        return "away"
    unit = _unit(entity)
    return f"{entity.state} {unit}" if unit else entity.state.replace("_", " ")


def _unit(entity: Entity) -> str:
    return str(entity.attributes.get("unit_of_measurement") or entity.attributes.get("unit") or "")


def _with_temperature_unit(entity: Entity) -> Mapping[str, object]:
    if entity.domain == "weather" and "temperature_unit" not in entity.attributes:
        return {**entity.attributes, "temperature_unit": _unit(entity) or "degrees"}
    return entity.attributes


def _state_attr(views: Sequence[_StateView]) -> Callable[[str, str], object]:
    by_id = {v.entity_id: v for v in views}

    def state_attr(entity_id: str, name: str) -> object:
        view = by_id.get(entity_id)
        return None if view is None else view.attributes.get(name)

    return state_attr
