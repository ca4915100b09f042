"""Trust on first use: what was seen of files whose checksum nobody could say beforehand."""

from __future__ import annotations

import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from models.catalogue import Pack
from models.errors import PackCorruptError
from models.files import sha256_of, write_whole
from models.sources import PackFile

__all__ = ["Pin", "forget_pin", "pinned", "read_pin", "write_pin"]


class Pin(BaseModel):
    """`pins/<pack id>.json`: the files as they were when the user first consented to them."""

    model_config = ConfigDict(frozen=True)

    pack: str
    seen: str
    """When, UTC."""
    source: str
    """Where from."""
    files: tuple[PackFile, ...]


def read_pin(root: Path, pack_id: str) -> Pin | None:
    """What was pinned, or None. Raises `PackCorruptError` for a pin that cannot be read: trust is not renewed alone."""
    path = _path(root, pack_id)
    try:
        return Pin.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise PackCorruptError(
            f"{path} cannot be read: what was seen of {pack_id} is not known; "
            f"run: wren models remove --forget {pack_id}"
        ) from error


def write_pin(root: Path, pack: Pack, folder: Path, source: str) -> Pin:
    """Pin the pack's files as they lie in `folder`."""
    rows = tuple(
        PackFile(name=n, size=(folder / n).stat().st_size, sha256=sha256_of(folder / n)) for n in pack.unverified
    )
    seen = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    pin = Pin(pack=pack.id, seen=seen, source=source, files=rows)
    path = _path(root, pack.id)
    write_whole(path, pin.model_dump_json(indent=2).encode() + b"\n")
    return pin


def forget_pin(root: Path, pack_id: str) -> None:
    """Take the next thing seen for the right one, again only with consent."""
    _path(root, pack_id).unlink(missing_ok=True)


def pinned(pack: Pack, pin: Pin | None) -> Pack:
    """The pack with its files' checksums, where they are known by now."""
    if not pack.unverified or pin is None or {f.name for f in pin.files} != set(pack.unverified):
        return pack
    return pack.model_copy(update={"files": pin.files, "unverified": ()})


def _path(root: Path, pack_id: str) -> Path:
    return root / "pins" / f"{pack_id}.json"
