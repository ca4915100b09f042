"""`wren bench`: how fast Wren answers and how well it hears, on recordings in real time, beside what others use."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance.cli.common import add_home_options, model_store, open_wren, print_json, settings_from, warn
from appliance.errors import UsageError

if TYPE_CHECKING:
    from appliance.bench.report import Report
    from appliance.bench.run import Noise
    from models import Progress

__all__ = ["add", "run"]

MAX_DB: Final = 100.0


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("bench", help="measure response time, cut-offs and accuracy on recordings")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--write", type=Path, metavar="DIR", help="also write response.md and response.svg there")
    clips = parser.add_argument_group("what is played")
    clips.add_argument(
        "--speech", type=Path, metavar="DIR", help="recordings (default: $WREN_SPEECH, else ../shared/speech)"
    )
    clips.add_argument("--match", metavar="REGEX", help="only commands whose file name holds this")
    clips.add_argument("--limit", type=_positive, metavar="N", help="only the first N commands")
    clips.add_argument(
        "--noise", type=_decibels, metavar="DB", help="mix in kitchen noise, the speech this many dB above it"
    )
    clips.add_argument("--repeat", type=_positive, default=1, metavar="N", help="play the commands N times")
    clips.add_argument(
        "--keep-replies", action="store_true", help="let a reply come from the cache where it was said before"
    )
    parts = parser.add_argument_group("more to measure")
    parts.add_argument("--baseline", type=Path, metavar="DIR", help="play human commands to this program as well")
    parts.add_argument("--baseline-all", action="store_true", help="... and the synthesised ones")
    parts.add_argument("--pauses", action="store_true", help="cut-offs in speech with pauses (simulated clock)")
    parts.add_argument("--negatives", action="store_true", help="false commands in other speech (simulated clock)")
    parts.add_argument("--engines", action="store_true", help="time, memory and errors of every engine that runs here")
    parts.add_argument("--no-live", action="store_true", help="leave out the commands in real time")
    add_home_options(parser, "commands/home.json beside the recordings")


def run(arguments: argparse.Namespace) -> int:
    """Measure what was asked for and show it. 1 if a clip could not be heard, or the baseline failed."""
    from appliance.bench.report import write_docs
    from models import TerminalProgress

    if arguments.no_live and (arguments.baseline or arguments.write):
        raise UsageError("--no-live leaves out what --baseline and --write need: the commands in real time")
    if arguments.no_live and not (arguments.pauses or arguments.negatives or arguments.engines):
        raise UsageError("--no-live leaves nothing to measure: give --pauses, --negatives or --engines with it")
    if arguments.baseline_all and not arguments.baseline:
        raise UsageError("--baseline-all needs --baseline DIR")
    progress = TerminalProgress()
    try:
        report = _measure(arguments, progress)
    finally:
        progress.finish()
    if arguments.write is not None:
        write_docs(report, arguments.write, shlex.join(["wren", *sys.argv[1:]]))
    if arguments.json:
        print_json(report.to_dict())
    else:
        print(report.markdown(), end="")
    for trouble in report.troubles:
        warn(trouble)
    if unheard := report.unheard:
        warn(f"{unheard} recordings could not be heard; see the table")
    return 1 if report.unheard or report.troubles else 0


def _measure(arguments: argparse.Namespace, progress: Progress) -> Report:
    from appliance.bench.meters import Load, machine_line
    from appliance.bench.report import Report

    load = Load.now()
    report = Report(time.strftime("%Y-%m-%d %H:%M"), machine_line(), load, load)
    if not arguments.no_live or arguments.pauses or arguments.negatives:
        _hear(arguments, report, progress)
    if arguments.engines:
        from appliance.bench_engines import measure_engines

        report.engines = measure_engines(model_store(), speech=arguments.speech, progress=progress)
        if not report.engines.rows:
            report.troubles.append("no engine runs here at all; `wren doctor` says what is missing")
    report.load_after = Load.now()
    return report


def _hear(arguments: argparse.Namespace, report: Report, progress: Progress) -> None:
    """What needs recordings."""
    from appliance.bench.baseline import prepare
    from appliance.bench.cuts import cut_cases, run_cuts
    from appliance.bench.material import COMMANDS, NEGATIVES, home_file, load_clips, speech_folder
    from appliance.bench.meters import peak_rss_mb
    from appliance.bench.report import Material
    from appliance.bench.run import run_by, run_clips, warm_up

    # Whatever can be wrong with the material is said before anything is opened or played.
    speech = speech_folder(arguments.speech)
    home = arguments.home or home_file(speech)
    clips = load_clips(speech, COMMANDS, match=arguments.match, limit=arguments.limit)
    negatives = load_clips(speech, NEGATIVES, limit=arguments.limit) if arguments.negatives else ()
    cases = cut_cases(speech, match=arguments.match, limit=arguments.limit) if arguments.pauses else ()
    noise = _noise(arguments, speech)
    peer = None if arguments.baseline is None else prepare(arguments.baseline, model_store().root.parent / "baseline")
    report.material = Material(
        str(speech), str(home), arguments.match, arguments.limit, arguments.noise, arguments.keep_replies
    )
    settings = settings_from(arguments)
    settings = replace(settings, home_file=home, area=arguments.area, keep_replies=arguments.keep_replies)
    with open_wren(settings) as wren:
        warm_up(wren, clips)
        for number in range(0 if arguments.no_live else arguments.repeat):
            stage = "commands in real time" + (f", repeat {number + 1}" if arguments.repeat > 1 else "")
            report.passes.append(run_clips(wren, clips, progress, stage, realtime=True, noise=noise))
        report.peak_rss_mb = peak_rss_mb()
        if peer is not None:
            _compare(peer, arguments.baseline_all, report, noise, progress)
        if cases:
            report.cuts = run_cuts(wren, cases, progress)
        if negatives:
            report.negatives = run_clips(wren, negatives, progress, "not commands", realtime=False, noise=noise)
        report.run_by = run_by(wren)


def _compare(peer: Path, synthesised: bool, report: Report, noise: Noise | None, progress: Progress) -> None:
    """The baseline, on clips that Wren could hear. If it fails, what was measured of Wren is kept."""
    from appliance.bench.baseline import run_baseline
    from appliance.bench.errors import BaselineError

    kinds = ("human", "tts") if synthesised else ("human",)
    clips = [
        result.clip
        for result in report.passes[0]
        if result.error is None and result.clip.kind in kinds and result.clip.intent is not None
    ]
    if not clips:
        report.troubles.append("no clip for the baseline: it hears human commands with an intent, or --baseline-all")
        return
    try:
        report.baselines = run_baseline(peer, clips, progress, noise=noise)
    except BaselineError as error:
        report.troubles.append(str(error))


def _noise(arguments: argparse.Namespace, speech: Path) -> Noise | None:
    from appliance.bench.run import Noise
    from appliance.bench.sound import read_sound

    if arguments.noise is None:
        return None
    return Noise(read_sound(speech / "noise" / "kitchen_a.flac"), arguments.noise)


def _decibels(text: str) -> float:
    """A level that sound can have."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_DB:
        raise argparse.ArgumentTypeError(f"{text!r} is no level in dB (-{MAX_DB:.0f} to {MAX_DB:.0f})")
    return value


def _positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)
