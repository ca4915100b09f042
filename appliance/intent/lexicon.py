"""The home's own words: names, areas, floors and the places people can be, found in a text by their spoken forms.

A text gets slot lists of only those words that stand in it, so matching costs the same in a home of a thousand
things as in one of ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hassil.expression import TextChunk
from hassil.intents import SlotList, TextSlotList, TextSlotValue

from appliance.intent.language import Language
from appliance.intent.names import spoken_forms, without_area
from appliance.intent.types import Entity, HomeView

__all__ = ["HOME_LISTS", "Lexicon", "Spoken", "build_lexicon", "naming"]

HOME_LISTS = ("name", "area", "floor", "zone")
"""Lists of the grammar that are filled from the home."""

_UNPLACED = ("", "unknown", "unavailable", "home", "not_home")


@dataclass(frozen=True, slots=True)
class Spoken:
    """The home's words that stand in one text."""

    slot_lists: dict[str, SlotList]
    absent: frozenset[str]
    """Lists of which no value stands in it."""
    domains: frozenset[str]
    """Domains of the entities whose names stand in it."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What can be named in one home. Immutable: a changed home gets a new one."""

    naming: object
    """What it was built from: an equal one needs no new lexicon."""
    areas: dict[str, str]
    """Every spoken form of an area, and the area's own name."""
    values: dict[str, list[tuple[str, TextSlotValue]]]
    """By spoken form: the lists it is in, with its value there."""
    longest: int
    """Words of the longest form."""

    def spoken_in(self, texts: Iterable[str]) -> Spoken:
        """The home's words that stand in any of these normalised texts."""
        forms = dict.fromkeys(form for text in texts for form in self._forms_in(text))
        found: dict[str, list[TextSlotValue]] = {name: [] for name in HOME_LISTS}
        for form in forms:
            for name, value in self.values[form]:
                found[name].append(value)
        return Spoken(
            slot_lists={name: TextSlotList(name, values) for name, values in found.items()},
            absent=frozenset(name for name, values in found.items() if not values),
            domains=frozenset(str(v.context["domain"]) for v in found["name"] if v.context),
        )

    def _forms_in(self, text: str) -> Iterator[str]:
        words = text.split()
        for start in range(len(words)):
            for end in range(start + 1, min(start + self.longest, len(words)) + 1):
                form = " ".join(words[start:end])
                if form in self.values:
                    yield form


def naming(view: HomeView) -> object:
    """The part of a view that names and sentences depend on; states may change without it."""
    # Where people are is a word of the home too; that they come and go is not.
    people = tuple(sorted({e.state for e in view.entities if e.domain == "person"} - set(_UNPLACED)))
    things = tuple((e.id, e.name, e.domain, e.area, e.aliases) for e in view.entities)
    return (view.language, view.floors, view.areas, things, people, view.sentences)


def build_lexicon(view: HomeView, language: Language) -> Lexicon:
    """Collect the words of a home."""
    values: dict[str, list[tuple[str, TextSlotValue]]] = {}

    def add(list_name: str, form: str, value: TextSlotValue) -> None:
        values.setdefault(form, []).append((list_name, value))

    def forms_of(*names: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f for n in names for f in spoken_forms(n, language)))

    area_forms = {a.name: forms_of(a.name, *a.aliases) for a in view.areas}
    for area, forms in area_forms.items():
        for form in forms:
            add("area", form, TextSlotValue(TextChunk(form), area))
    for floor in view.floors:
        for form in forms_of(floor.name, *floor.aliases):
            add("floor", form, TextSlotValue(TextChunk(form), floor.name))
    for place in _places(view, language):
        for form in forms_of(place):
            add("zone", form, TextSlotValue(TextChunk(form), place))
    for entity in view.entities:
        for form, stretch in _entity_forms(entity, area_forms.get(entity.area or "", ()), language).items():
            metadata = {"id": entity.id, "area": entity.area, "stretch": stretch}
            context = {"domain": entity.domain}
            add("name", form, TextSlotValue(TextChunk(form), entity.name, context, metadata))
    return Lexicon(
        naming=naming(view),
        areas={form: area for area, forms in area_forms.items() for form in forms},
        values=values,
        longest=max((form.count(" ") + 1 for form in values), default=0),
    )


def _places(view: HomeView, language: Language) -> Iterable[str]:
    places = [*language.places, *(a.name for a in view.areas)]
    for entity in view.entities:
        if entity.domain == "zone":
            places.append(entity.name)
        elif entity.domain == "person" and entity.state not in _UNPLACED:
            places.append(entity.state)
    return {p.casefold(): p for p in reversed(places)}.values()


def _entity_forms(entity: Entity, area_forms: tuple[str, ...], language: Language) -> dict[str, int]:
    """What the entity may be called, and how far each form is from its name: the nearer thing is meant."""
    forms: dict[str, int] = {}
    for names, stretch in (((entity.name,), 0), (entity.aliases, 1)):
        for name in names:
            for n, form in enumerate(spoken_forms(name, language)):
                forms.setdefault(form, stretch if n == 0 else 2)
    for form in tuple(forms):
        shorter = without_area(form, area_forms, language)
        if shorter is not None:
            forms.setdefault(shorter, 3)
    return forms
