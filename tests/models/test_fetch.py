"""Fetching with pip: the command line, and what is made of pip's output, good and bad."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from models import load_catalogue
from models.catalogue import RegistryPackage
from models.errors import FetchError, StoreFullError
from models.fetch import PipFetcher

MOONSHINE = next(s for s in load_catalogue().get("moonshine-base-en").sources if isinstance(s, RegistryPackage))
SILERO = next(s for s in load_catalogue().get("silero-vad").sources if isinstance(s, RegistryPackage))


class FakePip(PipFetcher):
    """Runs a Python script in pip's place."""

    def __init__(self, script: str, *, stall_s: float = 30.0) -> None:
        super().__init__(stall_s=stall_s)
        self._script = script

    def command(self, source: RegistryPackage, requirement: Path, folder: Path) -> list[str]:  # type: ignore[override]
        return [sys.executable, "-c", self._script, str(folder), source.wheel]


def _fetch(fetcher: PipFetcher, folder: Path) -> tuple[Path, list[tuple[int, int | None]]]:
    seen: list[tuple[int, int | None]] = []
    return fetcher.fetch(SILERO, folder, lambda stage, done, total: seen.append((done, total))), seen


def test_a_wheel_of_another_platform_is_asked_for_by_its_tags() -> None:
    command = PipFetcher.command(MOONSHINE, Path("r.txt"), Path("out"))
    assert command[command.index("--platform") + 1] == "manylinux2014_x86_64"
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(command)


def test_a_wheel_for_any_platform_is_asked_for_plainly_and_no_registry_is_named() -> None:
    command = PipFetcher.command(SILERO, Path("r.txt"), Path("out"))
    assert "--platform" not in command
    assert not any("index" in word or "://" in word for word in command)


def test_progress_is_read_from_pip_and_never_goes_past_the_known_size(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; print('Collecting x'); print('Progress 1000 of 11317527');"
        "print('Progress 99999999 of 99999999'); pathlib.Path(sys.argv[1], sys.argv[2]).write_bytes(b'PK')"
    )
    wheel, seen = _fetch(FakePip(script), tmp_path)
    assert wheel.read_bytes() == b"PK"
    assert seen == [(0, SILERO.size), (1000, SILERO.size), (SILERO.size, SILERO.size), (SILERO.size, SILERO.size)]


def test_the_requirement_pins_version_and_checksum(tmp_path: Path) -> None:
    script = "import sys, pathlib; pathlib.Path(sys.argv[1], sys.argv[2]).write_bytes(b'PK')"
    _fetch(FakePip(script), tmp_path)
    assert (tmp_path / "requirement.txt").read_text() == f"silero-vad==6.2.3 --hash=sha256:{SILERO.sha256}\n"


@pytest.mark.parametrize(
    ("said", "error", "answer"),
    [
        ("ERROR: No matching distribution found for silero-vad==6.2.3", FetchError, "No matching.*check the network"),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: No matching distribution found",
            FetchError,
            "the package registry cannot be reached",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", FetchError, "does not have the expected sha256"),
        ("ERROR: Could not install: [Errno 28] No space left on device", StoreFullError, "11317527 bytes needed"),
        ("/usr/bin/python3: No module named pip", FetchError, "has no pip; install pip"),
        ("", FetchError, "cannot be downloaded"),
    ],
)
def test_pips_failure_becomes_one_line_that_says_why(
    tmp_path: Path, said: str, error: type[Exception], answer: str
) -> None:
    script = f"import sys; print('Collecting'); print({said!r}, file=sys.stderr); sys.exit(1)"
    with pytest.raises(error, match=answer) as caught:
        _fetch(FakePip(script), tmp_path)
    assert "\n" not in str(caught.value)


def test_pip_ending_well_without_the_wheel_is_an_error(tmp_path: Path) -> None:
    script = "import sys, pathlib; pathlib.Path(sys.argv[1], 'other.whl').write_bytes(b'PK')"
    with pytest.raises(FetchError, match=r"got other\.whl"):
        _fetch(FakePip(script), tmp_path)


def test_a_download_that_no_longer_moves_is_ended(tmp_path: Path) -> None:
    script = (
        "import os, time, pathlib, sys; pathlib.Path(sys.argv[1], 'pid').write_text(str(os.getpid())); time.sleep(60)"
    )
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"nothing moved for \d+ s"):
        _fetch(FakePip(script, stall_s=1.5), tmp_path)
    assert time.monotonic() - started < 20
    pid = (tmp_path / "pid").read_text()
    assert subprocess.run(["kill", "-0", pid], capture_output=True, check=False).returncode != 0


def test_pips_temporary_files_go_into_the_folder_that_is_cleaned_up(tmp_path: Path) -> None:
    script = (
        "import sys, tempfile, pathlib; open(tempfile.mkstemp()[1], 'w');"
        "pathlib.Path(sys.argv[1], sys.argv[2]).write_bytes(b'PK')"
    )
    _fetch(FakePip(script), tmp_path)
    assert any(p.name.startswith("tmp") for p in tmp_path.iterdir())
