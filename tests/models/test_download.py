"""Downloads over a real server on this machine: ranges, cuts, changes, caps, redirects, stalls."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from models.download import Downloader, Expected
from models.errors import FetchError
from tests.models.conftest import sha256

CONTENT = bytes(range(251)) * 4000
"""A million bytes that repeat nowhere in a power of two: a wrong offset shows."""


@dataclass
class Server:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    etag: str | None = '"one"'
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    """Bytes of each answer in turn after which the connection is cut."""
    claim: int | None = None
    """Content-Length to claim."""
    redirect: str | None = None
    status: int | None = None
    stall_s: float = 0.0
    asked: list[str | None] = field(default_factory=list)
    """The Range of each request."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/model.bin"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            del format, args

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            server.asked.append(wanted)
            self.close_connection = True
            if server.redirect is not None:
                self.send_response(302)
                self.send_header("Location", server.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if server.status is not None:
                self.send_error(server.status)
                return
            start = 0
            if wanted and server.ranges and self.headers.get("If-Range") in (None, server.etag):
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(server.content):
                self.send_error(416)
                return
            body = server.content[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
            if server.etag:
                self.send_header("ETag", server.etag)
            self.send_header("Content-Length", str(server.claim or len(body)))
            self.end_headers()
            time.sleep(server.stall_s)
            self.wfile.write(body[: server.cut_after.pop(0)] if server.cut_after else body)

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    real = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.port = real.server_address[1]
    thread = threading.Thread(target=real.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield state
    real.shutdown()
    thread.join()
    real.server_close()


@pytest.fixture
def fetch(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def call(stall_s: float = 5.0, **expected: object) -> Path:
        downloader = Downloader(stall_s=stall_s, pause_s=0.01, plain_http_hosts=frozenset((server.host,)))
        known = {"max_bytes": 10_000_000, **expected}
        downloader.fetch(server.url, tmp_path / "model.bin", Expected(**known), lambda done, total: None)  # type: ignore[arg-type]
        return tmp_path / "model.bin"

    return call


def test_a_file_comes_whole_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    downloader = Downloader(plain_http_hosts=frozenset((server.host,)))
    expected = Expected(10_000_000, len(CONTENT), sha256(CONTENT))
    downloader.fetch(server.url, tmp_path / "m", expected, lambda done, total: seen.append((done, total)))
    assert (tmp_path / "m").read_bytes() == CONTENT
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    # Another call, for another file of the same pack has failed, say, asks the server nothing.
    downloader.fetch(server.url, tmp_path / "m", expected, lambda done, total: None)
    assert len(server.asked) == 1


def test_a_cut_connection_is_taken_up_where_it_was_cut(server: Server, fetch: Callable[..., Path]) -> None:
    server.cut_after = [300_000, 200_000]
    assert fetch(sha256=sha256(CONTENT)).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_a_later_call_goes_on_too(server: Server, fetch: Callable[..., Path], tmp_path: Path) -> None:
    server.cut_after = [100_000, 0, 0, 0]
    with pytest.raises(FetchError, match="100000 bytes are kept"):
        fetch()
    assert (tmp_path / "model.bin").stat().st_size == 100_000
    assert fetch().read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=100000-"


def test_two_versions_are_never_put_together(server: Server, fetch: Callable[..., Path]) -> None:
    server.cut_after = [100_000, 0, 0, 0]
    with pytest.raises(FetchError):
        fetch()
    server.content, server.etag = CONTENT[::-1], '"two"'
    assert fetch().read_bytes() == CONTENT[::-1]


def test_without_a_version_or_a_checksum_it_starts_again(server: Server, fetch: Callable[..., Path]) -> None:
    server.etag, server.cut_after = None, [100_000]
    assert fetch().read_bytes() == CONTENT
    assert server.asked == [None, None]


def test_a_server_without_ranges_serves_too(server: Server, fetch: Callable[..., Path]) -> None:
    server.ranges, server.cut_after = False, [100_000]
    assert fetch().read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(fetch: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="does not have sha256"):
        fetch(sha256="0" * 64)
    assert not list(tmp_path.iterdir())


def test_a_wrong_size_leaves_nothing(fetch: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="were expected"):
        fetch(size=7)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("claimed", [True, False])
def test_what_is_too_large_is_not_kept(
    server: Server, fetch: Callable[..., Path], tmp_path: Path, claimed: bool
) -> None:
    if not claimed:
        server.claim = 50_000  # the server lies; the client reads no more than it was told
        assert fetch(max_bytes=60_000).stat().st_size == 50_000
        return
    with pytest.raises(FetchError, match="more than the 60000 allowed"):
        fetch(max_bytes=60_000)
    assert not list(tmp_path.iterdir())


def test_a_stalled_server_is_given_up(server: Server, fetch: Callable[..., Path]) -> None:
    server.stall_s = 1.0
    with pytest.raises(FetchError, match="timed out"):
        fetch(stall_s=0.1)


def test_no_such_file_is_said_at_once(server: Server, fetch: Callable[..., Path]) -> None:
    server.status = 404
    with pytest.raises(FetchError, match="404"):
        fetch()
    assert len(server.asked) == 1


def test_a_fault_of_the_server_is_tried_again(server: Server, fetch: Callable[..., Path]) -> None:
    server.status = 503
    with pytest.raises(FetchError, match="503"):
        fetch()
    assert len(server.asked) == 4


@pytest.mark.parametrize("target", ["http://127.0.0.2:1/x", "file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_leads_only_to_https(server: Server, fetch: Callable[..., Path], target: str) -> None:
    server.redirect = target
    with pytest.raises(FetchError, match=r"only https is fetched|302"):
        fetch()


@pytest.mark.parametrize("url", ["http://example.org/x", "file:///etc/passwd", "model.bin"])
def test_only_https_is_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchError, match="only https"):
        Downloader().fetch(url, tmp_path / "x", Expected(10), lambda done, total: None)
