"""Who gets in, and who does not."""

from __future__ import annotations

import logging
import re

import aiohttp
import pytest

from appliance.app import Wren
from appliance.settings import Settings
from appliance.web import MachineState, make_app
from appliance.web.errors import WebStartError
from tests.web.client import BEARER, error_of, http, run, talker
from tests.web.running import TOKEN, RunningPage, page_settings, running_page

API = ["/api/state", "/api/traces", "/api/say?text=x", "/ws"]


def test_nothing_of_the_api_is_open_without_the_token(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page, {}) as session:
            for path in API:
                async with session.get(path) as response:
                    assert (await error_of(response))[:2] == (401, "web.auth"), path
            for path in ("/api/text", "/api/file"):
                async with session.post(path, data=b"{}") as response:
                    assert (await error_of(response))[:2] == (401, "web.auth"), path
            async with session.get("/") as response:
                assert response.status == 401
                assert "This page is locked" in await response.text()

    run(scenario())


def test_the_printed_link_gives_a_cookie_that_opens_the_page_and_is_not_the_token(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page, {}) as session:
            async with session.get(page.server.link, allow_redirects=False) as response:
                assert (response.status, response.headers["Location"]) == (302, "/")
                cookie = response.headers["Set-Cookie"]
                assert "HttpOnly" in cookie
                assert "SameSite=Strict" in cookie
                assert TOKEN not in cookie
            async with session.get("/") as response:
                assert response.status == 200
                assert 'id="talk"' in await response.text()
            async with session.get("/api/state") as response:
                assert response.status == 200

    run(scenario())


def test_a_wrong_token_is_refused_and_guessing_is_stopped(page: RunningPage) -> None:
    async def scenario() -> list[int]:
        statuses = []
        async with http(page, {}) as session:
            for number in range(15):
                async with session.get(f"/?token=guess-{number}") as response:
                    statuses.append(response.status)
            async with session.get(page.server.link) as response:
                statuses.append(response.status)
            async with session.get("/static/style.css") as response:
                assert response.status == 200
        return statuses

    assert run(scenario()) == [401] * 10 + [429] * 6


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:10380", 200),
        ("192.168.1.20:10380", 200),
        ("Wren.Example:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("localhost@evil.example", 421),
        ("a" * 3000, 421),
    ],
)
def test_a_name_that_is_not_ours_is_refused(wren: Wren, host: str, status: int) -> None:
    async def scenario(page: RunningPage) -> None:
        async with http(page) as session, session.get("/api/state", headers={"Host": host}) as response:
            assert response.status == status
            if status != 200:
                assert (await error_of(response))[1] == "web.host"

    with running_page(wren, page_settings(host_names=["wren.example"])) as page:
        run(scenario(page))


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, 403), ("{own}", 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)],
)
def test_another_sites_page_cannot_use_the_cookie(page: RunningPage, origin: str | None, status: int) -> None:
    own = page.address.rstrip("/")

    async def scenario() -> None:
        async with http(page, {}) as session:
            await session.get(page.server.link)
            headers = {} if origin is None else {"Origin": origin.format(own=own)}
            async with session.post("/api/text", json={"text": "what time is it"}, headers=headers) as response:
                assert response.status == status
            try:
                async with session.ws_connect("/ws", headers=headers):
                    opened = 200
            except aiohttp.WSServerHandshakeError as error:
                opened = error.status
            assert opened == status

    run(scenario())


def test_a_program_with_the_token_needs_no_origin(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page) as session, session.post("/api/text", json={"text": "what time is it"}) as response:
            assert response.status == 200
        async with talker(page):
            pass

    run(scenario())


def test_every_answer_carries_the_headers_and_nothing_comes_from_elsewhere(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page) as session:
            for path in ("/", "/static/main.js", "/api/state", "/nowhere", "/?token=wrong"):
                async with session.get(path) as response:
                    policy = response.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "unsafe" not in policy
                    assert response.headers["X-Content-Type-Options"] == "nosniff"
                    assert response.headers["Cache-Control"] in {"no-store", "no-cache"}
                    assert "aiohttp" not in response.headers["Server"]
                    assert not re.findall(r"https?://(?!www\.w3\.org|localhost)", await response.text()), path

    run(scenario())


def test_static_files_are_only_those(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page) as session:
            for path in ("/static/", "/static/%2e%2e/index.html", "/static/..%2f..%2fapp.py", "/static//etc/passwd"):
                async with session.get(aiohttp.client.URL(page.address.rstrip("/") + path, encoded=True)) as response:
                    assert response.status in {403, 404}, path

    run(scenario())


def test_a_flood_is_slowed_down(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page) as session:
            # Until the first refusal: on a busy machine the allowance grows again while the flood goes on.
            for number in range(4000):
                async with session.get("/api/traces") as response:
                    if response.status == 429:
                        assert number > 0
                        assert response.headers["Retry-After"] == "1"
                        return
                    assert response.status == 200
            pytest.fail("four thousand requests at once were all answered")

    run(scenario())


def test_the_token_is_never_logged(wren: Wren, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> MachineState:
        raise ZeroDivisionError

    async def scenario(page: RunningPage) -> None:
        async with http(page, {}) as session:
            await session.get(page.server.link)
            await session.get(f"/?token={TOKEN}wrong")
            await session.get(f"/nowhere?token={TOKEN}", headers=BEARER)
            # A fault inside: the query must not come along with it.
            async with session.get(f"/api/state?token={TOKEN}", headers=BEARER) as response:
                assert (await error_of(response))[:2] == (500, "internal")

    with caplog.at_level(logging.DEBUG), running_page(wren, machine=broken) as page:
        run(scenario(page))
    assert "GET /api/state could not be answered" in caplog.text
    assert TOKEN not in caplog.text


def test_without_a_token_there_is_no_page(page: RunningPage) -> None:
    with pytest.raises(WebStartError, match="no token"):
        make_app(page.service, Settings())
