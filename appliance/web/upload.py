"""A recording handed to the page: streamed to a temporary file, then heard as if it were live."""

from __future__ import annotations

import asyncio
import errno
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from aiohttp import web

from appliance.app import Wren
from appliance.audio.frame import Frame
from appliance.errors import AudioFormatError
from appliance.web.api import say_url
from appliance.web.context import CONTEXT
from appliance.web.errors import BusyError, DiskFullError, RequestError, TooLargeError
from appliance.web.records import trace_record

__all__ = ["post_file"]

MAX_BYTES: Final = 64 << 20
UPLOAD_TIMEOUT_S: Final = 120.0
MAX_RECORDING_S: Final = 600.0
"""Silence is packed so well that the size alone does not bound the time it takes to hear a file."""
WRITE_BYTES: Final = 1 << 20
SUFFIXES: Final = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif"})
NAME_LENGTH: Final = 100


async def post_file(request: web.Request) -> web.Response:
    """`POST /api/file?name=…&wake=0|1` with the recording as its body."""
    context = request.app[CONTEXT]
    name = _shown_name(request.query.get("name", "recording"))
    wake = request.query.get("wake", "0")
    if wake not in {"0", "1"}:
        raise RequestError("wake is 0 (the recording is addressed to Wren) or 1 (it waits for the wake word)")
    if (request.content_length or 0) > MAX_BYTES:
        raise TooLargeError(f"a recording is at most {MAX_BYTES >> 20} MB")
    if context.files.locked():
        raise BusyError("another recording is being heard; try again when it is done")
    async with context.files:
        with tempfile.TemporaryDirectory(prefix="wren-upload-") as folder:
            path = Path(folder) / f"recording{_suffix(name)}"
            await _receive(request, path)
            record = await _hear(context.service.wren, path, name, wake=wake == "1")
    return web.json_response(record)


async def _receive(request: web.Request, path: Path) -> None:
    size = 0
    waiting = bytearray()
    try:
        with path.open("wb") as file:
            async with asyncio.timeout(UPLOAD_TIMEOUT_S):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MAX_BYTES:
                        raise TooLargeError(f"a recording is at most {MAX_BYTES >> 20} MB")
                    waiting += chunk
                    if len(waiting) >= WRITE_BYTES:
                        waiting = await _write(file, waiting)
            await _write(file, waiting)
    except TimeoutError:
        raise RequestError(f"the recording was not complete after {UPLOAD_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFullError(
                "no room for the recording; free some space in the folder for temporary files"
            ) from None
        raise


async def _write(file: BinaryIO, data: bytearray) -> bytearray:
    """Write in a thread (a slow card must not stop the page); gives an empty buffer."""
    await asyncio.to_thread(file.write, data)
    return bytearray()


async def _hear(wren: Wren, path: Path, name: str, *, wake: bool) -> dict[str, object]:
    from appliance.recording import file_frames, hear

    gone = threading.Event()

    def frames() -> Iterator[Frame]:
        for frame in file_frames(path):
            if gone.is_set():
                return
            if frame.time_s >= MAX_RECORDING_S:
                raise AudioFormatError(f"{name}: longer than {MAX_RECORDING_S / 60:.0f} minutes; cut it in pieces")
            yield frame

    hearing = asyncio.create_task(asyncio.to_thread(hear, wren, name, frames(), wake=wake))
    try:
        heard = await asyncio.shield(hearing)
    finally:
        # Nobody waits for it any more: let it end, and only then take its file away.
        gone.set()
        await asyncio.wait({hearing})
    record = heard.record()
    if heard.error is not None:
        record["error"] = heard.error.replace(str(path), name)
    record["traces"] = [trace_record(trace) for trace in heard.utterances]
    record["say"] = say_url(None if heard.chosen is None else heard.chosen.reply)
    return record


def _shown_name(name: str) -> str:
    """The last part of a path, printable and short: it is shown, and never used as a path."""
    last = PurePosixPath(name.replace("\\", "/")).name
    return "".join(letter for letter in last if letter.isprintable())[:NAME_LENGTH] or "recording"


def _suffix(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if suffix in SUFFIXES else ""
