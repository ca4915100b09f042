"""What the home's phrases do for recognition: right and wrong actions, their cost, the grammar's size; as Markdown.

    .venv/bin/python benchmarks/bias_bench.py [--only commands,noise,negatives,near,size] [--json OUT.json]
        [--recogniser PACK]

Clips of ../shared/speech are cut as a session cuts them: 0.4 s before the first speech to 0.2 s after the last. `noise`
is the commands in kitchen noise at 10 dB. `near` takes the rarest word of each command out of the grammar (in all its
forms), so that any other action is wrong. CPU times are of this process; the ratio compares the same clip with and
without phrases, one after the other.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from speech_bench import RATE_HZ, SPEECH, manifest, right

from appliance.app import Wren, WrenSettings, open_assistant
from appliance.intent.home_file import load_home_file
from appliance.intent.language import load_language
from appliance.intent.phrase_graph import Kind, PhraseGraph
from appliance.intent.phrase_text import number_words, plain_letters
from appliance.intent.phrases import phrase_graph
from appliance.intent.types import Area, Entity, HomeView, Understanding
from appliance.voice.asr.acceptance import accepted_text
from appliance.voice.asr.bias import LetterBias
from appliance.voice.asr.protocol import Bias, Cancel, Extension, Hypothesis, Reach
from hw.plan import Overrides

HOME = SPEECH / "commands" / "home.json"
LEAD_S, TAIL_S = 0.4, 0.2
SAMPLES = 20_000
"""Random phrases that word counts are taken from."""
Row = Mapping[str, str]
Match = Callable[[str], Understanding]


@dataclass(frozen=True)
class Heard:
    """One clip, heard without and with phrases."""

    part: str
    row: Row
    free: Hypothesis
    biased: Hypothesis
    free_ms: float
    biased_ms: float


class Without:
    """A bias whose phrases lack some words."""

    def __init__(self, bias: Bias, words: frozenset[str]) -> None:
        self._bias, self._words = bias, words
        self.version = bias.version
        self.start = (bias.start, "")

    def step(self, state: tuple[object, str], letters: str) -> tuple[object, str] | None:
        """As `Bias.step`; a forbidden word leads nowhere."""
        inner, word = state
        for letter in letters:
            if letter == " " and word in self._words:
                return None
            word = "" if letter == " " else word + letter
            inner = self._bias.step(inner, letter)
            if inner is None:
                return None
        return inner, word

    def complete(self, state: tuple[object, str]) -> bool:
        """As `Bias.complete`."""
        return state[1] not in self._words and self._bias.complete(state[0])

    def extension(self, state: tuple[object, str]) -> Extension:
        """As `Bias.extension`."""
        return self._bias.extension(state[0])

    def look(self, text: str) -> Reach:
        """As `Bias.look`."""
        letters = plain_letters(text)
        state = None if letters is None else self.step(self.start, letters.strip())
        if state is None:
            return Reach(False, False, Extension.NONE)
        return Reach(True, self.complete(state), self.extension(state))


class Bench:
    """The recogniser and the home of the clips."""

    def __init__(self, recogniser: str | None = None, engines: Overrides | None = None) -> None:
        settings = WrenSettings(home_file=HOME, recogniser=recogniser, engines=engines or Overrides())
        self._wren = Wren.open(settings)
        self._recogniser = self._wren.recogniser()
        assistant, area = open_assistant(settings)
        self.match: Match = lambda text: assistant.match(text, area)
        self.graph = phrase_graph(load_home_file(HOME))
        self.bias = LetterBias(self.graph)
        self._noise, _ = soundfile.read(SPEECH / "noise" / "kitchen_a.flac", dtype="float32")

    def hear(self, part: str) -> list[Heard]:
        """A part's clips, without and with phrases."""
        return [
            Heard(part, row, *self._both(self._sound(row, part, number)))
            for number, row in enumerate(manifest("negatives" if part == "negatives" else "commands"))
        ]

    def near_misses(self, part: str) -> list[tuple[Row, str, Understanding]]:
        """For each command its rarest word, and what is understood without it."""
        counts = wordcounts(self.graph)
        found = []
        for number, row in enumerate(manifest("commands")):
            known = [w for w in (plain_letters(row["transcript"]) or "").split() if counts[w]]
            if row["expected_intent"]:
                rarest = min(known, key=lambda w: counts[w])
                found.append((row, rarest, self._without(rarest, self._sound(row, part, number))))
        return found

    def _without(self, word: str, sound: np.ndarray) -> Understanding:
        forms = word_forms(word)

        def match(text: str) -> Understanding:
            said = set((plain_letters(text) or "").split())
            return Understanding(text, None) if said & forms else self.match(text)

        hypothesis, _ = self.hypothesis(sound, Without(self.bias, forms))
        return accepted_text(hypothesis, match).understanding

    def _sound(self, row: Row, part: str, number: int) -> np.ndarray:
        folder = "negatives" if part == "negatives" else "commands"
        sound, _ = soundfile.read(SPEECH / folder / row["file"], dtype="float32")
        start, end = float(row["speech_start_s"]) - LEAD_S, float(row["speech_end_s"]) + TAIL_S
        cut = sound[max(0, int(start * RATE_HZ)) : int(end * RATE_HZ)]
        return in_noise(cut, self._noise, number) if part == "noise" else cut

    def _both(self, sound: np.ndarray) -> tuple[Hypothesis, Hypothesis, float, float]:
        free, free_ms = self.hypothesis(sound, None)
        biased, biased_ms = self.hypothesis(sound, self.bias)
        return free, biased, free_ms, biased_ms

    def hypothesis(self, sound: np.ndarray, bias: Bias | None) -> tuple[Hypothesis, float]:
        """One recognition, and the processor's milliseconds."""
        self._recogniser.reset()
        self._recogniser.push_samples(sound)
        started = time.process_time()
        hypothesis = self._recogniser.hypothesise(self._recogniser.samples, bias, Cancel())
        return hypothesis, 1000 * (time.process_time() - started)


def in_noise(sound: np.ndarray, noise: np.ndarray, number: int) -> np.ndarray:
    """A clip in noise 10 dB below its speech level (its 100 ms windows within 20 dB of the loudest)."""
    windows = np.array([np.mean(sound[i : i + 1600] ** 2) for i in range(0, max(1, sound.size - 1600), 1600)])
    level = windows[windows > windows.max() / 100].mean()
    start = number * 7919 % max(1, noise.size - sound.size)
    piece = np.resize(noise[start:], sound.size)
    return np.clip(sound + np.sqrt(level / np.mean(piece**2) / 10.0) * piece, -1, 1).astype(np.float32)


def word_forms(word: str) -> frozenset[str]:
    """A word with its plural, and a number with its word."""
    language = load_language("en")
    forms = {word, f"{word}s", word.removesuffix("s")}
    for number in range(101):
        names = {str(number), *number_words(number, language)}
        if word in names:
            forms |= names
    return frozenset(forms)


def wordcounts(graph: PhraseGraph) -> Counter[str]:
    """In how many of many random phrases each word stands."""
    rng = random.Random(1)
    counts: Counter[str] = Counter()
    for _ in range(SAMPLES):
        counts.update(set("".join(_random_letters(graph, graph.start, rng)).split()))
    return counts


def _random_letters(graph: PhraseGraph, node: int, rng: random.Random) -> list[str]:
    letters: list[str] = []
    while graph.kinds[node] != Kind.FINAL:
        kind, value, target = graph.kinds[node], graph.values[node], graph.targets[node]
        if kind == Kind.LETTER:
            letters.append(chr(value))
        elif kind in (Kind.CALL, Kind.CALL_PLACE):
            letters += _random_letters(graph, graph.parts[value], rng)
        node = rng.choice(graph.pool[target : target + value]) if kind == Kind.SPLIT else target
    return letters


def recognition(heard: Sequence[Heard], match: Match) -> list[str]:
    """Right and wrong actions, and what the phrases cost."""
    out = [
        "| clips | free: right | wrong | with phrases: right | wrong | CPU ms free | with phrases | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups = (("commands", "human"), ("commands", "tts"), ("noise", "human"), ("noise", "tts"), ("negatives", "human"))
    for part, kind in groups:
        group = [h for h in heard if h.part == part and h.row["kind"] == kind]
        if not group:
            continue
        asked = sum(bool(h.row["expected_intent"]) for h in group)
        free = counts((h.row, match(h.free.text)) for h in group)
        biased = counts((h.row, accepted_text(h.biased, match).understanding) for h in group)
        before, after = [h.free_ms for h in group], [h.biased_ms for h in group]
        share = f"{biased[0]}/{asked}" + (f" ({biased[0] / asked:.0%})" if asked else "")
        out.append(
            f"| {part}, {kind} ({len(group)}) | {free[0]}/{asked} | {free[1]} | {share} | {biased[1]} "
            f"| {np.median(before):.0f} | {np.median(after):.0f} | {sum(after) / sum(before):.2f} |"
        )
    seconds = [h for h in heard if h.part == "commands"]
    if seconds:
        per_s = sum(h.biased_ms for h in seconds) / sum(_seconds(h.row) for h in seconds)
        out += ["", f"With phrases, {per_s:.0f} ms CPU a second of sound, {3 * per_s:.0f} ms for three seconds."]
    return [*out, "", *_misses(heard, match)]


def _misses(heard: Sequence[Heard], match: Match) -> list[str]:
    out = ["| not right | said | heard | phrase | gap | understood |", "|---|---|---|---|---|---|"]
    for h in heard:
        accepted = accepted_text(h.biased, match)
        understanding = accepted.understanding
        if not right(dict(h.row), _record(understanding)):
            meaning = f"{understanding.intent} {json.dumps(dict(understanding.slots))}" if understanding.intent else "-"
            phrase = h.biased.phrase or "-"
            out.append(
                f"| {h.part} {h.row['file']} | {h.row['transcript']} | {h.biased.text or '-'} | {phrase} "
                f"| {accepted.gap:.1f} | {meaning} |"
            )
    return out


def _seconds(row: Row) -> float:
    return float(row["speech_end_s"]) - float(row["speech_start_s"]) + LEAD_S + TAIL_S


def _record(understanding: Understanding) -> dict[str, object]:
    return {"intent": understanding.intent, "slots": dict(understanding.slots)}


def counts(pairs: Iterable[tuple[Row, Understanding]]) -> tuple[int, int]:
    """Commands understood rightly, and clips taken for what they are not."""
    good = bad = 0
    for row, understanding in pairs:
        fits = right(dict(row), _record(understanding))
        good += fits and bool(row["expected_intent"])
        bad += not fits and understanding.intent is not None
    return good, bad


def near(bench: Bench, parts: Sequence[str]) -> list[str]:
    """Near misses: another action than what was said."""
    out = ["| near misses | wrong actions |", "|---|---|"]
    notes = []
    for part in parts:
        found = bench.near_misses(part)
        wrong = [f for f in found if f[2].intent and not right(dict(f[0]), _record(f[2]))]
        out.append(f"| {part} ({len(found)}) | {len(wrong)} ({len(wrong) / len(found):.1%}) |")
        notes += [
            f"- {part}: without “{word}”, “{row['transcript']}” was taken for “{u.text}”" for row, word, u in wrong
        ]
    return [*out, "", *notes]


def size(entities: int) -> str:
    """One row: building the grammar of a made-up home. In a process of its own, so that its memory can be told."""
    from appliance.intent.grammar import load_grammar

    load_grammar("en")
    view = made_up_home(entities)
    before_kb = _peak_kb()
    started = time.process_time()
    graph = phrase_graph(view)
    bias = LetterBias(graph)
    built_s = time.process_time() - started
    peak_mb = (_peak_kb() - before_kb) / 1024
    started = time.process_time()
    for entity in view.entities[:50]:
        assert bias.look(f"turn on the {entity.name}").complete
    look_ms = 1000 * (time.process_time() - started) / min(50, entities)
    graph_mb = graph.size_bytes / 1e6
    return f"| {entities} | {built_s:.2f} | {peak_mb:.0f} | {graph_mb:.1f} | {len(graph.kinds)} | {look_ms:.1f} |"


def _peak_kb() -> int:
    """Most memory this process ever held. Not `getrusage`: its peak is the parent's where that was larger."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def made_up_home(entities: int) -> HomeView:
    """Rooms with lights of many names."""
    rng = random.Random(entities)
    syllables = ["ba", "lo", "mi", "ter", "san", "du", "ren", "ko", "vel", "pa", "shi", "gar"]
    words = sorted({"".join(rng.choices(syllables, k=rng.randint(2, 3))) for _ in range(entities)})
    rooms = tuple(Area(f"{words[n % len(words)]} room {n}", floor=None) for n in range(max(3, entities // 20)))
    kinds = (("light", "lamp"), ("switch", "socket"), ("cover", "blind"), ("sensor", "meter"), ("fan", "fan"))
    things = []
    for n in range(entities):
        domain, noun = kinds[n % 2 if n < 50 else n % len(kinds)]
        name = f"{rng.choice(words)} {rng.choice(words)} {noun} {n}"
        things.append(Entity(f"{domain}.e{n}", name, domain, rooms[n % len(rooms)].name))
    return HomeView(1, "en", rooms[0].name, (), rooms, tuple(things))


def main(argv: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="commands,noise,negatives,near,size")
    parser.add_argument("--json", type=Path, help="keep texts, gaps and times here")
    parser.add_argument("--recogniser", metavar="PACK", help="as models.recogniser in the settings")
    parser.add_argument("--size-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(None if argv is None else list(argv))
    if arguments.size_of:
        print(size(arguments.size_of))
        return
    if not SPEECH.is_dir():
        raise SystemExit(f"{SPEECH} is absent: the recordings are not part of this repository")
    parts = arguments.only.split(",")
    heard_parts = [p for p in parts if p in ("commands", "noise", "negatives")]
    if heard_parts or "near" in parts:
        bench = Bench(arguments.recogniser)
        heard = [h for part in heard_parts for h in bench.hear(part)]
        if heard:
            print("\n".join(recognition(heard, bench.match)), flush=True)
        if arguments.json:
            kept = [
                {"part": h.part, "file": h.row["file"], "free": str(h.free), "biased": str(h.biased)} for h in heard
            ]
            arguments.json.write_text(json.dumps(kept, indent=1))
        if "near" in parts:
            print("\n".join(["", *near(bench, ("commands", "noise"))]), flush=True)
    if "size" in parts:
        print("\n| entities | build s (CPU) | peak MB | graph MB | nodes | first look at a new name, ms |")
        print("|---|---|---|---|---|---|", flush=True)
        for entities in (10, 100, 1000):
            subprocess.run([sys.executable, __file__, "--size-of", str(entities)], check=True)


if __name__ == "__main__":
    main()
