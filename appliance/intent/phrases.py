"""Everything people may say in one home: all sentences of the language with this home's names, places and numbers.

The templates are compiled straight into a `PhraseGraph`; no phrase is ever listed. Free text (a shopping item, a
song) stays free inside its sentence. The graph holds what the grammar understands, except numbers nobody says and
sentences that begin with free text: as phrases they would be anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from hassil.expression import (
    Alternative,
    Expression,
    Group,
    ListReference,
    Permutation,
    RuleReference,
    TextChunk,
)
from hassil.intents import RangeFractionType, RangeSlotList, TextSlotList
from hassil.parse_expression import parse_sentence

from appliance.intent.grammar import Grammar, load_grammar
from appliance.intent.language import Language
from appliance.intent.lexicon import HOME_LISTS, build_lexicon
from appliance.intent.phrase_graph import DEAD, END, PART_END, GraphBuilder, PhraseGraph
from appliance.intent.phrase_text import number_words, plain_letters
from appliance.intent.template import Template
from appliance.intent.types import HomeView

__all__ = ["phrase_graph"]

_COMMAND: Final = "timer_command"
"""The list of the package that stands for another sentence ("in five minutes" "turn off the light")."""
_PLACES: Final = ("name", "area", "floor")
_WHERE_MATTERS: Final = frozenset(
    {
        "HassTurnOn",
        "HassTurnOff",
        "HassLightSet",
        "HassFanSetSpeed",
        "HassSetPosition",
        "HassClimateGetTemperature",
        "HassClimateSetTemperature",
        "HassGetState",
    }
)
"""Intents of which a home has several places to choose from. Timers, music and the weather are one for most homes:
nobody stops after "resume the timer" to think where."""
_EVERY: Final = 999
"""Every number up to here is expected; beyond, whole hundreds."""
_LARGEST: Final = 10_000
_TENS: Final = range(20, 100, 10)
_MAX_DEPTH: Final = 24
"""Guards against rules that refer to each other."""


def phrase_graph(view: HomeView) -> PhraseGraph:
    """All phrases of a home. Pure; takes about a second. Raises IntentError where the language has no grammar."""
    grammar = load_grammar(view.language)
    return _Compiler(grammar, view).graph()


class _Compiler:
    def __init__(self, grammar: Grammar, view: HomeView) -> None:
        self._grammar = grammar
        self._language: Language = grammar.language
        self._version = view.version
        self._own = view.sentences
        self._builder = GraphBuilder()
        self._start = self._builder.reserve()
        self._command = self._builder.reserve()
        """What may be put off: as the start, but for what is put off already."""
        self._home: dict[str, dict[str, set[str]]] = {name: {} for name in HOME_LISTS}
        """By list: spoken form, and the domains of what it names."""
        for form, entries in build_lexicon(view, self._language).values.items():
            for name, value in entries:
                domains = self._home[name].setdefault(form, set())
                domains.add(str((value.context or {}).get("domain", "")))
        self._parts: dict[tuple[str, frozenset[str]], int] = {}
        self._numbers: dict[str, tuple[int, int]] = {}
        self._rules: dict[str, Expression] = {name: rule.expression for name, rule in grammar.rules.items()}
        for name, text in self._language.phrase_rules.items():
            self._rules[name] = Alternative(items=[self._rules[name], parse_sentence(text).expression])
        self._said: dict[tuple[str, ...], list[str]] = {}
        """Words of the grammar, and how else a recogniser may write them."""
        for said, meant in self._language.rewrites.items():
            if any(c.isdecimal() for c in said):  # "2nd" would also stand for a part of "seconds"
                continue
            self._said.setdefault(tuple(_plain(" ".join(meant)).split()), []).append(said)

    def graph(self) -> PhraseGraph:
        builder = self._builder
        templates = [t for same in self._grammar.templates.values() for t in same]
        end = self._behind(END)
        later = [
            _Sentence(self, template, rest).compile(end)
            for template in templates
            for rest in [_after_command(template)]
            if rest is not None
        ]
        whole = [t for t in templates if not self._begins_free(_expression(t))]
        now = [t for t in whole if _COMMAND not in t.lists]
        put_off = [t for t in whole if _COMMAND in t.lists]
        self._fill(self._command, self._sentences(now, end))
        own = [self.text(way, end) for sentence in self._own for way in sentence.say]
        at_once = self._sentences(now, builder.split((end, *later)))
        self._fill(self._start, [*own, *at_once, *self._sentences(put_off, end)])
        return builder.graph(self._version, self._start)

    def _sentences(self, templates: Iterable[Template], follow: int) -> list[int]:
        return [_Sentence(self, template, _expression(template)).compile(follow) for template in templates]

    def _fill(self, start: int, sentences: Iterable[int]) -> None:
        """Fill a reserved start. In front of any sentence may stand what means nothing, or a rest of the wake word."""
        language = self._language
        words = [*language.fillers, *(" ".join(w) for w in language.wake_words), *self._grammar.skip_words]
        again = self._builder.letter(" ", start)
        lead = self._builder.words([(_plain(word), again) for word in words])
        self._builder.fill(start, (*sentences, lead))

    def part(self, list_name: str, domains: frozenset[str]) -> int:
        """The part of a list's values, of the home's things only those of some domains (none: all)."""
        key = (list_name, domains)
        if key not in self._parts:
            self._parts[key] = self._part_of((w, PART_END) for w in self._values(list_name, domains) if w)
        return self._parts[key]

    def numbers(self, list_name: str) -> tuple[int, int] | None:
        """The parts of a list's numbers in digits and in words; None where it is no list of numbers."""
        slot_list = self._grammar.slot_lists.get(list_name)
        if not isinstance(slot_list, RangeSlotList):
            return None
        if list_name not in self._numbers:
            digits, words = self._digits(slot_list), ((w, PART_END) for w in self._number_words(slot_list))
            self._numbers[list_name] = (self._part_of(digits), self._part_of(words))
        return self._numbers[list_name]

    def is_wild(self, list_name: str) -> bool:
        return list_name in self._grammar.wildcards

    def wild(self, list_name: str, follow: int) -> int:
        return self._command if list_name == _COMMAND else self._builder.wild(follow)

    def rule(self, name: str) -> Expression | None:
        return self._rules.get(name)

    @property
    def builder(self) -> GraphBuilder:
        return self._builder

    def text(self, text: str, follow: int) -> int:
        """A stretch of a template, with the other ways to write its words."""
        plain = plain_letters(text)
        if plain is None:
            return DEAD
        words = plain.split()
        lead, trail = plain[:1] == " ", plain[-1:] == " "
        builder = self._builder
        after = [DEAD] * len(words) + [follow if not trail or not words else builder.letter(" ", follow)]
        for i in range(len(words) - 1, -1, -1):
            after[i] = builder.split(
                builder.text(said, after[i + n] if i + n == len(words) else builder.letter(" ", after[i + n]))
                for said, n in self._ways(words[i:])
            )
        return builder.letter(" ", after[0]) if lead else after[0]

    def _ways(self, words: Sequence[str]) -> Iterator[tuple[str, int]]:
        """How the words ahead may be written, and how many of them that takes."""
        yield words[0], 1
        if words[0].isdecimal() and len(words[0]) <= 4:
            yield from ((w, 1) for w in number_words(int(words[0]), self._language))
        for meant, said in self._said.items():
            if tuple(words[: len(meant)]) == meant:
                yield from ((_plain(s), len(meant)) for s in said)

    def _part_of(self, words: Iterable[tuple[str, int]]) -> int:
        return self._builder.part(self._builder.words(list(words)))

    def _values(self, list_name: str, domains: frozenset[str]) -> Iterator[str]:
        if list_name in self._home:
            for form, of in self._home[list_name].items():
                if not domains or domains & of:
                    yield from self._ways_of_all(form)
            return
        slot_list = self._grammar.slot_lists.get(list_name)
        if isinstance(slot_list, TextSlotList):
            for value in slot_list.values:
                for text in _samples(value.text_in, self.rule):
                    yield from self._ways_of_all(text)

    def _ways_of_all(self, text: str) -> Iterator[str]:
        """A short text in every way: as it is, with its numbers as words, and with other spellings."""
        plain = plain_letters(text)
        if plain is None:
            return
        words = plain.split()
        ways: list[list[list[str]]] = [[] for _ in words] + [[[]]]
        for i in range(len(words) - 1, -1, -1):
            ways[i] = [[said, *rest] for said, n in self._ways(words[i:]) for rest in ways[i + n]]
        yield from (" ".join(way) for way in ways[0])

    def _digits(self, numbers: RangeSlotList) -> Iterator[tuple[str, int]]:
        stop = min(numbers.stop, _LARGEST)
        for number in _expected(numbers):
            goes_on = number in _TENS and number < stop and numbers.step < 10
            yield str(number), self._builder.open(PART_END) if goes_on else PART_END
            if numbers.fraction_type is RangeFractionType.HALVES:  # "20.5": a point is no letter
                yield f"{number}5", PART_END

    def _number_words(self, numbers: RangeSlotList) -> Iterator[str]:
        five = next(number_words(5, self._language))
        for number in _expected(numbers):
            for words in number_words(number, self._language):
                yield words
                if numbers.fraction_type is RangeFractionType.HALVES:
                    yield f"{words} point {five}"
                    yield f"{words} and a half"

    def _begins_free(self, expression: Expression) -> bool:
        first = _first(expression)
        return isinstance(first, ListReference) and self.is_wild(first.list_name)

    def _behind(self, follow: int) -> int:
        """What may stand behind any sentence and means nothing."""
        said = [(f" {_plain(word)}", follow) for word in self._language.courtesies]
        return self._builder.split((follow, self._builder.words(said)))


class _Sentence:
    """Compiles one template."""

    def __init__(self, compiler: _Compiler, template: Template, expression: Expression) -> None:
        self._compiler = compiler
        self._builder = compiler.builder
        self._expression = expression
        self._domains = frozenset(str(d) for d in template.data.requires_context.get("domain", ()))
        self._one_place = template.intent in _WHERE_MATTERS and _lists_in(expression, compiler.rule, _PLACES) == 1

    def compile(self, follow: int) -> int:
        return self._compile(self._expression, follow, 0)

    def _compile(self, expression: Expression, follow: int, depth: int) -> int:
        if depth > _MAX_DEPTH or follow == DEAD:
            return DEAD
        if isinstance(expression, TextChunk):
            return self._compiler.text(expression.text, follow)
        if isinstance(expression, ListReference):
            return self._list(expression, follow)
        if isinstance(expression, RuleReference):
            rule = self._compiler.rule(expression.rule_name)
            return DEAD if rule is None else self._compile(rule, follow, depth + 1)
        assert isinstance(expression, Group)
        return self._group(expression, follow, depth + 1)

    def _group(self, group: Group, follow: int, depth: int) -> int:
        if isinstance(group, Alternative):
            return self._builder.split([self._compile(item, follow, depth) for item in group.items])
        if isinstance(group, Permutation) and group.items:
            return self._builder.split(
                self._compile(first, self._compile(rest, follow, depth), depth)
                for first, rest in group.iterate_permutations()
            )
        for item in reversed(group.items):
            follow = self._compile(item, follow, depth)
        return follow

    def _list(self, reference: ListReference, follow: int) -> int:
        name = reference.list_name
        if self._compiler.is_wild(name):
            return self._compiler.wild(name, follow)
        if (numbers := self._compiler.numbers(name)) is not None:
            digits, words = numbers
            # "4000k", but not "four thousandk": behind a word stands a space.
            behind_words = self._builder.letter(" ", follow)
            return self._builder.split((self._builder.call(digits, follow), self._builder.call(words, behind_words)))
        part = self._compiler.part(name, self._domains if name == "name" else frozenset())
        return self._builder.call(part, follow, place=self._one_place and name in _PLACES)


def _expected(numbers: RangeSlotList) -> Iterator[int]:
    """Numbers of a list that anybody may say."""
    all_of_them = range(numbers.start, min(numbers.stop, _LARGEST) + 1, numbers.step)
    return (number for number in all_of_them if number <= _EVERY or number % 100 == 0)


def _plain(text: str) -> str:
    """Letters of a text of our own data; what cannot be written so is none."""
    return plain_letters(text) or ""


def _expression(template: Template) -> Expression:
    (sentence,) = template.data.sentences
    return sentence.expression


def _first(expression: Expression) -> Expression | None:
    """What a template begins with: its first piece that is not blank."""
    if isinstance(expression, Group) and not isinstance(expression, Alternative | Permutation):
        return next((first for item in expression.items if (first := _first(item)) is not None), None)
    if isinstance(expression, TextChunk) and not expression.text.strip():
        return None
    return expression


def _after_command(template: Template) -> Expression | None:
    """What follows another sentence in this template ("… in five minutes"); None where it is no such template."""
    expression = _expression(template)
    if isinstance(expression, Group) and expression.items:
        first = expression.items[0]
        if isinstance(first, ListReference) and first.list_name == _COMMAND:
            return Group(items=expression.items[1:])
    return None


def _lists_in(
    expression: Expression, rule: Callable[[str], Expression | None], names: Iterable[str], depth: int = 0
) -> int:
    """How often these lists stand in a template; of alternatives, the most."""
    if depth > _MAX_DEPTH:
        return 0
    if isinstance(expression, ListReference):
        return int(expression.list_name in names)
    if isinstance(expression, RuleReference):
        body = rule(expression.rule_name)
        return 0 if body is None else _lists_in(body, rule, names, depth + 1)
    if isinstance(expression, Group):
        counts = [_lists_in(item, rule, names, depth + 1) for item in expression.items]
        return (max(counts, default=0)) if isinstance(expression, Alternative) else sum(counts)
    return 0


def _samples(expression: Expression, rule: Callable[[str], Expression | None], depth: int = 0) -> list[str]:
    """Every text of a list's value; values are words, not sentences, so there are few."""
    if depth > _MAX_DEPTH:
        return []
    if isinstance(expression, TextChunk):
        return [expression.text]
    if isinstance(expression, RuleReference):
        body = rule(expression.rule_name)
        return [] if body is None else _samples(body, rule, depth + 1)
    if isinstance(expression, Alternative):
        return [text for item in expression.items for text in _samples(item, rule, depth + 1)]
    if isinstance(expression, Group):
        texts = [""]
        for item in expression.items:
            texts = [head + tail for head in texts for tail in _samples(item, rule, depth + 1)]
        return texts
    return []
