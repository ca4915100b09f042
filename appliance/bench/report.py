"""What a run of the bench found: one JSON object, tables for a person, a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from appliance.bench.baseline import BaselineRun
from appliance.bench.chart import Bars, response_svg
from appliance.bench.cuts import CutResult
from appliance.bench.errors import BenchError
from appliance.bench.meters import Load, MachineLine
from appliance.bench.run import ClipResult
from appliance.bench.statistics import Spread
from appliance.bench.summary import Summary, at_percentile
from appliance.bench.tables import Column, comparison, cut_table, misses, negatives_lines, repeats_lines
from models.files import write_whole

if TYPE_CHECKING:
    from appliance.bench_engines import EngineBench

__all__ = ["Material", "Report", "write_docs"]

VERSION: Final = 1
"""Grows when a field of the JSON object changes its meaning."""
PERCENTILES: Final = (50, 75, 95)
TITLE: Final = "Response time: end of speech to the first sample of the reply"


@dataclass(frozen=True, slots=True)
class Material:
    """What was played, and how."""

    speech: str
    home: str
    match: str | None
    limit: int | None
    noise_db: float | None
    """Kitchen noise this far below the speech; None: as recorded."""
    keep_replies: bool
    """Replies came from the cache where they had been said before."""


@dataclass(slots=True)
class Report:
    """Everything that one run found; a part that was not asked for is None or empty."""

    started: str
    machine: MachineLine
    load_before: Load
    load_after: Load
    material: Material | None = None
    run_by: dict[str, str] = field(default_factory=dict)
    """Task -> what ran it."""
    passes: list[list[ClipResult]] = field(default_factory=list)
    """Commands in real time, once a repeat."""
    peak_rss_mb: float | None = None
    baselines: list[BaselineRun] = field(default_factory=list)
    negatives: list[ClipResult] | None = None
    cuts: list[CutResult] | None = None
    engines: EngineBench | None = None
    troubles: list[str] = field(default_factory=list)
    """What was asked for and could not be measured."""

    @property
    def unheard(self) -> int:
        """Times that a clip could not be heard."""
        heard = [*self.all_results, *(self.negatives or ())]
        return sum(result.error is not None for result in heard) + sum(case.failed for case in self.cuts or ())

    @property
    def all_results(self) -> list[ClipResult]:
        """Every repeat of every command."""
        return [result for results in self.passes for result in results]

    def same_clips(self, run: BaselineRun) -> list[ClipResult]:
        """Wren's results for the clips that a baseline heard."""
        names = {result.clip.name for result in run.results}
        return [result for result in self.all_results if result.clip.name in names]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `wren bench --json`; its fields are told in docs/bench/README.md."""
        body: dict[str, Any] = _rounded(self._body())
        # Not rounded: an engine's errors are small numbers.
        return {**body, "engines": None if self.engines is None else self.engines.to_dict()}

    def _body(self) -> dict[str, Any]:
        wren = None
        if self.passes:
            repeats = [Summary.of(results) for results in self.passes]
            wren = {
                **_summary(self.all_results),
                "peak_rss_mb": self.peak_rss_mb,
                "repeats": [
                    {"times_ms": {"total": _total(summary)}, "cut": summary.cut, "right": summary.right.right}
                    for summary in repeats
                ],
                "each_clip": [_clip(result) for result in self.all_results],
            }
        return {
            "version": VERSION,
            "started": self.started,
            "machine": asdict(self.machine),
            "load_before": asdict(self.load_before),
            "load_after": asdict(self.load_after),
            "material": None if self.material is None else asdict(self.material),
            "run_by": self.run_by,
            "wren": wren,
            "baseline": {run.config: self._baseline(run) for run in self.baselines} or None,
            "negatives": None if self.negatives is None else _negatives(self.negatives),
            "pauses": None if self.cuts is None else [{**asdict(case), "rate": case.rate} for case in self.cuts],
            "troubles": self.troubles,
        }

    def _baseline(self, run: BaselineRun) -> dict[str, Any]:
        same = Summary.of(self.same_clips(run))
        return {
            **_summary(run.results),
            "peak_rss_mb": run.peak_rss_mb,
            "wren_on_the_same_clips": _summary(self.same_clips(run)),
            "times_slower_than_wren": slower(Summary.of(run.results), same),
            "each_clip": [_clip(result) for result in run.results],
        }

    def markdown(self) -> str:
        """All tables."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        machine, material = self.machine, self.material
        yield (
            f"{self.started}, {machine.cpu}, {machine.cores} cores, Python {machine.python}, {machine.system}; load "
            f"{self.load_before.load_1min:.1f} before and {self.load_after.load_1min:.1f} after; a fixed piece of work "
            f"took {self.load_before.probe_wall_per_cpu:.2f} and {self.load_after.probe_wall_per_cpu:.2f} times its "
            "CPU time (1.00: nobody else wanted the core)."
        )
        if material is not None:
            yield from self._heard(material)
        yield from (f"\nNot measured: {trouble}." for trouble in self.troubles)
        if self.passes:
            yield from self._commands()
        if self.cuts is not None:
            yield from cut_table(self.cuts)
        if self.negatives is not None:
            yield from negatives_lines(self.negatives)
        if self.engines is not None:
            yield f"\n## Engines\n\n{self.engines.markdown().rstrip()}"

    def _heard(self, material: Material) -> Iterator[str]:
        noise = "" if material.noise_db is None else f"Kitchen noise at {material.noise_db:g} dB below the speech. "
        kept = "Replies said before came from the cache." if material.keep_replies else "No reply was kept ready."
        runs = "; ".join(f"{task} {how}" for task, how in self.run_by.items())
        yield f"\n{noise}{kept} Run by: {runs}."

    def _commands(self) -> Iterator[str]:
        columns: list[Column] = [("Wren", self.all_results, self.peak_rss_mb)]
        for run in self.baselines:
            if len(same := self.same_clips(run)) < len(self.all_results):
                columns.append(("Wren, same clips", same, self.peak_rss_mb))
            columns.append((f"baseline {run.config}", run.results, run.peak_rss_mb))
        yield from comparison(_once(columns))
        for run in self.baselines:
            yield from _ratio_lines(run.config, slower(Summary.of(run.results), Summary.of(self.same_clips(run))))
        yield from repeats_lines([Summary.of(results) for results in self.passes])
        yield from misses(self.all_results)

    def svg(self) -> str:
        """The response times as a picture."""
        return response_svg(TITLE, [_bars(name, results) for name, results in self._systems()])

    def _systems(self) -> Iterator[tuple[str, Sequence[ClipResult]]]:
        yield "Wren", self.all_results
        for run in self.baselines:
            yield f"Baseline {run.config}", run.results


def slower(baseline: Summary, wren: Summary) -> dict[str, float | None]:
    """Baseline over Wren: how many times as long, and how many times the CPU."""

    def ratio(a: Spread | None, b: Spread | None, field_name: str) -> float | None:
        if a is None or b is None or not getattr(b, field_name):
            return None
        return float(getattr(a, field_name) / getattr(b, field_name))

    times = baseline.times_ms, wren.times_ms
    return {
        "total_p50": ratio(times[0]["total"], times[1]["total"], "p50"),
        "total_p95": ratio(times[0]["total"], times[1]["total"], "p95"),
        "after_endpoint_p50": ratio(times[0]["after_endpoint"], times[1]["after_endpoint"], "p50"),
        "cpu_p50": ratio(baseline.cpu_s, wren.cpu_s, "p50"),
    }


def write_docs(report: Report, folder: Path, command: str) -> None:
    """`response.md` and `response.svg` of a run. Raises `BenchError` where they cannot be written."""
    text = (
        f"# Response time\n\nWritten by `{command}`; how to read it: [README.md](README.md).\n\n"
        f"![{TITLE}](response.svg)\n\n{report.markdown()}"
    )
    try:
        write_whole(folder / "response.md", text.encode())
        write_whole(folder / "response.svg", report.svg().encode())
    except OSError as error:
        raise BenchError(f"{folder}: cannot be written ({error.strerror}); choose another with --write DIR") from None


def _once(columns: Sequence[Column]) -> list[Column]:
    """One column of the same clips is enough where the baselines heard the same ones."""
    return list(
        {
            (name, tuple(result.clip.name for result in results)): (name, results, rss)
            for name, results, rss in columns
        }.values()
    )


def _bars(title: str, results: Sequence[ClipResult]) -> Bars:
    splits = ((f"p{percent}", at_percentile(results, percent)) for percent in PERCENTILES)
    return Bars(title, tuple((name, split) for name, split in splits if split is not None))


def _ratio_lines(config: str, ratios: dict[str, float | None]) -> Iterator[str]:
    shown = {name: "-" if value is None else f"{value:.1f}" for name, value in ratios.items()}
    yield (
        f"\n{config} takes {shown['total_p50']} times as long as Wren at the median, {shown['total_p95']} times at the "
        f"95th percentile, {shown['after_endpoint_p50']} times from its endpoint on, and {shown['cpu_p50']} times the "
        "CPU (same clips, same run)."
    )


def _total(summary: Summary) -> dict[str, Any] | None:
    total = summary.times_ms["total"]
    return None if total is None else asdict(total)


def _summary(results: Sequence[ClipResult]) -> dict[str, Any]:
    summary = Summary.of(results)
    body = asdict(summary)
    body["accuracy"] = {
        kind: {"clips": part.clips, "right": part.right, "rate": part.rate} for kind, part in summary.accuracy.items()
    }
    return body


def _negatives(results: Sequence[ClipResult]) -> dict[str, Any]:
    good = [result for result in results if result.error is None]
    false = [result for result in good if result.actions]
    return {
        "clips": len(results),
        "failed": len(results) - len(good),
        "false_commands": len(false),
        "rate": len(false) / len(good) if good else None,
        "which": [_clip(result) for result in false],
    }


def _clip(result: ClipResult) -> dict[str, Any]:
    clip = result.clip
    body = {
        "file": clip.name,
        "kind": clip.kind,
        "said": clip.transcript,
        "expected_intent": clip.intent,
        "expected_slots": dict(clip.slots),
        "heard": result.heard,
        "actions": [{"intent": action.intent, "slots": dict(action.slots)} for action in result.actions],
        "split_ms": None if result.split is None else asdict(result.split),
    }
    rest = (
        "right",
        "wrong_action",
        "cut",
        "endpoint_reason",
        "reply",
        "cpu_s",
        "others_cores",
        "dropped_frames",
        "error",
    )
    ahead = None if result.ahead is None else asdict(result.ahead)
    return body | {name: getattr(result, name) for name in rest} | {"ahead": ahead}


def _rounded(value: Any) -> Any:
    """Three digits behind the point: nothing here is measured finer."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return round(value, 3) if isinstance(value, float) else value
