"""The home's own words as hassil slot lists: names, areas, floors, and the places people can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hassil.expression import TextChunk
from hassil.intents import SlotList, TextSlotList, TextSlotValue

from appliance.intent.language import Language
from appliance.intent.names import spoken_forms, without_area
from appliance.intent.types import Area, Entity, Floor, HomeView

__all__ = ["Lexicon", "build_lexicon", "naming"]

_UNPLACED = ("", "unknown", "unavailable", "home", "not_home")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What can be named in one home. Immutable: a changed home gets a new one."""

    naming: object
    """What it was built from: an equal one needs no new lexicon."""
    slot_lists: dict[str, SlotList]
    areas: dict[str, str]
    """Every spoken form of an area, and the area's own name."""
    kinds: dict[str, frozenset[str]]
    """Every spoken form, and what it can be: the list it is in, and for names `name/<domain>`."""
    longest: int
    """Words of the longest form."""

    def kinds_in(self, text: str) -> frozenset[str]:
        """What kinds of the home's words stand in a normalised text."""
        words = text.split()
        found: set[str] = set()
        for start in range(len(words)):
            for end in range(start + 1, min(start + self.longest, len(words)) + 1):
                found |= self.kinds.get(" ".join(words[start:end]), frozenset())
        return frozenset(found)


def naming(view: HomeView) -> object:
    """The part of a view that names depend on; states may change without it."""
    people = tuple(e.state for e in view.entities if e.domain == "person")
    things = tuple((e.id, e.name, e.domain, e.area, e.aliases) for e in view.entities)
    return (view.language, view.floors, view.areas, things, people)


def build_lexicon(view: HomeView, language: Language) -> Lexicon:
    """Build the slot lists of a home."""

    def forms_of(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f for n in names for f in spoken_forms(n, language)))

    area_forms = {a.name: forms_of((a.name, *a.aliases)) for a in view.areas}
    places = dict.fromkeys((*language.places, *(a.name for a in view.areas)))
    for entity in view.entities:
        if entity.domain == "zone":
            places[entity.name] = None
        elif entity.domain == "person" and entity.state not in _UNPLACED:
            places[entity.state] = None
    names = [
        TextSlotValue(
            TextChunk(form),
            entity.name,
            {"domain": entity.domain},
            {"id": entity.id, "area": entity.area, "stretch": stretch},
        )
        for entity in view.entities
        for form, stretch in _entity_forms(entity, area_forms, language).items()
    ]
    slot_lists = {
        "name": TextSlotList("name", names),
        "area": _plain_list("area", view.areas, forms_of),
        "floor": _plain_list("floor", view.floors, forms_of),
        "zone": TextSlotList("zone", [TextSlotValue(TextChunk(f), p) for p in places for f in forms_of((p,))]),
    }
    kinds: dict[str, set[str]] = {}
    for name, slot_list in slot_lists.items():
        for value in slot_list.values:
            of_form = kinds.setdefault(_form(value), {name})
            of_form.add(name)
            if name == "name" and value.context:
                of_form.add(f"name/{value.context['domain']}")
    return Lexicon(
        naming=naming(view),
        slot_lists={**slot_lists},
        areas={form: name for name, forms in area_forms.items() for form in forms},
        kinds={form: frozenset(of_form) for form, of_form in kinds.items()},
        longest=max((form.count(" ") + 1 for form in kinds), default=0),
    )


def _entity_forms(
    entity: Entity,
    area_forms: dict[str, tuple[str, ...]],
    language: Language,
) -> dict[str, int]:
    """What the entity may be called, and how far each form is from its name: the nearer thing is meant."""
    forms: dict[str, int] = {}
    for names, stretch in (((entity.name,), 0), (entity.aliases, 1)):
        for name in names:
            for n, form in enumerate(spoken_forms(name, language)):
                forms.setdefault(form, stretch if n == 0 else 2)
    for form in tuple(forms):
        shorter = without_area(form, area_forms.get(entity.area or "", ()), language)
        if shorter is not None:
            forms.setdefault(shorter, 3)
    return forms


def _form(value: TextSlotValue) -> str:
    return value.text_in.text if isinstance(value.text_in, TextChunk) else ""


def _plain_list(
    name: str, things: Iterable[Area | Floor], forms_of: Callable[[Iterable[str]], tuple[str, ...]]
) -> TextSlotList:
    values: list[Any] = [
        TextSlotValue(TextChunk(form), thing.name)
        for thing in things
        for form in forms_of((thing.name, *thing.aliases))
    ]
    return TextSlotList(name, values)
