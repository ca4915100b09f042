"""Is anybody cut off? Speech with pauses, recorded and put in, on the simulated clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from appliance.app import Wren
from appliance.audio.frame import Samples
from appliance.bench.material import COMMANDS, NEGATIVES, Clip, load_clips, paused_clips
from appliance.bench.run import ClipResult, hear_clip
from appliance.bench.sound import insert_pause, read_sound
from appliance.errors import AudioFormatError
from models import Progress

__all__ = ["PAUSES_S", "CutCase", "CutResult", "cut_cases", "paused", "run_cuts"]

PAUSES_S: Final = (0.250, 0.400)
"""Pauses put into commands: about what people need to think of a word."""
_ORDERS: Final = r"^coffee_"


@dataclass(frozen=True, slots=True)
class CutCase:
    """Clips of one sort, and the pause that is put into each."""

    name: str
    clips: tuple[Clip, ...]
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class CutResult:
    """How many of them were cut off, and which."""

    name: str
    clips: int
    failed: int
    cut: tuple[str, ...]
    right: int
    asked: int
    """Clips with an intent."""

    @property
    def rate(self) -> float | None:
        """Share cut off of those that could be heard."""
        heard = self.clips - self.failed
        return len(self.cut) / heard if heard else None


def cut_cases(folder: Path, *, match: str | None = None, limit: int | None = None) -> tuple[CutCase, ...]:
    """The cases of a folder of recordings; `match` and `limit` choose among the commands. Raises `MaterialError`."""
    commands = load_clips(folder, COMMANDS, match=match, limit=limit)
    asked = tuple(clip for clip in commands if clip.intent is not None)
    return (
        CutCase("commands as recorded", commands),
        CutCase("recorded pauses of 0.3 to 1.2 s", paused_clips(folder)[:limit]),
        CutCase("coffee orders", load_clips(folder, NEGATIVES, match=_ORDERS, limit=limit)),
        *(CutCase(f"commands with a pause of {pause_s * 1000:.0f} ms put in", asked, pause_s) for pause_s in PAUSES_S),
    )


def run_cuts(wren: Wren, cases: Sequence[CutCase], progress: Progress) -> list[CutResult]:
    """Hear every clip of every case on the simulated clock."""
    results = []
    for case in cases:
        heard: list[ClipResult] = []
        for clip in case.clips:
            progress(case.name, len(heard), len(case.clips))
            heard.append(_hear(wren, clip, case.pause_s))
        progress(case.name, len(heard), len(case.clips))
        results.append(_cut_result(case, heard))
    return results


def paused(clip: Clip, pause_s: float) -> tuple[Clip, Samples]:
    """A clip with a pause put in, and what is heard of it. Raises `AudioFormatError`."""
    speech = (clip.speech_start_s, clip.speech_end_s)
    sound, _ = insert_pause(read_sound(clip.path), speech, pause_s)
    return replace(clip, speech_end_s=clip.speech_end_s + pause_s), sound


def _hear(wren: Wren, clip: Clip, pause_s: float | None) -> ClipResult:
    if pause_s is None:
        return hear_clip(wren, clip, realtime=False)
    try:
        longer, sound = paused(clip, pause_s)
    except AudioFormatError:
        # The file itself fails in the same way when it is played, and the result says why.
        return hear_clip(wren, clip, realtime=False)
    return hear_clip(wren, longer, realtime=False, sound=sound)


def _cut_result(case: CutCase, heard: Sequence[ClipResult]) -> CutResult:
    good = [result for result in heard if result.error is None]
    asked = [result for result in good if result.clip.intent is not None]
    return CutResult(
        name=case.name,
        clips=len(heard),
        failed=len(heard) - len(good),
        cut=tuple(result.clip.name for result in good if result.cut),
        right=sum(result.right for result in asked),
        asked=len(asked),
    )
