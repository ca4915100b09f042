"""The bench's tables, as Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from appliance.bench.cuts import CutResult
from appliance.bench.run import ClipResult
from appliance.bench.statistics import Spread
from appliance.bench.summary import KINDS, STEPS, Accuracy, Summary

__all__ = ["Column", "comparison", "cut_table", "misses", "negatives_lines", "repeats_lines"]

Column = tuple[str, Sequence[ClipResult], float | None]
"""Heading, results, peak memory in MB."""

_STEP_NAMES: Final = {
    "endpoint": "endpoint after the end of speech",
    "recognition": "recognition after the endpoint",
    "intent": "intent and action",
    "synthesis": "synthesis to the first sample",
    "device": "device (a recording has none)",
}


def comparison(columns: Sequence[Column]) -> Iterator[str]:
    """One row a figure, one column a system."""
    summaries = [Summary.of(results) for _, results, _ in columns]
    yield "\n| | " + " | ".join(name for name, _, _ in columns) + " |"
    yield "|---|" + "---|" * len(columns)

    def row(name: str, cell: Callable[[Summary], str]) -> str:
        return f"| {name} | " + " | ".join(cell(summary) for summary in summaries) + " |"

    yield row("clips played / timed", lambda s: f"{s.clips} / {_n(s.times_ms['total'])}")
    for step in STEPS:
        yield row(f"{_STEP_NAMES[step]}, p50 / p95 ms", lambda s, step=step: _ms(s.times_ms[step]))  # type: ignore[misc]
    yield row("**response time**, p50 / p95 ms", lambda s: f"**{_ms(s.times_ms['total'])}**")
    yield row("its standard deviation, ms", lambda s: _one(s.times_ms["total"], "sd"))
    yield row("endpoint to first sample, p50 / p95 ms", lambda s: _ms(s.times_ms["after_endpoint"]))
    yield row("cut off", lambda s: f"{s.cut} of {s.clips - s.failed}")
    for kind in KINDS.values():
        yield row(f"right, {kind}", lambda s, kind=kind: _share(s.accuracy[kind]))  # type: ignore[misc]
    yield row("wrong actions", lambda s: str(s.wrong_actions))
    yield row("CPU of a clip, p50 / p95 s", lambda s: _seconds(s.cpu_s))
    yield row("recognitions / replies begun ahead, of a clip (said)", lambda s: _ahead(s.ahead, "begun"))
    yield row("compute ahead of need / of it in vain, s of a clip", lambda s: _ahead(s.ahead, "spent"))
    memory = ("-" if rss is None else f"{rss:.0f}" for _, _, rss in columns)
    yield "| peak memory (RSS, all processes), MB | " + " | ".join(memory) + " |"
    yield row("cores kept busy by others, p50 / p95", lambda s: _seconds(s.others_cores))
    yield row("could not be heard / frames lost", lambda s: f"{s.failed} / {s.dropped_frames}")


def repeats_lines(summaries: Sequence[Summary]) -> Iterator[str]:
    """How much the medians differ from repeat to repeat."""
    totals = [summary.times_ms["total"] for summary in summaries]
    medians = Spread.of(None if total is None else total.p50 for total in totals)
    tops = Spread.of(None if total is None else total.p95 for total in totals)
    if len(summaries) > 1 and medians is not None and tops is not None:
        yield (
            f"\n{len(summaries)} repeats: median {medians.least:.0f} to {medians.most:.0f} ms, 95th percentile "
            f"{tops.least:.0f} to {tops.most:.0f} ms."
        )


def misses(results: Sequence[ClipResult]) -> Iterator[str]:
    """Each clip that was not right."""
    wrong = [result for result in results if not result.right or result.cut]
    if not wrong:
        return
    yield "\n| not right | said | heard | done |"
    yield "|---|---|---|---|"
    for result in wrong:
        done = "; ".join(
            f"{action.intent} {json.dumps(dict(action.slots), ensure_ascii=False)}" for action in result.actions
        )
        if result.error is not None:
            done = f"not heard: {result.error}"
        cut = " (cut off)" if result.cut else ""
        cells = (result.clip.name + cut, result.clip.transcript or "-", result.heard or "(nothing)", done or "nothing")
        yield "| " + " | ".join(_cell(text) for text in cells) + " |"


def cut_table(cases: Sequence[CutResult]) -> Iterator[str]:
    """Cut-offs by case."""
    yield "\n| simulated clock | clips | cut off | right |"
    yield "|---|---|---|---|"
    for case in cases:
        rate = "" if case.rate is None else f" ({case.rate:.1%})"
        right = f"{case.right} of {case.asked}" if case.asked else "-"
        failed = f" ({case.failed} not heard)" if case.failed else ""
        yield f"| {case.name} | {case.clips}{failed} | {len(case.cut)}{rate} | {right} |"
    for case in cases:
        if case.cut:
            yield f"\nCut off, {case.name}: {', '.join(case.cut)}."


def negatives_lines(results: Sequence[ClipResult]) -> Iterator[str]:
    """Speech that is no command, and what was done all the same."""
    good = [result for result in results if result.error is None]
    false = [result for result in good if result.actions]
    share = f" ({len(false) / len(good):.1%})" if good else ""
    yield f"\nNot commands: {len(good)} clips heard, taken for a command: {len(false)}{share}."
    for result in false:
        yield f"- {result.clip.name}: heard “{result.heard}”, did {', '.join(a.intent for a in result.actions)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _n(spread: Spread | None) -> int:
    return 0 if spread is None else spread.n


def _ms(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50:.0f} / {spread.p95:.0f}"


def _seconds(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50:.2f} / {spread.p95:.2f}"


def _one(spread: Spread | None, name: str) -> str:
    return "-" if spread is None else f"{getattr(spread, name):.0f}"


def _share(part: Accuracy) -> str:
    return "-" if part.rate is None else f"{part.right} of {part.clips} ({part.rate:.0%})"


def _ahead(ahead: Mapping[str, float] | None, what: str) -> str:
    if ahead is None:
        return "-"
    if what == "begun":
        return f"{ahead['recognitions']:.1f} / {ahead['replies']:.1f} ({ahead['hits']:.2f})"
    return f"{ahead['spent_s']:.2f} / {ahead['wasted_s']:.2f}"
