"""The recordings: a folder laid out as `../shared/speech`, each part with a `manifest.tsv`."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance.bench.errors import MaterialError

__all__ = [
    "COMMANDS",
    "NEGATIVES",
    "SPEECH_VARIABLE",
    "Clip",
    "home_file",
    "load_clips",
    "paused_clips",
    "speech_folder",
]

SPEECH_VARIABLE: Final = "WREN_SPEECH"
COMMANDS: Final = "commands"
NEGATIVES: Final = "negatives"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and what is known of it; times in seconds from its first sample."""

    path: Path
    name: str
    """File name relative to its folder, as the manifest has it."""
    transcript: str
    intent: str | None
    """None: it must lead to nothing."""
    slots: Mapping[str, Any]
    kind: str
    """`human` or `tts`."""
    speech_start_s: float
    speech_end_s: float
    """Last speech sample."""


def speech_folder(chosen: Path | None, environ: Mapping[str, str] | None = None) -> Path:
    """The folder of recordings: the chosen one, else `$WREN_SPEECH`, else `shared/speech` beside the repository.

    Raises `MaterialError` where it is no folder.
    """
    variable = (os.environ if environ is None else environ).get(SPEECH_VARIABLE)
    folder = chosen or (Path(variable) if variable else _REPOSITORY.parent / "shared" / "speech")
    if not folder.is_dir():
        raise MaterialError(
            f"{folder}: no such folder of recordings; give one with --speech DIR or {SPEECH_VARIABLE} "
            f"(a folder with {COMMANDS}/manifest.tsv)"
        )
    return folder


def home_file(folder: Path) -> Path:
    """The home that the commands assume. Raises `MaterialError` where it is absent."""
    path = folder / COMMANDS / "home.json"
    if not path.is_file():
        raise MaterialError(f"{path} is absent: it describes the home that the commands assume; or give --home")
    return path


def load_clips(
    folder: Path, part: str = COMMANDS, *, match: str | None = None, limit: int | None = None
) -> tuple[Clip, ...]:
    """Clips of `folder/part` in the order of its manifest: those whose name holds the pattern, at most `limit`.

    Raises `MaterialError` for a manifest that is absent or malformed, a bad pattern, or if no clip is left.
    """
    wanted = _pattern(match)
    clips = [_clip(folder / part, row, number) for number, row in _rows(folder / part / "manifest.tsv")]
    chosen = [clip for clip in clips if wanted is None or wanted.search(clip.name)][:limit]
    if not chosen:
        raise MaterialError(f"{folder / part}: none of its {len(clips)} clips is asked for (--match {match!r})")
    return tuple(chosen)


def paused_clips(folder: Path) -> tuple[Clip, ...]:
    """Clips that `pauses/pauses.tsv` names: somebody pauses in the middle of them. Raises `MaterialError`."""
    listing = folder / "pauses" / "pauses.tsv"
    names = dict.fromkeys(row.get("file") or "" for _, row in _rows(listing))
    parts = {name.partition("/")[0] for name in names}
    known = {f"{part}/{clip.name}": clip for part in sorted(parts) for clip in load_clips(folder, part)}
    if missing := [name for name in names if name not in known]:
        raise MaterialError(f"{listing}: {missing[0]!r} is in no manifest.tsv of its folder")
    return tuple(known[name] for name in names)


def _pattern(match: str | None) -> re.Pattern[str] | None:
    try:
        return None if match is None else re.compile(match)
    except re.error as error:
        raise MaterialError(f"--match {match!r} is no regular expression: {error}") from None


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line number, row) of a tab-separated file with a header."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 2))
    except FileNotFoundError:
        raise MaterialError(f"{path} is absent: it says what is in the recordings; give another --speech DIR") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MaterialError(f"{path} cannot be read as a table: {error}") from None


def _clip(folder: Path, row: Mapping[str, str], number: int) -> Clip:
    where = f"{folder / 'manifest.tsv'}, line {number}"
    try:
        # Short rows have None where a column is missing.
        slots = json.loads(row["expected_slots"] or "{}")
        clip = Clip(
            path=folder / row["file"],
            name=row["file"],
            transcript=row["transcript"] or "",
            intent=row["expected_intent"] or None,
            slots=slots,
            kind=row["kind"],
            speech_start_s=float(row["speech_start_s"]),
            speech_end_s=float(row["speech_end_s"]),
        )
    except KeyError as error:
        raise MaterialError(f"{where}: no column {error}") from None
    except (TypeError, ValueError) as error:
        raise MaterialError(f"{where}: not as agreed ({error})") from None
    if not isinstance(slots, dict) or not 0.0 <= clip.speech_start_s < clip.speech_end_s:
        raise MaterialError(f"{where}: want slots as an object and 0 <= speech_start_s < speech_end_s")
    return clip
