"""Who is cut off, and how soon the answer starts: endpoint styles side by side. Markdown on standard output.

    .venv/bin/python benchmarks/endpoint_bench.py [--styles quick,plain] [--match REGEX] [--limit N] [--worst N]

The clips, the judging and the clock are those of `wren bench --no-live --pauses` (simulated time, compute as CPU time);
here each kind of clip is split by speaker, for every style, and whoever is cut off or waits long is named. Response
times are over clips that have an intent, were not cut off, and got an answer.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from appliance.app import Wren, WrenSettings
from appliance.bench.cuts import CutCase, cut_cases, paused
from appliance.bench.material import home_file, speech_folder
from appliance.bench.run import ClipResult, hear_clip, warm_up
from appliance.bench.statistics import Spread
from appliance.bench.summary import KINDS, STEPS, Summary, timed
from appliance.voice.endpoint import ENDPOINT_STYLES
from models import TerminalProgress

Group = tuple[str, Sequence[ClipResult]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--styles", default="quick,plain", help=f"of {', '.join(ENDPOINT_STYLES)}")
    parser.add_argument("--match", metavar="REGEX", help="only commands whose file name holds this")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N clips of each kind")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the N slowest clips too")
    parser.add_argument("--keep-replies", action="store_true", help="let a reply come from the cache")
    parser.add_argument("--speech", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    speech = speech_folder(arguments.speech)
    cases = cut_cases(speech, match=arguments.match, limit=arguments.limit)
    print(f"CPU time; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    for style in arguments.styles.split(","):
        settings = WrenSettings(home_file=home_file(speech), endpoint=style, keep_replies=arguments.keep_replies)
        with Wren.open(settings) as wren:
            wren.wait_for_bias()
            warm_up(wren, cases[0].clips)
            groups = [group for case in cases for group in _by_speaker(case, _hear(wren, case))]
        print(f"## {style}\n")
        _print_groups(groups)
        results = [result for _, group in groups for result in group]
        _print_steps(groups)
        _print_guesses(results)
        _print_clips(groups, arguments.worst)


def _hear(wren: Wren, case: CutCase) -> list[ClipResult]:
    progress = TerminalProgress()
    results = []
    for done, clip in enumerate(case.clips):
        progress(case.name, done, len(case.clips))
        longer, sound = (clip, None) if case.pause_s is None else paused(clip, case.pause_s)
        results.append(hear_clip(wren, longer, realtime=False, sound=sound))
    progress(case.name, len(case.clips), len(case.clips))
    progress.finish()
    return results


def _by_speaker(case: CutCase, results: Sequence[ClipResult]) -> Iterable[Group]:
    for kind, name in KINDS.items():
        group = [result for result in results if result.clip.kind == kind]
        if group:
            yield f"{case.name}, {name}", group


def _print_groups(groups: Sequence[Group]) -> None:
    print("| clips | n | cut off | right | response ms p50 | p95 | sd |\n|---|---|---|---|---|---|---|")
    for name, results in groups:
        summary = Summary.of(results)
        right = f"{summary.right.right} of {summary.right.clips}"
        print(f"| {name} | {summary.clips} | {summary.cut} | {right} | {_figures(summary.times_ms['total'])} |")
        for result in results:
            if result.error is not None:
                print(f"{result.clip.name} could not be heard: {result.error}", file=sys.stderr)
    print()


def _print_steps(groups: Sequence[Group]) -> None:
    recorded = [result for name, results in groups if name.startswith("commands as recorded") for result in results]
    times = Summary.of(recorded).times_ms
    print("Commands as recorded, milliseconds:\n\n| step | p50 | p95 | sd |\n|---|---|---|---|")
    for step in (*STEPS, "after_endpoint", "total"):
        print(f"| {step.replace('_', ' ')} | {_figures(times[step])} |")
    print()


def _print_guesses(results: Sequence[ClipResult]) -> None:
    ahead = Summary.of(results).ahead
    if ahead is not None:
        print(
            f"Guesses, the mean of a clip: {ahead['recognitions']:.1f} recognitions, {ahead['replies']:.2f} replies ",
            end="",
        )
        print(f"begun early, {ahead['hits']:.2f} of them said; {ahead['spent_s'] * 1000:.0f} ms of compute, ", end="")
        print(f"{ahead['wasted_s'] * 1000:.0f} ms of it for nothing.\n")


def _print_clips(groups: Sequence[Group], worst: int) -> None:
    for name, results in groups:
        for result in results:
            if result.cut:
                print(f"- cut off: {name}, {result.clip.name}: {result.heard!r}")
    slow = [(split.total or 0.0, name, result) for name, results in groups for result, split in timed(results)]
    slow.sort(key=lambda row: -row[0])
    for total, name, result in slow[:worst]:
        print(f"- {total:.0f} ms ({result.endpoint_reason}): {name}, {result.clip.name}: {result.heard!r}")
    print()


def _figures(spread: Spread | None) -> str:
    return "– | – | –" if spread is None else f"{spread.p50:.0f} | {spread.p95:.0f} | {spread.sd:.0f}"


if __name__ == "__main__":
    main()
