"""Beam search of a transducer, an encoder frame at a time: free paths, and beside them, in the same batch, paths that
may only take labels which lead on in a grammar.

All paths stand at the same frame after each step, so a phrase that has fallen too far behind the free text is dropped
at once. States are immutable: a search goes on from one as often as it likes, and one that only looks leaves it alone.

Where a frame gives at most one label (icefall's models) this is icefall's and sherpa-onnx's `modified_beam_search`:
paths of the same labels are summed, the best a label is taken. Where it may give several (NeMo's) paths of the same
labels count by their best, and the most probable is taken. One path alone is greedy search.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Bias, BiasState
from appliance.voice.asr.reading import Found, LeadSettings, Reading
from appliance.voice.asr.transducer.networks import Encoded, LogProbabilities, Predicted

__all__ = ["Path", "Search", "SearchSettings", "SearchState"]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How widely is looked. Distances are in natural logarithm."""

    paths: int = 4
    """Free paths; sherpa-onnx's own default. 1 is greedy search."""
    beams: int = 8
    """Phrases followed at once, at most."""
    width: float = 14.0
    """Furthest that a phrase may fall behind the free text at any frame. More than is accepted in the end: of two
    paths that come to the same, one may give its labels some frames later. Not yet measured on real weights."""
    leads: LeadSettings = field(default_factory=LeadSettings)


@dataclass(frozen=True, slots=True)
class Path:
    """Labels so far, blanks left out."""

    logp: float
    """Of all frames so far, blanks included."""
    ids: tuple[int, ...]
    predicted: Predicted
    state: BiasState | None
    """Where it stands in the grammar; None where it has left it, or there is none."""
    led: int = 0
    """Labels in front of the phrase that are no part of it."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """All paths, at one frame."""

    free: tuple[Path, ...]
    beams: tuple[Path, ...]


class Scorer(Protocol):
    """Decoder and joiner; see `Predictor`."""

    def first(self) -> Predicted:
        """Before any label."""
        ...

    def after(self, rows: Sequence[tuple[Predicted, int]]) -> list[Predicted]:
        """After one more label."""
        ...

    def logp(self, frame: npt.NDArray[np.float32], rows: Sequence[Predicted]) -> LogProbabilities:
        """[rows, labels] at an encoder frame."""
        ...


class Search:
    """See the module. Holds nothing of an utterance but what the scorer remembers of labels."""

    def __init__(
        self,
        scorer: Scorer,
        settings: SearchSettings,
        *,
        blank: int,
        context: int,
        max_symbols: int,
        unknown: int | None = None,
        letters: Letters | None = None,
        bias: Bias | None = None,
    ) -> None:
        """`letters` say what labels stand for in the grammar; needed with a bias. `context` as in the metadata.
        `unknown` is a label that counts as blank (icefall's models write nothing for it)."""
        if bias is not None and letters is None:
            raise ValueError("a grammar of letters needs the letters of the labels")
        self._scorer = scorer
        self._settings = settings
        self._nothing = frozenset({blank} if unknown is None else {blank, unknown})
        """Labels that leave a path as it is."""
        self._context = context
        self._max_symbols = max_symbols
        self._letters = letters
        self._bias = bias

    def start(self) -> SearchState:
        """Before the first frame."""
        begin = Path(0.0, (), self._scorer.first(), None if self._bias is None else self._bias.start)
        return SearchState((begin,), () if self._bias is None else (begin,))

    def advance(self, state: SearchState, frame: npt.NDArray[np.float32]) -> SearchState:
        """One encoder frame [width] on."""
        free, beams = (self._one if self._max_symbols == 1 else self._several)(state, frame)
        return SearchState(free, self._with_leads(free, beams))

    def advance_all(self, state: SearchState, frames: Encoded) -> SearchState:
        """Some encoder frames on."""
        for frame in frames:
            state = self.advance(state, frame)
        return state

    def best(self, state: SearchState) -> Path:
        """The free text."""
        if self._max_symbols > 1:
            return max(state.free, key=lambda path: path.logp)
        return max(state.free, key=lambda path: path.logp / (len(path.ids) + self._context))

    def found(self, state: SearchState) -> Found:
        """What was said, if nothing follows."""
        free, bias = self.best(state), self._bias
        if bias is None:
            return Found(free.ids, free.logp)
        if free.state is not None and bias.complete(free.state):
            return Found(free.ids, free.logp, free.ids, free.logp, free.state)
        passed = self._reading(bias, free.ids).passed
        whole = [beam for beam in state.beams if self._is_phrase(bias, beam, passed)]
        if not whole:
            return Found(free.ids, free.logp)
        best = max(whole, key=lambda beam: beam.logp)
        return Found(free.ids, free.logp, best.ids[best.led :], best.logp, best.state)

    # ---- one step -------------------------------------------------------------------------------------------------

    def _one(self, state: SearchState, frame: npt.NDArray[np.float32]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """A frame that gives one label or none."""
        scores = self._scores(frame, [*state.free, *state.beams])
        split = len(state.free)
        moves = sorted(self._free_moves(state.free, scores[:split]), key=_falling)[: self._settings.paths]
        free = _summed(moves)
        floor = max(move.logp for move in free) - self._settings.width
        beams = _summed(self._phrase_moves(state.beams, scores[split:], floor))
        return self._grown(free), self._grown(self._chosen(beams, floor))

    def _several(self, state: SearchState, frame: npt.NDArray[np.float32]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """A frame that may give some labels, until a blank ends it."""
        settings, nothing = self._settings, self._nothing
        free, beams = state.free, state.beams
        ended: list[_Move] = []
        ended_beams: list[_Move] = []
        for _ in range(self._max_symbols):
            scores = self._scores(frame, [*free, *beams])
            split = len(free)
            moves = sorted(_best([*ended, *self._free_moves(free, scores[:split])]), key=_falling)[: settings.paths]
            ended = [move for move in moves if move.label in nothing]
            free = self._grown([move for move in moves if move.label not in nothing])
            floor = moves[0].logp - settings.width
            moves = _best([*ended_beams, *self._phrase_moves(beams, scores[split:], floor)])
            ended_beams = self._chosen([move for move in moves if move.label in nothing], floor)
            beams = self._grown(self._chosen([move for move in moves if move.label not in nothing], floor))
            if not free and not beams:
                break
        # Those that have given all that a frame may give go on without a blank, as in sherpa-onnx.
        ended = _best([*ended, *(self._still(path) for path in free)])
        ended_beams = self._chosen(_best([*ended_beams, *(self._still(path) for path in beams)]), -math.inf)
        return self._grown(ended), self._grown(ended_beams)

    def _scores(self, frame: npt.NDArray[np.float32], paths: Sequence[Path]) -> LogProbabilities:
        """[paths, labels]; what several paths share is computed once."""
        rows: dict[int, int] = {}
        for path in paths:
            rows.setdefault(id(path.predicted), len(rows))
        unique = {id(path.predicted): path.predicted for path in paths}
        scores = self._scorer.logp(frame, [unique[key] for key in rows])
        return scores[[rows[id(path.predicted)] for path in paths]]

    def _free_moves(self, paths: Sequence[Path], scores: LogProbabilities) -> Iterator[_Move]:
        for path, row in zip(paths, scores, strict=True):
            for label in _likeliest(row, self._settings.paths):
                yield self._move(path, label, float(row[label]))

    def _phrase_moves(self, paths: Sequence[Path], scores: LogProbabilities, floor: float) -> Iterator[_Move]:
        """Blank, and every label that leads on in the grammar, where it does not fall behind too far."""
        for path, row in zip(paths, scores, strict=True):
            for label in np.flatnonzero(row >= floor - path.logp):
                move = self._move(path, int(label), float(row[label]))
                if move.state is not None:
                    yield move

    def _move(self, path: Path, label: int, logp: float) -> _Move:
        if label in self._nothing:
            return _Move(path.logp + logp, path, label, path.ids, path.state)
        return _Move(path.logp + logp, path, label, (*path.ids, label), self._step(path.state, label))

    def _still(self, path: Path) -> _Move:
        return self._move(path, min(self._nothing), 0.0)

    def _grown(self, moves: Iterable[_Move]) -> tuple[Path, ...]:
        """The paths behind the moves; the decoder sees all new labels at once."""
        moves = list(moves)
        new = [(move.path.predicted, move.label) for move in moves if move.label not in self._nothing]
        predicted = iter(self._scorer.after(new))
        return tuple(
            replace(
                move.path,
                logp=move.logp,
                ids=move.ids,
                predicted=move.path.predicted if move.label in self._nothing else next(predicted),
                state=move.state,
            )
            for move in moves
        )

    def _step(self, state: BiasState | None, label: int) -> BiasState | None:
        if state is None or self._bias is None or self._letters is None:
            return None
        return self._letters.step(self._bias, state, label)

    # ---- phrases --------------------------------------------------------------------------------------------------

    def _chosen(self, moves: Iterable[_Move], floor: float) -> list[_Move]:
        """The best, each grammar state once."""
        chosen: dict[BiasState, _Move] = {}
        for move in sorted(moves, key=_falling):
            if move.logp < floor or len(chosen) == self._settings.beams:
                break
            chosen.setdefault(move.state, move)
        return list(chosen.values())

    def _with_leads(self, free: Sequence[Path], beams: tuple[Path, ...]) -> tuple[Path, ...]:
        """The beams, and one that begins its phrase now, where the free text's first word is none of the grammar."""
        bias, settings = self._bias, self._settings
        if bias is None:
            return beams
        best = max(free, key=lambda path: path.logp)
        if not 0 < len(best.ids) <= settings.leads.tokens or not self._reading(bias, best.ids).began_otherwise:
            return beams
        start = bias.start
        lead = replace(best, logp=best.logp - settings.leads.cost, state=start, led=len(best.ids))
        others = [beam for beam in beams if beam.state != start or beam.logp > lead.logp]
        return (*beams,) if len(others) == len(beams) == settings.beams else (*others, lead)

    def _reading(self, bias: Bias, ids: Sequence[int]) -> Reading:
        assert self._letters is not None
        return Reading(bias, self._letters, ids)

    def _is_phrase(self, bias: Bias, beam: Path, passed: set[BiasState]) -> bool:
        own = beam.ids[beam.led :]
        if not own or beam.state is None or beam.state in passed or not bias.complete(beam.state):
            return False
        assert self._letters is not None
        return not beam.led or self._letters.words(own) >= self._settings.leads.words


@dataclass(frozen=True, slots=True)
class _Move:
    """A path and its next label, before the decoder has seen it."""

    logp: float
    path: Path
    label: int
    ids: tuple[int, ...]
    """Of the path behind it."""
    state: BiasState | None
    """Likewise."""


def _falling(move: _Move) -> float:
    return -move.logp


def _summed(moves: Iterable[_Move]) -> list[_Move]:
    """Moves to the same labels as one, with the probability of all."""
    found: dict[tuple[int, tuple[int, ...]], _Move] = {}
    for move in moves:
        key = (move.path.led, move.ids)
        before = found.get(key)
        if before is None:
            found[key] = move
        else:
            high, low = max(before.logp, move.logp), min(before.logp, move.logp)
            found[key] = replace(before, logp=high + math.log1p(math.exp(low - high)))
    return list(found.values())


def _best(moves: Iterable[_Move]) -> list[_Move]:
    """Of moves to the same labels the best; those that have ended the frame stand beside those that have not."""
    found: dict[tuple[int, tuple[int, ...], bool], _Move] = {}
    for move in moves:
        key = (move.path.led, move.ids, move.ids == move.path.ids)
        if key not in found or move.logp > found[key].logp:
            found[key] = move
    return list(found.values())


def _likeliest(row: LogProbabilities, count: int) -> list[int]:
    """Labels of one row, the likeliest first."""
    if count >= row.size:
        return [int(label) for label in np.argsort(-row)]
    top = np.argpartition(row, -count)[-count:]
    return [int(label) for label in top[np.argsort(-row[top])]]
