"""A graph over letters whose paths are phrases, in compact arrays, and the builder that shares equal parts.

It is built from the back: a node is made when what follows it is known, and equal nodes are one node. So sentences
that end alike share their ends, and a word list is a minimal automaton. Lists (names, areas, numbers) are parts of
their own that sentences call, so a home of a thousand names holds them once, not once a sentence.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

__all__ = ["DEAD", "END", "PART_END", "GraphBuilder", "Kind", "PhraseGraph"]

DEAD = -1
"""No node: nothing leads to an end from here."""
END = 0
"""The node where a phrase ends."""
PART_END = 1
"""The node where a part ends; reading goes on behind the call."""


class Kind(IntEnum):
    """What a node does. `value` and `target` are those of `PhraseGraph`."""

    LETTER = 0
    """Reads one letter (`value` is its code point), goes on at `target`."""
    SPLIT = 1
    """Goes on at any of `value` nodes, listed in `pool` from `target` on."""
    CALL = 2
    """Reads the part `value`, goes on at `target`."""
    CALL_PLACE = 3
    """A call whose part says where: the first and only place of its sentence."""
    WILD = 4
    """Reads any letter but a space; goes on as WILD_INSIDE."""
    WILD_INSIDE = 5
    """Reads any letter, or goes on at `target`."""
    OPEN = 6
    """Goes on at `target`; what was read may be the beginning of a longer number ("20", "twenty five")."""
    FINAL = 7
    """An end: END or PART_END."""


@dataclass(frozen=True, slots=True)
class PhraseGraph:
    """Immutable. Parts hold neither calls nor free text."""

    version: int
    """Version of the view it was built from."""
    start: int
    """Node before the first letter."""
    kinds: array[int]
    """[nodes] `Kind` of each."""
    values: array[int]
    """[nodes] see `Kind`."""
    targets: array[int]
    """[nodes] see `Kind`."""
    pool: array[int]
    """Targets of the splits."""
    parts: array[int]
    """[parts] node where each part begins."""

    @property
    def size_bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self.kinds, self.values, self.targets, self.pool, self.parts)
        return sum(a.itemsize * len(a) for a in arrays)


class GraphBuilder:
    """Makes nodes; each method takes the node to go on at and gives the node to begin at."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, int | tuple[int, ...]]] = []
        self._known: dict[tuple[int, int, int | tuple[int, ...]], int] = {}
        self._parts: list[int] = []
        self._reserved: set[int] = set()
        for number in (END, PART_END):
            self._node(Kind.FINAL, number, number)

    def letter(self, char: str, follow: int) -> int:
        """One letter."""
        return follow if follow == DEAD else self._node(Kind.LETTER, ord(char), follow)

    def text(self, letters: str, follow: int) -> int:
        """One letter after the other."""
        for char in reversed(letters):
            follow = self.letter(char, follow)
        return follow

    def split(self, targets: Iterable[int]) -> int:
        """Any of these."""
        flat: set[int] = set()
        for target in targets:
            if target != DEAD:
                more = self._nodes[target][2]
                flat.update(more if isinstance(more, tuple) and target not in self._reserved else (target,))
        if len(flat) <= 1:
            return next(iter(flat), DEAD)
        return self._node(Kind.SPLIT, len(flat), tuple(sorted(flat)))

    def words(self, words: Sequence[tuple[str, int]]) -> int:
        """Any of these texts, each with the node to go on at; shares beginnings as well as ends."""
        return self._words(sorted(set(words)), 0)

    def part(self, node: int) -> int:
        """Make a part that begins at a node (and ends at PART_END); its number is for `call`. DEAD stays DEAD."""
        if node == DEAD:
            return DEAD
        self._parts.append(node)
        return len(self._parts) - 1

    def call(self, part: int, follow: int, *, place: bool = False) -> int:
        """Read a part."""
        if DEAD in (part, follow):
            return DEAD
        return self._node(Kind.CALL_PLACE if place else Kind.CALL, part, follow)

    def wild(self, follow: int) -> int:
        """Read one letter or more, whatever they are; the first is no space."""
        return DEAD if follow == DEAD else self._node(Kind.WILD, 0, self._node(Kind.WILD_INSIDE, 0, follow))

    def open(self, follow: int) -> int:
        """Mark that what was read may go on within the same number."""
        return DEAD if follow == DEAD else self._node(Kind.OPEN, 0, follow)

    def reserve(self) -> int:
        """A split whose targets are given later by `fill`: for what comes back to where it began."""
        self._nodes.append((Kind.SPLIT, 0, ()))
        self._reserved.add(len(self._nodes) - 1)
        return len(self._nodes) - 1

    def fill(self, node: int, targets: Iterable[int]) -> None:
        """Give a reserved split its targets."""
        alive = tuple(sorted({t for t in targets if t != DEAD}))
        self._nodes[node] = (Kind.SPLIT, len(alive), alive)

    def graph(self, version: int, start: int) -> PhraseGraph:
        """The finished graph; the builder is of no use afterwards."""
        kinds, values, targets, pool = array("b"), array("i"), array("i"), array("i")
        for kind, value, target in self._nodes:
            kinds.append(kind)
            values.append(value)
            if isinstance(target, tuple):
                targets.append(len(pool))
                pool.extend(target)
            else:
                targets.append(target)
        return PhraseGraph(version, start, kinds, values, targets, pool, array("i", self._parts))

    def _words(self, words: Sequence[tuple[str, int]], depth: int) -> int:
        targets = [follow for word, follow in words if len(word) == depth]
        longer = [entry for entry in words if len(entry[0]) > depth]
        for char, group in groupby(longer, key=lambda entry: entry[0][depth]):
            same = list(group)
            if len(same) == 1:
                word, follow = same[0]
                targets.append(self.text(word[depth:], follow))
            else:
                targets.append(self.letter(char, self._words(same, depth + 1)))
        return self.split(targets)

    def _node(self, kind: Kind, value: int, target: int | tuple[int, ...]) -> int:
        key = (int(kind), value, target)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self._nodes)
            self._nodes.append(key)
        return known
