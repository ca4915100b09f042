"""Wake words heard by a detector that dozes in a quiet room, beside one that never does. Markdown.

    .venv/bin/python benchmarks/doze_bench.py [--speech DIR]

Each recording comes after five seconds of a room, as a session hears it: level evened out, asleep until something
stands out. Also told: how much of the time it slept, and what of talk that is no wake word fired.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from appliance.audio.files import read_blocks  # noqa: E402
from appliance.audio.frame import RATE_HZ, Frame, Framer, Samples  # noqa: E402
from appliance.audio.frontend.webrtc import open_processors  # noqa: E402
from appliance.bench.material import speech_folder  # noqa: E402
from appliance.voice.doze import Doze, Dozing  # noqa: E402
from appliance.voice.session import WAKE_REPLAYED_S  # noqa: E402
from appliance.voice.wake import WakeDetector, WakeSettings  # noqa: E402

WORD = "alexa"
ROOMS = ((0.0, -62.0, 0.0), (0.0, -45.0, 0.0), (-24.0, -66.0, 0.0), (-24.0, -80.0, 0.0), (-24.0, -66.0, 0.03))
"""(gain of the speech, level of the room, offset of the microphone): dB, dBFS, of full scale."""


@dataclass(slots=True)
class Count:
    """Of some recordings."""

    clips: int = 0
    awake: int = 0
    dozing: int = 0
    slept: float = 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speech", type=Path, metavar="DIR")
    speech = speech_folder(parser.parse_args().speech)
    print("| what | speech, room | clips | never asleep: fired | dozing: fired | slept |\n|---|---|---|---|---|---|")
    for gain_db, room_dbfs, offset in ROOMS:
        for folder in (f"wake/{WORD}", "wake/jarvis", "wake/computer", "negatives"):
            files = sorted((speech / folder).rglob("*.flac"))
            count = _count(files, gain_db, room_dbfs, offset)
            slept = f"{count.slept / max(1, count.clips):.0%}"
            room = f"{gain_db:+.0f} dB, {room_dbfs:.0f} dBFS{f', offset {offset:g}' if offset else ''}"
            print(f"| {folder} | {room} | {count.clips} | {count.awake} | {count.dozing} | {slept} |", flush=True)


def _count(files: Iterable[Path], gain_db: float, room_dbfs: float, offset: float) -> Count:
    noise, count = np.random.default_rng(3), Count()
    for file in files:
        said = np.concatenate(list(read_blocks(file))) * np.float32(10 ** (gain_db / 20))
        sound = np.concatenate((np.zeros(5 * RATE_HZ, np.float32), said, np.zeros(2 * RATE_HZ, np.float32)))
        sound += noise.standard_normal(sound.size, dtype=np.float32) * np.float32(10 ** (room_dbfs / 20))
        sound += np.float32(offset)
        count.clips += 1
        count.awake += _heard(sound, rests=False)[0]
        fired, slept = _heard(sound, rests=True)
        count.dozing += fired
        count.slept += slept
    return count


def _heard(sound: Samples, *, rests: bool) -> tuple[bool, float]:
    """Whether the word was heard, and which share of the time the detector slept."""
    detector = Dozing(WakeDetector(WakeSettings((WORD,))), WAKE_REPLAYED_S, afresh=False)
    doze, levelled = Doze(), open_processors().wake
    fired, slept, frames = False, 0, Framer().push(sound)
    for frame in frames:
        dozing = doze.push(frame.samples, resting=rests, speaking=False)
        heard = Frame(levelled.process(frame.samples), frame.time_s, frame.seq)
        fired |= bool(detector.push(heard, dozing=dozing))
        slept += dozing
    return fired, slept / len(frames)


if __name__ == "__main__":
    main()
