"""Downloading one file over HTTPS: resumed where it was cut, size-capped, never redirected to plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from models import files
from models.errors import FetchError

__all__ = ["Downloader", "Expected"]

STALL_S = 60.0
"""Longest silence of a server."""
TOTAL_S = 6 * 3600.0
"""Longest download: a gigabyte over a slow line."""
ATTEMPTS = 4
"""Tries within one call; each goes on where the one before was cut."""
_CHUNK = 1 << 18
_PAUSE_S = 1.0
"""Before the second try; doubled for each further one."""
_MAX_REDIRECTS = 8

Report = Callable[[int, int | None], None]
"""Bytes so far, and in all (None where unknown)."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a file beforehand."""

    max_bytes: int
    size: int | None = None
    sha256: str | None = None


class _CutError(Exception):
    """The transfer stopped before the end; what has come is kept."""


class _TooLargeError(Exception):
    """More bytes than allowed; nothing of them is kept."""


class Downloader:
    """Fetches files by HTTPS. The system's proxy settings and certificates hold."""

    def __init__(
        self,
        *,
        stall_s: float = STALL_S,
        total_s: float = TOTAL_S,
        pause_s: float = _PAUSE_S,
        plain_http_hosts: frozenset[str] = frozenset(),
    ) -> None:
        """`plain_http_hosts`: `host:port` of servers asked without encryption (a mirror on this machine)."""
        self._stall_s, self._total_s, self._pause_s = stall_s, total_s, pause_s
        self._plain = plain_http_hosts
        self._opener = urllib.request.build_opener(_Redirects(self._refuse_plain))

    def fetch(self, url: str, target: Path, expected: Expected, report: Report) -> None:
        """Bring `url` to `target`, going on from what lies there of an earlier try.

        A file `target.json` beside it remembers the address, the server's word for the version, and whether all has
        come: then nothing is asked of the server. A file that is not the expected one is removed. Raises `FetchError`.
        """
        self._refuse_plain(url)
        if _is_complete(url, target, expected):
            report(_length(target), _length(target))
            return
        started, pause = time.monotonic(), self._pause_s
        for attempt in range(ATTEMPTS):
            had = _length(target)
            try:
                self._transfer(url, target, expected, report, started)
            except _CutError as error:
                if attempt == ATTEMPTS - 1:
                    raise FetchError(
                        f"{url}: {error}; {_length(target)} bytes are kept, fetch again to go on from there"
                    ) from error
                if _length(target) == had:
                    # Nothing came at all: give the server a moment.
                    time.sleep(pause)
                    pause *= 2
            else:
                break
        if expected.size is not None and _length(target) != expected.size:
            size = _length(target)
            _forget(target)
            raise FetchError(f"{url}: {size} bytes where {expected.size} were expected: not used")
        if expected.sha256 is not None and files.sha256_of(target) != expected.sha256:
            _forget(target)
            raise FetchError(f"{url}: does not have sha256 {expected.sha256}: not used")
        _memory(target).write_text(json.dumps({"url": url, "complete": _length(target)}), encoding="utf-8")

    def _refuse_plain(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "https" or (parts.scheme == "http" and parts.netloc in self._plain):
            return
        raise FetchError(f"{url}: only https is fetched")

    def _transfer(self, url: str, target: Path, expected: Expected, report: Report, started: float) -> None:
        request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "wren"})
        at = self._resume_from(url, target, expected, request)
        try:
            with contextlib.closing(self._opener.open(request, timeout=self._stall_s)) as response:
                at, total = _start(response, at, expected)
                _memory(target).write_text(json.dumps({"url": url, "version": _version(response)}), encoding="utf-8")
                with target.open("ab" if at else "wb") as out:
                    self._copy(response, out, at, total, url, expected, report, started)
        except _TooLargeError as error:
            _forget(target)
            raise FetchError(f"{url}: {error}: not used") from error
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and at:
                if at == expected.size:
                    return  # all of it had come before
                _forget(target)
                raise _CutError("the server's file has changed") from error
            if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
                raise _CutError(f"the server says {error.code} {error.reason}") from error
            raise FetchError(f"{url}: the server says {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise _CutError(f"cannot be downloaded ({reason})") from error

    @staticmethod
    def _resume_from(url: str, target: Path, expected: Expected, request: urllib.request.Request) -> int:
        """Where to go on, asked of the server in the request's headers."""
        at = _length(target)
        known = _remembered(target)
        # Without a version or a checksum, two halves of two files could be put together.
        if not at or known.get("url") != url or not (known.get("version") or expected.sha256):
            return 0
        request.add_header("Range", f"bytes={at}-")
        if known.get("version"):
            request.add_header("If-Range", known["version"])
        return at

    def _copy(
        self,
        response: Any,
        out: IO[bytes],
        at: int,
        total: int | None,
        url: str,
        expected: Expected,
        report: Report,
        started: float,
    ) -> None:
        report(at, total)
        while chunk := response.read(_CHUNK):
            at += len(chunk)
            if at > expected.max_bytes:
                raise _TooLargeError(f"larger than the {expected.max_bytes} bytes allowed")
            out.write(chunk)
            report(at, total)
            if time.monotonic() - started > self._total_s:
                raise FetchError(f"{url}: took longer than {self._total_s:.0f} s")
        if total is not None and at < total:
            raise _CutError(f"the connection was cut after {at} of {total} bytes")


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _MAX_REDIRECTS

    def __init__(self, refuse_plain: Callable[[str], None]) -> None:
        self._refuse_plain = refuse_plain

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        self._refuse_plain(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _start(response: Any, at: int, expected: Expected) -> tuple[int, int | None]:
    """Where the answer's bytes begin, and how long the whole file is. Raises `_TooLargeError`."""
    length = response.headers.get("Content-Length")
    total = int(length) if length is not None and length.isdigit() else None
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        unit, _, span = response.headers.get("Content-Range", "").partition(" ")
        first = span.partition("-")[0]
        if unit != "bytes" or not first.isdigit() or int(first) != at:
            raise _CutError("the server answered with another range than was asked for")
        total = None if total is None else at + total
    else:
        at = 0  # the server sends it all: the file has changed, or it knows no ranges
    if total is not None and total > expected.max_bytes:
        raise _TooLargeError(f"{total} bytes, more than the {expected.max_bytes} allowed")
    return at, total


def _version(response: Any) -> str | None:
    """A validator that may stand in If-Range: a strong entity tag, else the date (RFC 9110, 13.1.5)."""
    tag: str | None = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    date: str | None = response.headers.get("Last-Modified")
    return date


def _is_complete(url: str, target: Path, expected: Expected) -> bool:
    known = _remembered(target)
    if known.get("url") != url or known.get("complete") != _length(target):
        return False
    return expected.sha256 is None or files.is_whole(target, known["complete"], expected.sha256)


def _remembered(target: Path) -> dict[str, Any]:
    try:
        known = json.loads(_memory(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _memory(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _forget(target: Path) -> None:
    target.unlink(missing_ok=True)
    _memory(target).unlink(missing_ok=True)
