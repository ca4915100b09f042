"""The usual local voice stack on the same clips: an outside program, run as its own users run it, never imported.

Its contract (`../shared/peers/baseline/README.md`): `run.sh CLIPDIR MANIFEST OUT.json --configs A,B --match REGEX`
makes its own environment the first time, plays each clip in real time and writes one JSON; times are seconds after
the true end of speech.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance.audio.frame import RATE_HZ
from appliance.bench.errors import BaselineError
from appliance.bench.material import Clip
from appliance.bench.run import CUT_S, ClipResult, Noise, Split, noisy
from appliance.bench.score import Action
from models import Progress

__all__ = ["CONFIGS", "BaselineRun", "prepare", "run_baseline"]

CONFIGS: Final = ("A-tiny.en-0.7", "A-tiny.en-0.25")
"""Home Assistant's "finished speaking detection" at its default and at its aggressive setting."""
_SCRIPT: Final = "run.sh"
_ENVIRONMENT: Final = ".venv"
_NOT_COPIED: Final = (_ENVIRONMENT, ".models", "__pycache__")
_ERROR_CHARS: Final = 300
_STARTING: Final = "baseline: starting (the first time it makes its environment, which takes minutes)"
_STAGE: Final = "baseline in real time"
_SETUP_LIMIT_S: Final = 1800.0
_CLIP_LIMIT_S: Final = 60.0
_MIB_MB: Final = 1.048576
_FLOOR_TAIL: Final = {"BASE_TAIL": "floor"}
"""Its switch for a tail as loud as the recording's floor: noise does not stop where a file does."""


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """One of its configurations on the clips."""

    config: str
    results: tuple[ClipResult, ...]
    peak_rss_mb: float


def prepare(folder: Path, cache: Path) -> Path:
    """A folder from which the program can be run: its own if an environment is there already, else a copy in `cache`.

    The environment (about 1 GB) is made by the program itself when it is first run. Raises `BaselineError`.
    """
    if not (folder / _SCRIPT).is_file():
        raise BaselineError(f"{folder}: no {_SCRIPT} there; give the folder of the program to compare with")
    if (folder / _ENVIRONMENT).is_dir():
        return folder
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in _NOT_COPIED)
    # Another version is another program: it gets a folder, and an environment, of its own.
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:12]
    copy = cache / digest
    try:
        copy.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copy2(path, copy / path.name)
            (copy / path.name).chmod(0o755 if os.access(path, os.X_OK) else 0o644)
    except OSError as error:
        raise BaselineError(f"{copy}: cannot be written ({error.strerror}); make room or set XDG_CACHE_HOME") from None
    return copy


def run_baseline(
    folder: Path,
    clips: Sequence[Clip],
    progress: Progress,
    *,
    configs: Sequence[str] = CONFIGS,
    noise: Noise | None = None,
) -> list[BaselineRun]:
    """Play the clips (all of one folder) to each configuration in real time. Raises `BaselineError`."""
    with tempfile.TemporaryDirectory(prefix="wren-bench-") as work:
        place = Path(work)
        sounds = clips[0].path.parent if noise is None else _write_noisy(place, clips, noise)
        _write_manifest(place / "clips.tsv", clips)
        out = place / "out.json"
        command = [str(folder / _SCRIPT), str(sounds), str(place / "clips.tsv"), str(out)]
        command += ["--configs", ",".join(configs), "--match", ".*"]
        _run(command, place / "stderr", clips, len(configs), progress, {} if noise is None else _FLOOR_TAIL)
        try:
            body = json.loads(out.read_text(encoding="utf-8"))
            return [_parse(config, body["results"][config], clips) for config in configs]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BaselineError(
                f"{folder / _SCRIPT}: its result is not as agreed ({type(error).__name__}: {error})"
            ) from None


def _run(
    command: Sequence[str],
    stderr: Path,
    clips: Sequence[Clip],
    passes: int,
    progress: Progress,
    environment: Mapping[str, str],
) -> None:
    names = {clip.name[:38].strip() for clip in clips}
    total, done = passes * len(clips), 0
    progress(_STARTING, 0, None)
    limit_s = _SETUP_LIMIT_S + _CLIP_LIMIT_S * total
    with stderr.open("wb") as errors, _program(command, errors, environment, limit_s) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.split(" ", 1)[0] in names:
                done += 1
                progress(_STAGE, done, total)
        code = process.wait()
    if code == -signal.SIGKILL:
        raise BaselineError(f"{command[0]} was ended: not done after {limit_s:.0f} s (or killed for memory)")
    if code:
        lines = stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
        environment_at = Path(command[0]).parent / _ENVIRONMENT
        # The program looks only whether an environment is there: one left half made would stay so.
        hint = f" (if that was left half made: rm -r {environment_at})" if environment_at.is_dir() else ""
        raise BaselineError(f"{command[0]} failed with code {code}: {lines[-1][:_ERROR_CHARS]}{hint}")


@contextlib.contextmanager
def _program(
    command: Sequence[str], stderr: Any, environment: Mapping[str, str], limit_s: float
) -> Iterator[subprocess.Popen[str]]:
    """The running program, in a process group of its own; if it still runs at the end, or too long, it is ended."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
            start_new_session=True,
        )
    except OSError as error:
        raise BaselineError(f"{command[0]} cannot be run ({error.strerror})") from None

    def end() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)

    watch = threading.Timer(limit_s, end)
    watch.daemon = True
    watch.start()
    with process:
        try:
            yield process
        finally:
            watch.cancel()
            end()


def _write_manifest(path: Path, clips: Sequence[Clip]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("file", "transcript", "speech_end_s"))
        writer.writerows((clip.name, clip.transcript, clip.speech_end_s) for clip in clips)


def _write_noisy(place: Path, clips: Sequence[Clip], noise: Noise) -> Path:
    """The very sound that Wren heard, under the same names."""
    import soundfile

    folder = place / "clips"
    for clip in clips:
        path = folder / clip.name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noisy(clip, noise), RATE_HZ, subtype="PCM_16", format="FLAC")
    return folder


def _parse(config: str, result: Mapping[str, Any], clips: Sequence[Clip]) -> BaselineRun:
    known = {clip.name: clip for clip in clips}
    rows = tuple(_result(known[row["file"]], row) for row in result["rows"])
    if len(rows) != len(clips):
        raise ValueError(f"{len(rows)} rows for {len(clips)} clips")
    return BaselineRun(config, rows, float(result["rss_mb"]) * _MIB_MB)


def _result(clip: Clip, row: Mapping[str, Any]) -> ClipResult:
    """One of its rows; right is what it calls right (what its own agent makes of the reference text, in its home)."""
    endpoint, text, intent, audio = (
        float(row[name]) * 1000.0 for name in ("t_endpoint", "t_transcript", "t_intent", "t_audio")
    )
    split = Split(endpoint, text - endpoint, intent - text, audio - intent, 0.0, audio, audio - endpoint)
    cut = endpoint < -CUT_S * 1000.0
    acted, right = row["intent"] is not None, bool(row["ok"])
    return ClipResult(
        clip=clip,
        heard=str(row["heard"]),
        actions=(Action(str(row["intent"]), dict(row["slots"])),) if acted else (),
        right=right,
        wrong_action=acted and not right,
        cut=cut,
        split=None if cut else split,
        endpoint_reason="rule" if row["endpointed"] else "end of the recording",
        reply=str(row["reply"]),
        cpu_s=float(row["cpu"]),
        others_cores=float(row["others_cpu"]),
        ahead=None,
        dropped_frames=0,
        error=None,
    )
