"""Who is cut off, and how soon the answer starts: endpoint strategies on recordings. Markdown on standard output.

    .venv/bin/python benchmarks/endpoint_bench.py [--styles quick,plain] [--quick] [--wall] [--worst N] [--speech DIR]

Each clip goes through the path of live sound on a simulated clock (as in `wren listen`): a time is the sound's own plus
the compute measured, which is CPU time (`--wall`: wall time, for a machine that does nothing else). A cut-off is an
endpoint more than 150 ms before the end of speech that the manifest gives. Response times are from that end of speech
to the first sample of the reply, over clips that have an intent and were not cut off. The cache of spoken replies is
emptied before each clip: a reply heard before comes sooner.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from appliance.app import Wren, WrenSettings
from appliance.audio.files import read_blocks
from appliance.audio.frame import RATE_HZ, Samples
from appliance.events import Event, SpeculationEnded
from appliance.recording import HeardRecording, hear, samples_frames
from appliance.telemetry.trace import UtteranceTrace
from appliance.voice.endpoint import ENDPOINT_STYLES
from appliance.voice.tts.cache import ReplyCache

SPEECH = Path(__file__).resolve().parent.parent.parent / "shared" / "speech"
CUT_OFF_S = 0.15
QUICK_EVERY = 8
PAUSES_S = (0.25, 0.4)
PAUSE_WITHIN = (0.35, 0.85)
"""Share of the speech in which a pause is put: not before the first words, nor behind the last."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and what the manifest says of it."""

    name: str
    group: str
    sound: Samples
    speech_end_s: float
    intent: str | None
    slots: dict[str, object]


@dataclass(slots=True)
class Outcome:
    """What became of a clip."""

    clip: Clip
    heard: HeardRecording
    speculation: list[SpeculationEnded] = field(default_factory=list)

    @property
    def cut(self) -> UtteranceTrace | None:
        """The utterance that was ended too early."""
        for trace in self.heard.utterances:
            ended_s = trace.endpoint_s
            if ended_s is not None and trace.speech_start_s and ended_s < self.clip.speech_end_s - CUT_OFF_S:
                return trace
        return None

    @property
    def right(self) -> bool:
        """The intent is the manifest's, and so is every slot it lists."""
        chosen = self.heard.chosen
        understanding = None if chosen is None else chosen.understanding
        if understanding is None or understanding.intent != self.clip.intent:
            return understanding is None and self.clip.intent is None
        said = {key: str(value).casefold() for key, value in understanding.slots.items()}
        return all(said.get(key) == str(value).casefold() for key, value in self.clip.slots.items())

    def response_ms(self) -> dict[str, float] | None:
        """Parts of the response time; None where there was no answer."""
        chosen = self.heard.chosen
        if chosen is None or chosen.first_audio_s is None or chosen.endpoint_s is None:
            return None
        text_s, intent_s = chosen.final_text_s or chosen.endpoint_s, chosen.intent_s or chosen.endpoint_s
        end_s = self.clip.speech_end_s
        parts = {
            "response": chosen.first_audio_s - end_s,
            "endpoint": chosen.endpoint_s - end_s,
            "after endpoint": chosen.first_audio_s - chosen.endpoint_s,
            "recognition tail": text_s - chosen.endpoint_s,
            "intent": intent_s - text_s,
            "action, synthesis": chosen.first_audio_s - intent_s,
        }
        return {name: seconds * 1000 for name, seconds in parts.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--styles", default="quick,plain", help=f"of {', '.join(ENDPOINT_STYLES)}")
    parser.add_argument("--quick", action="store_true", help=f"every {QUICK_EVERY}th clip")
    parser.add_argument("--wall", action="store_true", help="wall time instead of CPU time")
    parser.add_argument("--worst", type=int, default=0, help="list the slowest clips too")
    parser.add_argument("--warm", action="store_true", help="keep the reply cache from clip to clip")
    parser.add_argument("--groups", default="", help="only groups that contain one of these, comma separated")
    parser.add_argument("--speech", type=Path, default=SPEECH)
    arguments = parser.parse_args()
    clips = [clip for clip in _clips(arguments.speech) if _wanted(clip.group, arguments.groups)]
    if arguments.quick:
        clips = clips[::QUICK_EVERY]
    clock = time.perf_counter if arguments.wall else time.thread_time
    print(f"{len(clips)} clips; {'wall' if arguments.wall else 'CPU'} time; {os.cpu_count()} CPUs, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    home = arguments.speech / "commands" / "home.json"
    for style in arguments.styles.split(","):
        with Wren.open(replace(WrenSettings(home_file=home), endpoint=style)) as wren:
            wren.wait_for_bias()
            outcomes = [_run(wren, clip, clock, warm=arguments.warm) for clip in clips]
        print(f"## {style}\n")
        _print_groups(outcomes)
        _print_split(outcomes)
        _print_speculation(outcomes)
        _print_worst(outcomes, arguments.worst)


def _run(wren: Wren, clip: Clip, clock: Callable[[], float], *, warm: bool) -> Outcome:
    speculation: list[SpeculationEnded] = []

    def sink(event: Event) -> None:
        if isinstance(event, SpeculationEnded):
            speculation.append(event)

    if not warm:
        wren._cache = ReplyCache()
    heard = hear(wren, clip.name, samples_frames(clip.sound), wake=False, sink=sink, clock=clock)
    print(f"\r{clip.group}: {clip.name:<70}", end="", file=sys.stderr, flush=True)
    return Outcome(clip, heard, speculation)


def _clips(root: Path) -> Iterator[Clip]:
    for row in _rows(root / "commands" / "manifest.tsv"):
        kind = "human" if row["kind"] == "human" else "synthetic"
        clip = _clip(root / "commands", row, f"commands, {kind}")
        yield clip
        for pause_s in PAUSES_S:
            yield _paused(clip, float(row["speech_start_s"]), pause_s, f"pause of {pause_s * 1000:.0f} ms, {kind}")
    paused = {row["file"] for row in _rows(root / "pauses" / "pauses.tsv")}
    for row in _rows(root / "negatives" / "manifest.tsv"):
        if row["file"].startswith("coffee_"):
            yield _clip(root / "negatives", row, "coffee")
        elif f"negatives/{row['file']}" in paused:
            yield _clip(root / "negatives", row, "reading with pauses")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _clip(folder: Path, row: dict[str, str], group: str) -> Clip:
    sound = np.concatenate(list(read_blocks(folder / row["file"])))
    intent = row["expected_intent"] or None
    if intent is not None and folder.name == "negatives":
        intent = None  # another source's labels, no home command
    slots = json.loads(row["expected_slots"]) if intent and row["expected_slots"] else {}
    return Clip(row["file"], group, sound, float(row["speech_end_s"]), intent, slots)


def _paused(clip: Clip, start_s: float, pause_s: float, group: str) -> Clip:
    """The clip with a hesitation: its own quiet, at the quietest 30 ms of the middle of the speech."""
    sound, step = clip.sound, RATE_HZ // 200
    length = clip.speech_end_s - start_s
    low, high = (int((start_s + share * length) * RATE_HZ) for share in PAUSE_WITHIN)
    at = min(range(low, high, step), key=lambda i: float(np.mean(sound[i : i + 6 * step] ** 2))) + 3 * step
    quiet_n = RATE_HZ // 10
    begins = range(0, sound.size - quiet_n, 10 * step)
    quietest = min(begins, key=lambda i: float(np.mean(sound[i : i + quiet_n] ** 2)))
    quiet = sound[quietest : quietest + quiet_n]
    pause = np.resize(np.concatenate((quiet, quiet[::-1])), int(pause_s * RATE_HZ))
    fade = np.linspace(0.0, 1.0, step, dtype=np.float32)
    pause[:step] = pause[:step] * fade + sound[at : at + step] * fade[::-1]
    after = sound[at:].copy()
    after[:step] *= fade
    joined = np.concatenate((sound[:at], pause, after))
    return replace(clip, group=group, sound=joined, speech_end_s=clip.speech_end_s + pause_s)


def _wanted(group: str, groups: str) -> bool:
    return not groups or any(part in group for part in groups.split(","))


def _print_groups(outcomes: Sequence[Outcome]) -> None:
    print("| clips | n | cut off | right | response ms p50 | p95 | sd |")
    print("|---|---|---|---|---|---|---|")
    for group in dict.fromkeys(outcome.clip.group for outcome in outcomes):
        members = [outcome for outcome in outcomes if outcome.clip.group == group]
        cut = sum(outcome.cut is not None for outcome in members)
        times = [parts["response"] for parts in _answered(members)]
        figures = " | ".join(f"{value:.0f}" for value in _spread(times)) if times else "– | – | –"
        right = sum(outcome.right for outcome in members)
        print(f"| {group} | {len(members)} | {cut} | {right} | {figures} |")
    print()


def _print_split(outcomes: Sequence[Outcome]) -> None:
    answered = _answered([outcome for outcome in outcomes if outcome.clip.group.startswith("commands")])
    if not answered:
        return
    print("Commands as recorded, milliseconds:\n\n| part | p50 | p95 | sd |\n|---|---|---|---|")
    for part in answered[0]:
        print(f"| {part} | " + " | ".join(f"{value:.0f}" for value in _spread([t[part] for t in answered])) + " |")
    print()


def _print_speculation(outcomes: Sequence[Outcome]) -> None:
    told = [event for outcome in outcomes for event in outcome.speculation if event.recognitions]
    if told:
        spent_s, wasted_s = (statistics.mean(getattr(t, name) for t in told) for name in ("spent_s", "wasted_s"))
        print(f"Guesses: {statistics.mean(t.recognitions for t in told):.1f} recognitions an utterance, ", end="")
        hits = sum(t.hit for t in told)
        print(f"{sum(t.replies for t in told)} replies begun early, {hits} of them said; ", end="")
        print(f"{spent_s * 1000:.0f} ms of compute an utterance, {wasted_s * 1000:.0f} ms of it for nothing.\n")


def _print_worst(outcomes: Sequence[Outcome], count: int) -> None:
    for outcome in outcomes:
        if (cut := outcome.cut) is not None and cut.endpoint_s is not None:
            early_ms = (outcome.clip.speech_end_s - cut.endpoint_s) * 1000
            print(f"- cut off {early_ms:.0f} ms early ({cut.endpoint_reason}): {outcome.clip.group}, ", end="")
            print(f"{outcome.clip.name}: {cut.text!r}")
    timed = [(parts, outcome) for outcome in outcomes if (parts := outcome.response_ms()) and outcome.clip.intent]
    timed.sort(key=lambda pair: -pair[0]["response"])
    for parts, outcome in timed[:count]:
        chosen = outcome.heard.chosen
        assert chosen is not None
        print(f"- {parts['response']:.0f} ms, endpoint {parts['endpoint']:.0f} ({chosen.endpoint_reason}): ", end="")
        print(f"{outcome.clip.group}, {outcome.clip.name}: {chosen.text!r}")
    print()


def _answered(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    fair = [outcome for outcome in outcomes if outcome.clip.intent is not None and outcome.cut is None]
    return [parts for outcome in fair if (parts := outcome.response_ms()) is not None]


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return float(np.median(values)), float(np.percentile(values, 95)), float(np.std(values))


if __name__ == "__main__":
    main()
