"""How well Wren hears: `wren listen` on every clip of ../shared/speech, as Markdown tables on standard output.

    .venv/bin/python benchmarks/speech_bench.py [--only commands,negatives,wake] [--json OUT.json]

Runs the installed `wren` as a user would and reads its JSON. Word error rate is of case-folded words without
punctuation, numbers in words, over all words of a group. An intent is right when the intent and every expected slot
are right (names without regard to case; what the data's README allows as also right counts).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import soundfile

SPEECH = Path(__file__).resolve().parent.parent.parent / "shared" / "speech"
WREN = Path(sys.executable).with_name("wren")
RATE_HZ = 16_000
Record = dict[str, Any]

_DIGITS = re.compile(r"\d+")
_ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def words(text: str) -> str:
    """A text as its words, for the word error rate."""
    text = text.lower().replace("%", " percent ").replace("’", "'").replace("-", " ").replace("'", "")
    text = _DIGITS.sub(lambda m: f" {_number(int(m[0]))} ", text)
    return " ".join(re.sub(r"[^a-z ]", " ", text).split())


def _number(value: int) -> str:
    if value < 20:
        return _ONES[value]
    if value < 100:
        return _TENS[value // 10 - 2] + (f" {_ONES[value % 10]}" if value % 10 else "")
    if value < 1000:
        return f"{_ONES[value // 100]} hundred" + (f" {_number(value % 100)}" if value % 100 else "")
    return f"{_number(value // 1000)} thousand" + (f" {_number(value % 1000)}" if value % 1000 else "")


def manifest(folder: str) -> list[dict[str, str]]:
    """Rows of a folder's manifest."""
    with (SPEECH / folder / "manifest.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def listen(files: Sequence[Path], *options: str) -> list[Record]:
    """`wren listen --json` on files; one record each."""
    command = [str(WREN), "listen", "--json", *options, *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    records = [json.loads(line) for line in run.stdout.splitlines()]
    if len(records) != len(files):
        raise SystemExit(f"wren listen gave {len(records)} records for {len(files)} files: {run.stderr[-500:]}")
    return records


def right(row: dict[str, str], record: Record) -> bool:
    """Whether intent and slots are as expected."""
    expected, got = json.loads(row["expected_slots"] or "{}"), record["slots"]
    if not row["expected_intent"]:
        return record["intent"] is None
    if record["intent"] == "HassShoppingListAddItem" and row["expected_intent"] == "HassListAddItem":
        return str(got.get("item")).lower() == str(expected.get("item")).lower()
    if record["intent"] != row["expected_intent"]:
        return False
    if all(str(got.get(name)).lower() == str(value).lower() for name, value in expected.items()):
        return True
    # "turn on the bedroom light": the light by name, or the area's lights.
    name = str(expected.get("name", "")).lower()
    return (
        got.get("domain") == "light" and str(got.get("area", "?")).lower() in name and name.endswith(("light", "lamp"))
    )


def commands(out: list[str]) -> list[Record]:
    """Spoken commands: word error rate, intents, endpoints."""
    rows = manifest("commands")
    home = SPEECH / "commands" / "home.json"
    records = listen([SPEECH / "commands" / row["file"] for row in rows], "--no-wake", "--home", str(home))
    pairs = list(zip(rows, records, strict=True))
    out += [
        "### Commands",
        "",
        "| group | clips | word error rate | right | wrong action | not understood |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("human", "tts"):
        group = [(row, record) for row, record in pairs if row["kind"] == kind]
        asked = [(row, record) for row, record in group if row["expected_intent"]]
        wer = jiwer.wer(
            [words(row["transcript"]) for row, _ in group], [words(r["transcript"]) or "-" for _, r in group]
        )
        good = sum(right(*pair) for pair in asked)
        wrong = sum(not right(*pair) and pair[1]["intent"] is not None for pair in group)
        none = sum(record["intent"] is None for _, record in asked)
        name = {"human": "human", "tts": "synthesised"}[kind]
        out.append(
            f"| {name} | {len(group)} | {wer:.1%} | {good}/{len(asked)} ({good / len(asked):.0%}) | {wrong} | {none} |"
        )
    out += ["", "Each miss:", "", "| clip | said | heard | understood |", "|---|---|---|---|"]
    for row, record in pairs:
        if not right(row, record):
            understood = f"{record['intent']} {json.dumps(record['slots'])}" if record["intent"] else "nothing"
            out.append(
                f"| {row['file']} | {row['transcript']} | {record['transcript'] or '(nothing)'} | {understood} |"
            )
    _times(out, pairs)
    return records


def _times(out: list[str], pairs: list[tuple[dict[str, str], Record]]) -> None:
    """Where the time goes, over clips whose intent was asked for and found."""
    rows = [(float(row["speech_end_s"]) * 1000, record["times_ms"]) for row, record in pairs if record["intent"]]
    cut = sum(
        1
        for row, record in pairs
        if record["times_ms"]["endpoint"] is not None
        and record["times_ms"]["endpoint"] < float(row["speech_end_s"]) * 1000 - 150
    )
    ends = [t["end_of_speech"] - end for end, t in rows]
    response = [t["first_audio"] - end for end, t in rows if t["first_audio"] is not None]
    tail = [t["first_audio"] - t["endpoint"] for _, t in rows if t["first_audio"] is not None]
    out += [
        "",
        f"From the true end of speech to the first reply sample: median {np.median(response):.0f} ms, "
        f"95th percentile {np.percentile(response, 95):.0f} ms (the plain silence endpoint waits 700 ms of it); "
        f"from the endpoint to the first sample: median {np.median(tail):.0f} ms. "
        f"Our end of speech against the data's: median {np.median(ends):+.0f} ms, "
        f"5th to 95th percentile {np.percentile(ends, 5):+.0f} to {np.percentile(ends, 95):+.0f} ms. "
        f"Cut off (endpoint more than 150 ms before the end): {cut} of {len(pairs)}.",
        "",
    ]


def negatives(out: list[str]) -> list[Record]:
    """Speech that is no command: what was understood all the same, and the word error rate of reading."""
    rows = manifest("negatives")
    home = SPEECH / "commands" / "home.json"
    records = listen([SPEECH / "negatives" / row["file"] for row in rows], "--no-wake", "--home", str(home))
    pairs = list(zip(rows, records, strict=True))
    false = [(row, record) for row, record in pairs if record["intent"] is not None]
    read = [(row, record) for row, record in pairs if row["transcript"]]
    said, heard = [words(row["transcript"]) for row, _ in read], [words(r["transcript"]) or "-" for _, r in read]
    out += [
        "### Not commands",
        "",
        f"{len(pairs)} clips, taken for a command: {len(false)} ({len(false) / len(pairs):.1%}). "
        f"Word error rate of the {len(read)} read or free texts: {jiwer.wer(said, heard):.1%}.",
        "",
    ]
    out += [f"- {row['file']}: heard “{record['transcript']}”, took it for {record['intent']}" for row, record in false]
    for row, record in read:
        rate = jiwer.wer(words(row["transcript"]), words(record["transcript"]) or "-")
        if rate > 0:
            out.append(f"- {row['file']} ({rate:.0%}): said “{row['transcript']}”, heard “{record['transcript']}”")
    out.append("")
    return records


def wake(out: list[str]) -> None:
    """Wake words: misses on `alexa`, fires on what is not it."""
    noise, _ = soundfile.read(SPEECH / "noise" / "kitchen_a.flac", dtype="float32")
    out += [
        "### Wake word",
        "",
        "| detector | clips | clean: fired | kitchen noise at 10 dB: fired |",
        "|---|---|---|---|",
    ]
    for folder, detector in (("wake/alexa", "alexa"), ("wake/jarvis", "alexa"), ("wake/computer", "alexa")):
        files = [SPEECH / folder / row["file"] for row in manifest(folder)]
        _wake_row(out, folder, detector, files, noise)
    files = [SPEECH / "negatives" / row["file"] for row in manifest("negatives")]
    for detector in ("alexa", "okay_nabu", "hey_jarvis", "hey_mycroft"):
        _wake_row(out, "negatives", detector, files, noise)
    out.append("")


def _wake_row(out: list[str], folder: str, detector: str, files: list[Path], noise: np.ndarray) -> None:
    clean = sum(record["wake"] is not None for record in listen(files, "--wake", detector))
    with tempfile.TemporaryDirectory() as work:
        mixed = [_mixed(file, noise, Path(work), number) for number, file in enumerate(files)]
        noisy = sum(record["wake"] is not None for record in listen(mixed, "--wake", detector))
    total = len(files)
    out.append(f"| {detector} on {folder} | {total} | {clean} ({clean / total:.1%}) | {noisy} ({noisy / total:.1%}) |")


def _mixed(file: Path, noise: np.ndarray, work: Path, number: int) -> Path:
    """A clip in noise, 10 dB below the clip's speech level (its 100 ms windows within 20 dB of the loudest)."""
    sound, _ = soundfile.read(file, dtype="float32")
    lead = np.zeros(RATE_HZ, np.float32)
    sound = np.concatenate((lead, sound))
    windows = np.array([np.mean(sound[i : i + 1600] ** 2) for i in range(0, max(1, sound.size - 1600), 1600)])
    level = windows[windows > windows.max() / 100].mean()
    start = number * 7919 % max(1, noise.size - sound.size)
    piece = np.resize(noise[start:], sound.size)
    gain = np.sqrt(level / np.mean(piece**2) / 10.0)
    path = work / f"{number:04d}.wav"
    soundfile.write(path, np.clip(sound + gain * piece, -1, 1), RATE_HZ, "PCM_16")
    return path


def main(argv: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="commands,negatives,wake")
    parser.add_argument("--json", type=Path, help="keep the records here")
    arguments = parser.parse_args(None if argv is None else list(argv))
    if not SPEECH.is_dir():
        raise SystemExit(f"{SPEECH} is absent: the recordings are not part of this repository")
    out: list[str] = []
    kept: dict[str, list[Record]] = {}
    for part in arguments.only.split(","):
        result = {"commands": commands, "negatives": negatives, "wake": wake}[part](out)
        if result is not None:
            kept[part] = result
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1))
    print("\n".join(out))


if __name__ == "__main__":
    main()
