"""Many clips in a few figures; the same for Wren and for what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from appliance.bench.run import Ahead, ClipResult, Split
from appliance.bench.statistics import Spread, nearest_rank

__all__ = ["KINDS", "STEPS", "Accuracy", "Summary", "at_percentile", "timed"]

KINDS: Final = {"human": "human", "tts": "synthesised"}
"""The manifest's word and ours."""
STEPS: Final = ("endpoint", "recognition", "intent", "synthesis", "device")
"""Steps of the response time, in order; they add up to `total`."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of the clips with an intent."""

    clips: int
    right: int

    @property
    def rate(self) -> float | None:
        """Share right, 0..1."""
        return self.right / self.clips if self.clips else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A pass over clips in figures."""

    clips: int
    failed: int
    """Could not be heard, or a stage failed; they count in nothing that follows."""
    times_ms: dict[str, Spread | None]
    """Each step, `total` and `after_endpoint`, over the clips that `timed` gives."""
    cut: int
    accuracy: dict[str, Accuracy]
    """By kind of speaker; see `KINDS`."""
    wrong_actions: int
    """Clips in which something was done that nobody had asked for."""
    cpu_s: Spread | None
    """CPU seconds of a clip, all processes."""
    ahead: dict[str, float] | None
    """What was done ahead of need: the mean of a clip (see `run.Ahead`); None for a system that does not."""
    others_cores: Spread | None
    """Cores that other programs kept busy during a clip."""
    dropped_frames: int

    @classmethod
    def of(cls, results: Sequence[ClipResult]) -> Summary:
        """Of all clips of a pass."""
        good = [result for result in results if result.error is None]
        splits = [split for _, split in timed(good)]
        return cls(
            clips=len(results),
            failed=len(results) - len(good),
            times_ms={
                name: Spread.of(getattr(split, name) for split in splits)
                for name in (*STEPS, "total", "after_endpoint")
            },
            cut=sum(result.cut for result in good),
            accuracy={
                kind: _accuracy([result for result in good if result.clip.kind == word]) for word, kind in KINDS.items()
            },
            wrong_actions=sum(result.wrong_action for result in good),
            cpu_s=Spread.of(result.cpu_s for result in good),
            ahead=_mean_ahead([result.ahead for result in good if result.ahead is not None]),
            others_cores=Spread.of(result.others_cores for result in good),
            dropped_frames=sum(result.dropped_frames for result in good),
        )

    @property
    def right(self) -> Accuracy:
        """Of all kinds of speakers."""
        parts = self.accuracy.values()
        return Accuracy(sum(part.clips for part in parts), sum(part.right for part in parts))


def timed(results: Sequence[ClipResult]) -> list[tuple[ClipResult, Split]]:
    """Clips whose response time counts: an intent was asked for, nobody was cut off, and there was an answer (also
    "Sorry, I couldn't understand that": the person waited for it)."""
    return [
        (result, result.split)
        for result in results
        if result.error is None
        and result.clip.intent is not None
        and result.split is not None
        and result.split.total is not None
    ]


def at_percentile(results: Sequence[ClipResult], percent: float) -> Split | None:
    """The split of the very clip that is at this percentile of the response times: its steps add up."""
    splits = [split for _, split in timed(results)]
    totals = [split.total for split in splits if split.total is not None]
    if not totals:
        return None
    total = nearest_rank(totals, percent)
    return next(split for split in splits if split.total == total)


def _accuracy(results: Sequence[ClipResult]) -> Accuracy:
    asked = [result for result in results if result.clip.intent is not None]
    return Accuracy(len(asked), sum(result.right for result in asked))


def _mean_ahead(ahead: Sequence[Ahead]) -> dict[str, float] | None:
    rows = [asdict(row) for row in ahead]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else None
