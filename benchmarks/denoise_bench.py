"""Does DTLN before wake words help, what would it do to voice activity, and what does it cost? Prints Markdown.

    .venv/bin/python benchmarks/denoise_bench.py [--only cost,signal,wake,voice] [--noise NAME] [--limit N]

Needs the pack (`wren models fetch dtln`) and `../shared/speech`. Counts need no quiet machine; costs are CPU time, the
least of a few rounds, beside what the same process takes without it. The level of the noise (`noise/*.flac`) is set
against the loud tenths of a second of each recording.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from appliance.app import Wren, WrenSettings  # noqa: E402
from appliance.audio.frame import FRAME_S, RATE_HZ, Frame, Samples  # noqa: E402
from appliance.audio.frontend import Denoiser  # noqa: E402
from appliance.audio.frontend.cleaning import Cleaner  # noqa: E402
from appliance.audio.frontend.denoise import SHARE  # noqa: E402
from appliance.audio.frontend.webrtc import open_processors  # noqa: E402
from appliance.bench.material import Clip, load_clips, speech_folder  # noqa: E402
from appliance.bench.sound import read_sound  # noqa: E402
from appliance.denoising import open_denoiser  # noqa: E402
from appliance.recording import samples_frames  # noqa: E402
from appliance.voice.vad import WINDOW_S, SpeechGate  # noqa: E402
from appliance.voice.wake import WakeDetector, WakeSettings  # noqa: E402

WORD = "alexa"
LEAD_S = 3.0
"""Before each recording: a room, or its noise, that what adapts can get used to. (After one second the gain control has
not: it then loses 15 of 100.)"""
QUIETER = np.float32(10.0 ** (-24.0 / 20.0))
TALK = 45
"""Recordings of talk, in which nothing may fire."""
ROUNDS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, of: " + ", ".join(PARTS))
    parser.add_argument("--noise", default="kitchen_a", help="a recording of ../shared/speech/noise")
    parser.add_argument("--limit", type=int, help="recordings of a kind, at most")
    parser.add_argument("--speech", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    speech = speech_folder(arguments.speech)
    with Wren.open(WrenSettings(denoise=True)) as wren:
        bench = Bench(wren, speech, arguments.noise, arguments.limit)
        print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
        for part in arguments.only.split(","):
            print("", flush=True)
            PARTS[part](bench)


class Bench:
    """What the parts share."""

    def __init__(self, wren: Wren, speech: Path, noise: str, limit: int | None) -> None:
        self.wren, self.speech, self.limit = wren, speech, limit
        self.noise = read_sound(speech / "noise" / f"{noise}.flac")

    def denoiser(self) -> Denoiser:
        return open_denoiser(self.wren.opener)

    def clips(self, part: str) -> Sequence[Clip]:
        return load_clips(self.speech, part, limit=self.limit)

    def sounds(self, folder: str) -> list[Samples]:
        """Recordings of a folder, with their lead."""
        paths = sorted((self.speech / folder).glob("*.flac"))[: self.limit]
        return [with_lead(path) for path in paths]

    def noisy(self, sound: Samples, snr_db: float, number: int) -> Samples:
        """The sound in noise: another piece of it for each number."""
        tenth = RATE_HZ // 10
        powers = np.array([np.mean(sound[at : at + tenth] ** 2) for at in range(0, sound.size - tenth, tenth)])
        level = powers[powers > powers.max() / 100].mean()
        piece = np.resize(np.roll(self.noise, -(number * 7919 % self.noise.size)), sound.size)
        gain = np.sqrt(level / np.mean(piece**2) * 10.0 ** (-snr_db / 10.0))
        return np.clip(sound + gain * piece, -1.0, 1.0).astype(np.float32)


def with_lead(path: Path) -> Samples:
    """A recording with silence before it."""
    return np.concatenate((np.zeros(round(LEAD_S * RATE_HZ), np.float32), read_sound(path)))


def table(head: Iterable[str]) -> None:
    cells = list(head)
    row(cells)
    row(["---"] * len(cells))


def row(cells: Iterable[object]) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


# ---- what it costs ----------------------------------------------------------------------------------------------


def cost(bench: Bench) -> None:
    """CPU of the front end for 10 ms, and of what else runs all the time."""
    sound = bench.noisy(bench.sounds("wake/alexa")[0], 10.0, 0)
    frames = list(samples_frames(np.resize(sound, 10 * RATE_HZ)))
    detector, vad = WakeDetector(WakeSettings((WORD,))), bench.wren.voice_activity()
    denoiser = bench.denoiser()
    with_it = Cleaner(open_processors(), bench.denoiser())
    without = Cleaner(open_processors())
    works: dict[str, Callable[[Frame], object]] = {
        "the denoiser alone": denoiser.push,
        "front end, without": without.push,
        "front end, with dtln": with_it.push,
        "wake word and voice activity": lambda frame: (detector.push(frame), vad.push(frame)),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            began_s = time.thread_time()
            for frame in frames:
                work(frame)
            best[name] = min(best[name], (time.thread_time() - began_s) / len(frames))
    table(("Wren silent", "CPU a frame of 10 ms", "of a core"))
    for name, seconds in best.items():
        row((name, f"{seconds * 1000:.3f} ms", f"{seconds / FRAME_S:.1%}"))


# ---- what it does to the sound ----------------------------------------------------------------------------------


def signal(bench: Bench) -> None:
    """Scale-invariant signal-to-distortion ratio of commands in noise, before and after."""
    table(("noise at", "SI-SDR before", "after", "recordings better"))
    for snr_db in (10.0, 5.0, 0.0):
        before, after = [], []
        for number, clip in enumerate(bench.clips("commands")):
            clean = with_lead(clip.path)
            mixed = bench.noisy(clean, snr_db, number)
            made = through(bench.denoiser(), mixed)
            said = slice(*(round((LEAD_S + at_s) * RATE_HZ) for at_s in (clip.speech_start_s, clip.speech_end_s)))
            before.append(si_sdr_db(clean[said], mixed[said]))
            after.append(si_sdr_db(clean[said], made[said]))
        better = sum(a > b for a, b in zip(after, before, strict=True))
        medians = (f"{statistics.median(values):.1f} dB" for values in (before, after))
        row((f"{snr_db:g} dB", *medians, f"{better} of {len(before)}"))


def through(denoiser: Denoiser, sound: Samples) -> Samples:
    """Denoised, each sample in its place."""
    frames = [denoiser.push(frame) for frame in samples_frames(sound)][3:] + list(denoiser.flush())
    return np.concatenate([frame.samples for frame in frames])


def si_sdr_db(reference: Samples, estimate: Samples) -> float:
    """Le Roux et al., "SDR - half-baked or well done?" (ICASSP 2019)."""
    reference, estimate = reference - reference.mean(), estimate - estimate.mean()
    target = reference * (np.dot(estimate, reference) / np.dot(reference, reference))
    left = estimate - target
    return float(10.0 * np.log10(np.dot(target, target) / max(1e-12, np.dot(left, left))))


# ---- wake words -------------------------------------------------------------------------------------------------


def _levelled(sound: Samples) -> Samples:
    gain = open_processors().wake
    return np.concatenate([gain.process(np.ascontiguousarray(frame.samples)) for frame in samples_frames(sound)])


def _half(sound: Samples, denoised: Samples) -> Samples:
    mixed: Samples = sound + np.float32(SHARE) * (denoised[: sound.size] - sound)
    return mixed


WAYS: dict[str, Callable[[Samples, Samples], Samples]] = {
    "nothing": lambda sound, denoised: sound,
    "gain control (taken)": lambda sound, denoised: _levelled(sound),
    "dtln": lambda sound, denoised: denoised,
    "dtln and gain control": lambda sound, denoised: _levelled(denoised),
    "dtln by half": _half,
    "dtln by half, and gain control (the setting)": lambda sound, denoised: _levelled(_half(sound, denoised)),
}
"""What stands before the detector: sound and what DTLN makes of it in, sound out."""


def wake(bench: Bench) -> None:
    """People saying the word, and what is not it, behind several ways of preparing the sound."""
    said = bench.sounds(f"wake/{WORD}")
    others = bench.sounds("wake/jarvis") + bench.sounds("wake/computer") + bench.sounds("negatives")[:TALK]

    def in_noise(sounds: Sequence[Samples], snr_db: float) -> list[Samples]:
        return [bench.noisy(sound, snr_db, number) for number, sound in enumerate(sounds)]

    conditions = {
        "as recorded": said,
        "24 dB quieter": [sound * QUIETER for sound in said],
        "noise at 5 dB": in_noise(said, 5.0),
        "that, 24 dB quieter": [sound * QUIETER for sound in in_noise(said, 5.0)],
        "not the word": others,
        "that, at 5 dB": in_noise(others, 5.0),
    }
    fired = {name: [0] * len(conditions) for name in WAYS}
    for column, sounds in enumerate(conditions.values()):
        for sound in sounds:
            denoised = through(bench.denoiser(), sound)
            for name, way in WAYS.items():
                fired[name][column] += fires(way(sound, denoised))
    table(("before the detector", *(f"{name} ({len(sounds)})" for name, sounds in conditions.items())))
    for name, counts in fired.items():
        row((name, *counts))


def fires(sound: Samples) -> bool:
    """Whether the detector wakes on a recording."""
    detector = WakeDetector(WakeSettings((WORD,)))
    tail = np.zeros(round(0.3 * RATE_HZ), np.float32)
    return any(detector.push(frame) for frame in samples_frames(np.concatenate((sound, tail))))


# ---- voice activity ---------------------------------------------------------------------------------------------


def voice(bench: Bench) -> None:
    """Windows of 32 ms of the commands taken for what they are, speech or none, against the manifest's times."""
    table(("voice activity hears", "in", "windows right", "speech found", "silence taken for speech"))
    for name, snr_db in (("as recorded", None), ("10 dB", 10.0), ("5 dB", 5.0), ("0 dB", 0.0)):
        plain, quiet, half = Counts(), Counts(), Counts()
        for number, clip in enumerate(bench.clips("commands")):
            sound = with_lead(clip.path)
            mixed = sound if snr_db is None else bench.noisy(sound, snr_db, number)
            denoised = through(bench.denoiser(), mixed)[: mixed.size]
            times = (LEAD_S + clip.speech_start_s, LEAD_S + clip.speech_end_s)
            for counts, heard in ((plain, mixed), (quiet, denoised), (half, _half(mixed, denoised))):
                counts.add(bench.wren, heard, times)
        for way, counts in (("it as it is", plain), ("dtln", quiet), ("dtln by half", half)):
            row((way, name, *counts.cells()))


class Counts:
    """Windows, by what they are and what they were taken for."""

    def __init__(self) -> None:
        self.counts = np.zeros((2, 2), dtype=int)

    def add(self, wren: Wren, sound: Samples, speech_s: tuple[float, float]) -> None:
        """One recording. Windows that lie across an edge of the speech are nobody's."""
        vad, gate = wren.voice_activity(), SpeechGate()
        for frame in samples_frames(sound):
            for window in vad.push(frame):
                speaking = gate.push(window).speaking
                inside = speech_s[0] <= window.start_s and window.end_s <= speech_s[1]
                outside = window.end_s <= speech_s[0] or window.start_s >= speech_s[1]
                if (inside or outside) and window.start_s >= WINDOW_S:
                    self.counts[int(inside), int(speaking)] += 1

    def cells(self) -> tuple[str, str, str]:
        """Right; speech found; silence taken for speech."""
        (quiet, false), (missed, found) = self.counts.tolist()
        right = (quiet + found) / max(1, self.counts.sum())
        return f"{right:.1%}", f"{found / max(1, found + missed):.1%}", f"{false / max(1, quiet + false):.1%}"


PARTS: dict[str, Callable[[Bench], None]] = {
    "cost": cost,
    "signal": signal,
    "wake": wake,
    "voice": voice,
}

if __name__ == "__main__":
    main()
