"""Buckets, outboxes and connections: each bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from appliance.app import Wren
from appliance.web import connections, outbox
from appliance.web.errors import WebStartError
from appliance.web.limits import MAX_PEERS, Bucket, PeerBuckets, Rate
from appliance.web.outbox import Outbox
from tests.web.client import http, run
from tests.web.running import RunningPage, page_settings, running_page


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bucket_grants_its_burst_and_then_its_rate() -> None:
    clock = FakeClock()
    bucket = Bucket(Rate(burst=3, per_s=2), clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now_s += 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock.now_s += 1000
    assert bucket.take(3)
    assert bucket.empty


def test_peers_are_apart_and_bounded() -> None:
    peers = PeerBuckets(Rate(burst=1, per_s=0), FakeClock())
    assert peers.of("a").take()
    assert not peers.of("a").take()
    assert peers.of("b").take()
    for number in range(MAX_PEERS):
        peers.of(f"peer {number}")
    assert peers.of("a").take()


def test_an_outbox_keeps_the_order_from_any_thread_and_wakes_its_reader() -> None:
    async def scenario() -> list[str | bytes]:
        box = Outbox(asyncio.get_running_loop())

        def fill() -> None:
            for number in range(500):
                box.put(f"{number}", b"sound")
            box.close()

        thread = threading.Thread(target=fill)
        thread.start()
        taken = []
        while (message := await box.take()) is not None:
            taken.append(message)
        thread.join()
        return taken

    taken = run(scenario())
    assert taken[::2] == [str(number) for number in range(500)]
    assert set(taken[1::2]) == {b"sound"}


def test_an_outbox_that_nobody_empties_is_spoilt_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_BYTES", 1000)

    async def scenario() -> None:
        box = Outbox(asyncio.get_running_loop())
        for _ in range(100):
            box.put(bytes(100))
        assert box.spoilt
        assert await box.take() is None

    run(scenario())


def test_a_session_may_speak_after_the_page_and_its_loop_have_gone() -> None:
    async def make() -> Outbox:
        return Outbox(asyncio.get_running_loop())

    box = run(make())
    box.put("too late")
    box.put("again")


def _line(page: RunningPage) -> socket.socket:
    address = urlsplit(page.address)
    return socket.create_connection((address.hostname, address.port), timeout=10)


def test_a_connection_that_asks_nothing_is_closed(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.3)
    started_s = time.monotonic()
    with _line(page) as silent, _line(page) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert silent.recv(1) == b""
        assert slow.recv(1) == b""
    assert time.monotonic() - started_s < 3


def test_a_connection_that_asked_is_kept(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.2)

    async def scenario() -> None:
        async with http(page) as session:
            for _ in range(3):
                async with session.get("/api/traces") as response:
                    assert response.status == 200
                await asyncio.sleep(0.3)

    run(scenario())


def test_too_many_connections_are_refused_and_later_ones_served(
    page: RunningPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 5)
    lines = [_line(page) for _ in range(5)]
    time.sleep(0.2)
    with _line(page) as refused, contextlib.suppress(ConnectionResetError):  # either way of saying no
        assert refused.recv(1) == b""
    for line in lines:
        line.close()
    time.sleep(0.2)

    async def scenario() -> int:
        async with http(page) as session, session.get("/api/traces") as response:
            return response.status

    assert run(scenario()) == 200


def test_an_address_that_is_taken_or_not_ours_is_told_with_what_to_do(wren: Wren, page: RunningPage) -> None:
    port = urlsplit(page.address).port
    for settings in (page_settings(port=port), page_settings(host="192.0.2.1")):
        with pytest.raises(WebStartError, match=r"wren config set web\.port"), running_page(wren, settings):
            pass
