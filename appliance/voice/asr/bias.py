"""The home's phrases as an automaton over letters, made deterministic as it is walked.

The graph of a home with a thousand names has a few ten thousand nodes; its deterministic form would have millions of
states, of which a day's speech visits a few thousand. So a state is made when it is first reached, kept while there
is room, and shared by all sessions.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from appliance.intent.phrase_graph import DEAD, END, PART_END, Kind, PhraseGraph
from appliance.intent.phrase_text import plain_letters
from appliance.voice.asr.protocol import BiasState, Extension, Reach

__all__ = ["MAX_STATES", "LetterBias"]

MAX_STATES: Final = 20_000
"""States kept (about 1.5 kB each); beyond them all are dropped and made anew."""

_Returns = frozenset[int]
"""Nodes at which reading goes on behind a part."""
_Configurations = tuple[frozenset[int], frozenset[tuple[int, _Returns]]]
"""Nodes outside any part, and nodes inside one with where to return to."""
_NOWHERE: Final = Reach(False, False, Extension.NONE)


class _State:
    """All nodes that the same letters lead to."""

    __slots__ = ("after_space", "ends", "extension", "inside", "next", "open", "outside", "pending", "wild", "wild_end")

    def __init__(self, outside: frozenset[int], inside: frozenset[tuple[int, _Returns]], after_space: bool) -> None:
        self.outside = outside
        self.inside = inside
        self.after_space = after_space
        self.next: dict[str, _State | None] = {}
        """By letter: the states that were already asked for."""
        self.pending: dict[str, tuple[set[int], dict[int, set[int]]]] = {}
        """By letter: nodes that it leads to, for those that were not."""
        self.wild: set[int] = set()
        """Nodes that any letter leads to."""
        self.wild_end = False
        """Whether it is inside free text that may be the end of a phrase."""
        self.ends = False
        """Whether a phrase ends exactly here."""
        self.open = False
        """Whether what was read may be the beginning of a longer number."""
        self.extension: Extension | None = None
        """Worked out when it is asked for."""


class LetterBias:
    """See `Bias`. Thread-safe: states are made under a lock, and read without one."""

    def __init__(self, graph: PhraseGraph, *, max_states: int = MAX_STATES) -> None:
        self._graph = graph
        self._max_states = max_states
        self._lock = threading.Lock()
        self._place_ahead = _place_ahead(graph)
        self._closures: dict[tuple[int, bool], _Closure] = {}
        self._states: dict[tuple[_Configurations, bool], _State] = {}
        self.resets = 0
        """How often the states were dropped for want of room."""
        self._start = self._state({graph.start} if graph.start != DEAD else set(), {}, True)

    @property
    def version(self) -> int:
        """Version of the view."""
        return self._graph.version

    @property
    def start(self) -> BiasState:
        """Before the first letter."""
        return self._start

    @property
    def states(self) -> int:
        """States made and kept so far."""
        return len(self._states)

    def step(self, state: BiasState, letters: str) -> BiasState | None:
        """See `Bias.step`."""
        assert isinstance(state, _State)
        for letter in letters:
            following = state.next[letter] if letter in state.next else self._made(state, letter)
            if following is None:
                return None
            state = following
        return state

    def complete(self, state: BiasState) -> bool:
        """See `Bias.complete`."""
        assert isinstance(state, _State)
        if state.ends or state.after_space:
            return state.ends
        behind = self.step(state, " ")  # a template may end in blanks: "turn on [the]" without its article
        return isinstance(behind, _State) and behind.ends

    def extension(self, state: BiasState) -> Extension:
        """See `Bias.extension`."""
        assert isinstance(state, _State)
        if state.extension is None:
            state.extension = self._extension(state)
        return state.extension

    def look(self, text: str) -> Reach:
        """See `Bias.look`."""
        letters = plain_letters(text)
        state = None if letters is None else self.step(self._start, letters.strip())
        if state is None:
            return _NOWHERE
        return Reach(True, self.complete(state), self.extension(state))

    def warm(self, states: int) -> None:
        """Make the states nearest to the start now: those of the first words are the largest, and every utterance
        comes through them."""
        todo: deque[_State] = deque([self._start])
        seen = {id(self._start)}
        while todo and self.states < min(states, self._max_states):
            state = todo.popleft()
            for letter in [*state.pending]:
                following = self._made(state, letter)
                if following is not None and id(following) not in seen:
                    seen.add(id(following))
                    todo.append(following)

    def _extension(self, state: _State) -> Extension:
        if state.open or state.wild_end or not self.complete(state):
            return Extension.LIKELY
        behind = state if state.after_space else self.step(state, " ")
        if not isinstance(behind, _State) or not (behind.pending or behind.next or behind.wild):
            return Extension.NONE
        if behind.inside or any(self._place_ahead[node] for node in behind.outside):
            return Extension.LIKELY
        return Extension.RARE

    def _made(self, state: _State, letter: str) -> _State | None:
        with self._lock:
            if letter in state.next:
                return state.next[letter]
            if letter == " " and state.after_space:
                made: _State | None = state  # any number of spaces is one
            else:
                outside, inside = state.pending.pop(letter, (set(), {}))
                outside |= state.wild
                made = self._state(outside, inside, letter == " ") if outside or inside else None
            state.next[letter] = made
            return made

    def _state(self, outside: Iterable[int], inside: Mapping[int, set[int]], after_space: bool) -> _State:
        frozen = (frozenset(outside), frozenset((node, frozenset(returns)) for node, returns in inside.items()))
        key = (frozen, after_space)
        known = self._states.get(key)
        if known is None:
            if len(self._states) >= self._max_states:
                self._drop()
            known = self._states[key] = _State(*frozen, after_space)
            self._close(known)
        return known

    def _drop(self) -> None:
        """Let all states go. Those that a search holds stay good: each knows its own nodes."""
        self.resets += 1
        self._states.clear()
        self._closures.clear()
        old = self._start
        self._start = self._states[(old.outside, old.inside), True] = _State(old.outside, old.inside, True)
        self._close(self._start)

    def _close(self, state: _State) -> None:
        """Find every letter that may follow."""
        outside: set[int] = set(state.outside)
        for node, returns in state.inside:
            closure = self._closure(node, state.after_space)
            self._add_inside(state, closure, returns)
            if closure.ends:
                outside.update(returns)
        calls: dict[int, set[int]] = {}
        for node in outside:
            closure = self._closure(node, state.after_space)
            state.ends |= closure.ends
            state.open |= closure.open
            state.wild |= closure.wild
            state.wild_end |= closure.wild_end
            for letter, target in closure.letters:
                state.pending.setdefault(letter, (set(), {}))[0].add(target)
            for part, target in closure.calls:
                calls.setdefault(part, set()).add(target)
        for part, targets in calls.items():
            self._add_inside(state, self._closure(self._graph.parts[part], state.after_space), targets)

    def _add_inside(self, state: _State, closure: _Closure, returns: Iterable[int]) -> None:
        state.open |= closure.open
        for letter, target in closure.letters:
            state.pending.setdefault(letter, (set(), {}))[1].setdefault(target, set()).update(returns)

    def _closure(self, node: int, after_space: bool) -> _Closure:
        key = (node, after_space)
        known = self._closures.get(key)
        if known is None:
            known = self._closures[key] = _Closure(self._graph, node, after_space)
        return known


class _Closure:
    """What can be read next from one node, without reading anything first."""

    __slots__ = ("calls", "ends", "letters", "open", "wild", "wild_end")

    def __init__(self, graph: PhraseGraph, node: int, after_space: bool) -> None:
        """`after_space`: a space was just read, so those that follow in the graph are passed over."""
        self.letters: list[tuple[str, int]] = []
        self.calls: list[tuple[int, int]] = []
        self.wild: set[int] = set()
        self.ends = self.open = self.wild_end = False
        seen = {node}
        todo = [(node, False)]
        while todo:
            at, in_wild = todo.pop()
            kind, value, target = graph.kinds[at], graph.values[at], graph.targets[at]
            more: Iterable[int] = ()
            if kind == Kind.LETTER:
                if after_space and value == ord(" "):
                    more = (target,)
                else:
                    self.letters.append((chr(value), target))
            elif kind == Kind.SPLIT:
                more = graph.pool[target : target + value]
            elif kind in (Kind.CALL, Kind.CALL_PLACE):
                self.calls.append((value, target))
            elif kind == Kind.WILD:
                self.wild.add(target)
            elif kind == Kind.WILD_INSIDE:
                self.wild.add(at)
                more, in_wild = (target,), True
            elif kind == Kind.OPEN:
                self.open = True
                more = (target,)
            else:
                self.ends = True
                self.wild_end |= in_wild
            todo.extend((n, in_wild) for n in more if n not in seen)
            seen.update(more)


def _place_ahead(graph: PhraseGraph) -> array[int]:
    """[nodes] 1 where a place may still come before the end. Nodes come after those they lead to, but for the jump
    back to the start, where a new sentence begins."""
    ahead = array("b", bytes(len(graph.kinds)))
    for node, (kind, value, target) in enumerate(zip(graph.kinds, graph.values, graph.targets, strict=True)):
        if kind == Kind.CALL_PLACE:
            ahead[node] = 1
        elif kind == Kind.SPLIT and node != graph.start:
            ahead[node] = any(ahead[n] for n in graph.pool[target : target + value])
        elif node not in (END, PART_END):
            ahead[node] = ahead[target] if target < node else 0
    return ahead
