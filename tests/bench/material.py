"""A small folder of recordings laid out as ../shared/speech, and results as a run would give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from appliance.bench.material import Clip
from appliance.bench.run import Ahead, ClipResult, Split
from appliance.bench.score import Action

HEADER = (
    "file",
    "transcript",
    "expected_intent",
    "expected_slots",
    "kind",
    "seconds",
    "speech_start_s",
    "speech_end_s",
)
ROW = {
    "file": "a.flac",
    "transcript": "turn on the kitchen lights",
    "expected_intent": "HassTurnOn",
    "expected_slots": '{"area": "Kitchen", "domain": "light"}',
    "kind": "human",
    "seconds": "2.0",
    "speech_start_s": "0.5",
    "speech_end_s": "1.5",
}


def write_manifest(folder: Path, *rows: Mapping[str, str], header: tuple[str, ...] = HEADER) -> None:
    """A manifest.tsv; what a row leaves out is as in `ROW`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(header)] + ["\t".join({**ROW, **row}[name] for name in header) for row in rows]
    (folder / "manifest.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_sound(path: Path, seconds: float = 2.0, level: float = 0.01) -> None:
    """Noise as 16 kHz FLAC or WAV."""
    sound = np.random.default_rng(3).standard_normal(int(seconds * 16_000)) * level
    soundfile.write(path, sound, 16_000, subtype="PCM_16")


def a_clip(name: str = "a.flac", **changes: Any) -> Clip:
    """A clip that nobody opens."""
    known: dict[str, Any] = {
        "path": Path("/nowhere") / name,
        "name": name,
        "transcript": ROW["transcript"],
        "intent": ROW["expected_intent"],
        "slots": json.loads(ROW["expected_slots"]),
        "kind": "human",
        "speech_start_s": 0.5,
        "speech_end_s": 1.5,
    }
    return Clip(**{**known, **changes})


def a_result(total: float | None = 250.0, **changes: Any) -> ClipResult:
    """A right answer after `total` ms; None: no answer."""
    split = None if total is None else Split(200.0, 0.0, 10.0, total - 210.0, 0.0, total, total - 200.0)
    known: dict[str, Any] = {
        "clip": a_clip(),
        "heard": "Turn on the kitchen lights.",
        "actions": (Action("HassTurnOn", {"area": "Kitchen", "domain": "light"}),),
        "right": True,
        "wrong_action": False,
        "cut": False,
        "split": split,
        "endpoint_reason": "understood",
        "reply": "Turned on the lights",
        "cpu_s": 0.5,
        "others_cores": 0.1,
        "ahead": Ahead(2, 1, 1, 0.3, 0.1),
        "dropped_frames": 0,
        "error": None,
    }
    return ClipResult(**{**known, **changes})
