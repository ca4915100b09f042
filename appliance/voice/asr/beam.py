"""Decoding: the free text greedily, and beside it, in the same batch, the phrases of a grammar that come near it.

The phrases are beams that may only take tokens which lead on in the grammar. They are looked for within a distance of
the free text: what is further away would not be accepted anyway. So clear speech, whose free text is itself a phrase,
costs little more than without a grammar, and so does speech that is nothing like a phrase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Bias, BiasState, Cancel
from appliance.voice.asr.reading import Found, LeadSettings, Reading

__all__ = ["Beam", "BeamSettings", "Decoded", "Decoding", "decode", "repeats"]

Logits = npt.NDArray[np.float32]
Step = Callable[[Sequence[int], Sequence[int]], Logits]
"""The model: the next token of each row, and the row of the step before that it goes on from, to logits
[rows, vocabulary]. The first step has one row, which goes on from row 0."""

_MAX_CANDIDATES: Final = 256
"""Tokens of a row that are looked up in the grammar, the likeliest first."""


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """How widely phrases are looked for. Distances are in natural logarithm."""

    beams: int = 6
    """Phrases followed at once, at most: mostly there are one or two within reach. With 4, two of 27 commands in
    noise are lost; with 8, none is won."""
    width: float = 7.0
    """Furthest that a phrase may fall behind the free text; a little more than what is accepted in the end, as the
    free text may still lose some."""
    width_inside: float = 5.0
    """The same while the free text is itself the beginning of a phrase: then the others are only its understudies."""
    leads: LeadSettings = field(default_factory=LeadSettings)


@dataclass(frozen=True, slots=True)
class Decoding:
    """What stays the same for every utterance of a model."""

    bos_id: int
    eos_id: int
    repeat_tokens: int
    """Longest run that counts as a loop when it comes again and again."""
    repeat_times: int
    letters: Letters
    beam: BeamSettings = BeamSettings()


@dataclass(frozen=True, slots=True)
class Beam:
    """A phrase so far."""

    logp: float
    state: BiasState
    ids: tuple[int, ...]
    row: int
    """Row of the batch that holds it."""
    led: bool = False
    """Whether something was left out in front of it."""


@dataclass(frozen=True, slots=True)
class Decoded(Found):
    """What was found, and how."""

    cut: str | None = None
    """As in `Hypothesis`."""
    rows: int = 0
    """Rows computed, over all steps: what it cost."""


def decode(step: Step, decoding: Decoding, max_tokens: int, cancel: Cancel, bias: Bias | None = None) -> Decoded:
    """Run the model until the free text has ended and no better phrase is left. Raises `Cancelled`."""
    return _Search(step, decoding, max_tokens, cancel, bias).run()


def repeats(ids: Sequence[int], longest: int, times: int) -> int:
    """Length of the run that the ids end with `times` times in a row; 0 where there is none."""
    for length in range(1, longest + 1):
        if len(ids) < length * times:
            return 0
        tail = ids[-length:]
        if all(ids[-length * (k + 1) : -length * k] == tail for k in range(1, times)):
            return length
    return 0


class _Free:
    """The free text: the likeliest token, again and again."""

    def __init__(self, reading: Reading | None) -> None:
        self.ids: list[int] = []
        self.logp = 0.0
        self.row = 0
        self.cut: str | None = "length"
        self.done = False
        self.reading = reading
        """How it reads in the grammar; None where there is none."""
        self.whole = False
        """Whether it has ended as a whole phrase."""


class _Search:
    def __init__(self, step: Step, decoding: Decoding, max_tokens: int, cancel: Cancel, bias: Bias | None) -> None:
        self._step = step
        self._decoding = decoding
        self._settings = decoding.beam
        self._max_tokens = max_tokens
        self._cancel = cancel
        self._bias = bias
        self._free = _Free(None if bias is None else Reading(bias, decoding.letters))
        self._beams: list[Beam] = [] if bias is None else [Beam(0.0, bias.start, (), 0)]
        self._best: Beam | None = None
        self._rows = 0

    def run(self) -> Decoded:
        tokens, parents = [self._decoding.bos_id], [0]
        for n in range(self._max_tokens):
            self._cancel.check()
            logits = self._step(tokens, parents)
            self._rows += len(tokens)
            norms = _norms(logits)
            tokens, parents = self._advance(logits, norms, n)
            if not tokens:
                break
        return self._decoded()

    def _advance(self, logits: Logits, norms: Sequence[float], n: int) -> tuple[list[int], list[int]]:
        """Take one step; the rows to compute next, none when all is done."""
        free, starts = self._free, self._beams
        may_lead = 0 < n <= self._settings.leads.tokens and not free.done
        if may_lead and self._bias is not None and free.reading is not None and free.reading.began_otherwise:
            lead = Beam(free.logp - self._settings.leads.cost, self._bias.start, (), free.row, led=True)
            starts = [*starts, lead]
        rows: dict[tuple[int, int], int] = {}  # (row, token) -> row of the next step: what is the same is computed once
        if not free.done:
            parent = free.row
            token = self._advance_free(logits[free.row], norms[free.row])
            if not free.done:
                free.row = rows.setdefault((parent, token), len(rows))
        if free.whole:
            self._beams = []
            return [], []
        self._beams = []
        for beam, token in self._chosen(starts, logits, norms):
            row = rows.setdefault((beam.row, token), len(rows))
            self._beams.append(replace(beam, row=row))
        return [token for _, token in rows], [parent for parent, _ in rows]

    def _advance_free(self, logits: Logits, norm: float) -> int:
        free, decoding = self._free, self._decoding
        token = int(logits.argmax())
        free.logp += float(logits[token]) - norm
        bias, reading = self._bias, free.reading
        if token == decoding.eos_id:
            free.cut, free.done = None, True
            state = None if reading is None else reading.state
            free.whole = bias is not None and state is not None and bias.complete(state)
            return token
        free.ids.append(token)
        if reading is not None:
            reading.take(token)
            if self._best is not None and self._best.state in reading.passed:
                self._best = None
        loop = repeats(free.ids, decoding.repeat_tokens, decoding.repeat_times)
        if loop:
            del free.ids[len(free.ids) - loop * (decoding.repeat_times - 1) :]
            free.cut, free.done = "repetition", True
        return token

    def _chosen(self, starts: Sequence[Beam], logits: Logits, norms: Sequence[float]) -> Iterator[tuple[Beam, int]]:
        """The best ways to go on, each grammar state once; their `row` is still that of the step before."""
        floor = self._floor()
        found = [move for start in starts for move in self._moves(start, logits[start.row], norms[start.row], floor)]
        found.sort(key=lambda move: -move[0].logp)
        seen: set[BiasState] = set()
        for beam, token in found:
            if len(seen) == self._settings.beams or (self._best is not None and beam.logp <= self._best.logp):
                break  # a finished phrase ends all that have already fallen behind it
            if beam.state not in seen:
                seen.add(beam.state)
                yield beam, token

    def _floor(self) -> float:
        free, settings = self._free, self._settings
        inside = free.reading is not None and free.reading.state is not None and not free.done
        floor = free.logp - (settings.width_inside if inside else settings.width)
        return floor if self._best is None else max(floor, self._best.logp)

    def _moves(self, start: Beam, logits: Logits, norm: float, floor: float) -> Iterator[tuple[Beam, int]]:
        bias, letters, eos = self._bias, self._decoding.letters, self._decoding.eos_id
        assert bias is not None
        self._finish(start, start.logp + float(logits[eos]) - norm, floor)
        found = 0
        for token in _likeliest(logits, floor - start.logp + norm):
            logp = start.logp + float(logits[token]) - norm
            state = letters.step(bias, start.state, token)
            if state is not None:
                yield Beam(logp, state, (*start.ids, token), start.row, start.led), token
                found += 1
                if found == 2 * self._settings.beams:  # some may come to the same state
                    return

    def _finish(self, beam: Beam, logp: float, floor: float) -> None:
        """A phrase may end here: keep it if it is one, near enough, and the best so far."""
        bias, reading = self._bias, self._free.reading
        if logp < floor or not beam.ids or bias is None or reading is None:
            return
        if not bias.complete(beam.state) or beam.state in reading.passed:
            return
        if beam.led and self._decoding.letters.words(beam.ids) < self._settings.leads.words:
            return
        if self._best is None or logp > self._best.logp:
            self._best = replace(beam, logp=logp)

    def _decoded(self) -> Decoded:
        free, best = self._free, self._best
        ids = tuple(free.ids)
        if free.whole and free.reading is not None:
            return Decoded(ids, free.logp, ids, free.logp, free.reading.state, cut=free.cut, rows=self._rows)
        if best is None:
            return Decoded(ids, free.logp, cut=free.cut, rows=self._rows)
        return Decoded(ids, free.logp, best.ids, best.logp, best.state, cut=free.cut, rows=self._rows)


def _norms(logits: Logits) -> list[float]:
    """Logarithm of the sum of exponentials of each row."""
    top = logits.max(axis=-1, keepdims=True)
    sums: npt.NDArray[np.float32] = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
    return [float(s) for s in sums]


def _likeliest(logits: Logits, floor: float) -> list[int]:
    """Tokens not below the floor, the likeliest first."""
    ids = np.flatnonzero(logits >= floor)
    if ids.size > _MAX_CANDIDATES:
        ids = ids[np.argpartition(logits[ids], -_MAX_CANDIDATES)[-_MAX_CANDIDATES:]]
    return [int(i) for i in ids[np.argsort(-logits[ids])]]
