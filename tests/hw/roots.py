"""Roots for the probe's tests: made ones, and copies of the shared boards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[3] / "shared" / "boards"

ORIN = {
    "proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd42\n\n" * 1,
    "proc/meminfo": "MemTotal:        7802880 kB\nMemAvailable:    5976000 kB\nSwapTotal:             0 kB\n",
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64\n",
    "etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
}
"""A small Jetson."""


def names(kind: str) -> list[str]:
    """Names of the shared `boards` or `broken` roots; one that does not exist where the folder is absent."""
    folder = SHARED / kind
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else ["absent"]


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """Files under a root."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def copy(source: Path, target: Path) -> Path:
    """A copy that can be changed, with what its MAKE.json adds."""
    shutil.copytree(source, target, symlinks=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o700)
    make = target / "MAKE.json"
    for row in json.loads(make.read_text()) if make.is_file() else ():
        _make(target / row["path"], row)
    return target


def _make(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if row["op"] == "symlink":
        path.unlink(missing_ok=True)
        path.symlink_to(row["target"])
    elif row["op"] in ("fifo", "mkfifo"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    elif row["op"] in ("mode", "chmod"):
        path.chmod(int(str(row["mode"]), 8))
    else:
        raise AssertionError(f"an operation that these tests do not know: {row}")


def sealed(facts: dict[str, Any]) -> str:
    """The facts as JSON, having checked that they can be written and shown: UTF-8, and no control characters."""
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")
    _printable(facts)
    return text


def _printable(value: Any) -> None:
    if isinstance(value, str):
        assert value.isprintable(), repr(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            _printable(key)
            _printable(part)
    elif isinstance(value, list | tuple):
        for part in value:
            _printable(part)
