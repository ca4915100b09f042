"""The page in a real Chromium: a spoken command goes in at its microphone, and its loudspeaker gets the answer."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from appliance.app import Wren, WrenSettings
from appliance.voice.parts import SessionSettings
from tests.peers.chromium import OTHER_NAME, Wire, chromium, need_chromium, speak_into
from tests.web.client import heard_by
from tests.web.running import TOKEN, RunningPage, page_settings, running_page

LIGHTS = "switch on the kitchen lights"
CLOCK = "what time is it"
PATIENCE_MS = 20_000
PHONE = {"width": 360, "height": 740}


@pytest.fixture(autouse=True)
def _need_chromium() -> None:
    need_chromium()


@pytest.fixture(scope="module")
def served(wren: Wren) -> Iterator[RunningPage]:
    with running_page(wren) as page:
        yield page


@pytest.fixture(scope="module")
def lights_wav(wren: Wren, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody asks for light a second after the microphone is opened, and then for a long time nothing."""
    file = tmp_path_factory.mktemp("sound") / "lights.wav"
    speak_into(wren, file, LIGHTS, lead_s=1.0, tail_s=20.0)
    return file


class Tab:
    """An open page, and what it complained of."""

    def __init__(self, browser: Browser, served: RunningPage, **context: object) -> None:
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.context: BrowserContext = browser.new_context(**context)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.wire = Wire(self.page)
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )

        def asked(url: str) -> None:
            if not url.startswith(served.address):
                self.elsewhere.append(url)

        self.page.on("request", lambda request: asked(request.url))
        self.page.goto(served.server.link)
        expect(self.page.locator("#machine")).to_be_visible(timeout=PATIENCE_MS)

    def told(self, kind: str) -> list[dict[str, object]]:
        """Messages of a type that the server sent."""
        texts = [json.loads(message) for message in self.wire.received if isinstance(message, str)]
        return [message for message in texts if message["type"] == kind]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Let the browser go on until something is so."""
        deadline_s = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            assert time.monotonic() < deadline_s, f"{what}: {self.wire.received[-5:]}, {self.complaints}"
            self.page.wait_for_timeout(50)

    @property
    def newest(self) -> str:
        """Text of the newest entry of the conversation."""
        return self.page.locator("#list > li").first.inner_text()


def drop(page: Page, file: Path) -> None:
    """Let a file fall on the page, as a hand would."""
    transfer = page.evaluate_handle(
        """([name, base64]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name));
            return transfer;
        }""",
        [file.name, base64.b64encode(file.read_bytes()).decode()],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": transfer})
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})


def test_a_command_spoken_into_the_browser_is_shown_and_answered_in_sound(
    served: RunningPage, lights_wav: Path
) -> None:
    wren = served.service.wren
    with chromium(lights_wav) as (browser,):
        tab = Tab(browser, served)
        page = tab.page
        expect(page.locator("#state")).to_have_text("Press and speak")
        page.locator("#talk").click()
        expect(page.locator("#state")).to_have_text("Listening…", timeout=PATIENCE_MS)
        # A guess at the end may come before the first partial is due; either is shown at once.
        tab.wait(lambda: bool(tab.told("partial") or tab.told("text")), "no text while listening")
        expect(page.locator(".entry .said").first).not_to_be_empty()
        expect(page.locator(".entry .said").first).to_have_text("Switch on the kitchen lights.", timeout=PATIENCE_MS)
        expect(page.locator(".entry .chips").first).to_contain_text("HassTurnOn")
        expect(page.locator(".entry .chips").first).to_contain_text("area: Kitchen")
        expect(page.locator(".entry .reply").first).to_contain_text("lights")
        expect(page.locator(".entry .response").first).to_contain_text("ms", timeout=PATIENCE_MS)
        rows = page.locator(".entry").first.locator(".waterfall tr")
        assert [row.split()[0] for row in rows.all_inner_texts()] == [
            "endpoint", "recognition", "intent", "action", "synthesis", "response",
        ]  # fmt: skip

        # The microphone is let go and the session closed once all is said.
        tab.wait(lambda: bool(tab.told("stopped")), "the session was not closed")
        expect(page.locator("#state")).to_have_text("Press and speak")
        assert served.service.sessions() == {}

        # What the browser was given to play says what the page shows.
        pcm = b"".join(message for message in tab.wire.received if isinstance(message, bytes))
        sound = np.frombuffer(pcm, dtype="<i2").astype(np.float32) / 32768
        rate_hz = tab.told("audio")[0]["rate_hz"]
        assert isinstance(rate_hz, int)
        assert "lights" in heard_by(wren, sound, rate_hz)

        # And it said so when it had played it, not when it had got it.
        played = [json.loads(m) for m in tab.wire.sent if isinstance(m, str) and '"played"' in m]
        assert [message["generation"] for message in played] == [tab.told("audio_end")[0]["generation"]]
        first_ms, over_ms = tab.told("first_audio")[0]["time_ms"], tab.told("playback_ended")[0]["time_ms"]
        assert isinstance(first_ms, int)
        assert isinstance(over_ms, int)
        assert 0.9 * sound.size / rate_hz < (over_ms - first_ms) / 1000 < sound.size / rate_hz + 2
        assert not tab.complaints
        assert not tab.elsewhere


def test_a_typed_command_and_a_dropped_recording_are_answered(served: RunningPage, lights_wav: Path) -> None:
    with chromium(None) as (browser,):
        tab = Tab(browser, served, viewport=PHONE)
        page = tab.page
        page.locator("#text").fill("what is <b>this</b>")
        page.locator("#text").press("Enter")
        expect(page.locator(".entry .said").first).to_have_text("what is <b>this</b>")
        expect(page.locator(".entry .chips").first).to_contain_text("not understood")
        page.locator("#text").fill("turn off the kitchen lights")
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".entry .reply").first).to_contain_text("lights")
        expect(page.locator("#text")).to_be_focused()

        page.locator("#file").set_input_files(lights_wav)
        expect(page.locator(".entry .source").first).to_have_text("Recording lights.wav", timeout=PATIENCE_MS)
        expect(page.locator(".entry .said").first).to_have_text("Switch on the kitchen lights.")
        expect(page.locator(".entry .waterfall").first).to_be_visible()

        # Dropped anywhere on the page, it is heard too.
        drop(page, lights_wav)
        recordings = page.locator(".entry .source", has_text="Recording lights.wav")
        expect(recordings).to_have_count(2, timeout=PATIENCE_MS)

        # The reply can be heard again: it is asked for, and it runs.
        with page.expect_response(lambda response: "/api/say" in response.url) as answer:
            page.locator(".entry .play").first.click()
        assert answer.value.headers["content-type"] == "audio/wav"
        expect(page.get_by_role("button", name="Stop the reply")).to_be_visible()
        expect(page.get_by_role("button", name="Stop the reply")).to_have_count(0, timeout=PATIENCE_MS)

        # A phone's width is enough for all of it.
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        page.locator("#about summary").click()
        # Those that are in use, and the lighter recogniser where it is installed.
        expect(page.locator("#models tr")).to_have_count(4 if served.service.wren.light is None else 5)
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert not tab.complaints


@pytest.mark.slow
def test_two_pages_at_once_are_heard_apart(served: RunningPage, lights_wav: Path, tmp_path: Path) -> None:
    clock_wav = tmp_path / "clock.wav"
    speak_into(served.service.wren, clock_wav, CLOCK, lead_s=1.0, tail_s=20.0)
    with chromium(lights_wav, clock_wav) as browsers:
        first, second = (Tab(browser, served) for browser in browsers)
        first.page.locator("#talk").click()
        second.page.locator("#talk").click()
        for tab, word in ((first, "lights"), (second, "time")):
            tab.wait(lambda tab=tab: bool(tab.told("stopped")), "not answered")  # type: ignore[misc]
            own = tab.told("started")[0]["session"]
            texts = [str(message["text"]).lower() for message in tab.told("text") if message["session"] == own]
            assert texts
            assert all(word in text for text in texts)
            sources = tab.page.locator(".entry .source").all_inner_texts()
            assert "Spoken here" in sources
            assert "Spoken on a page" in sources
            assert not tab.complaints
    assert served.service.sessions() == {}


@pytest.mark.slow
def test_hands_free_waits_for_the_wake_word(served: RunningPage, tmp_path: Path) -> None:
    wav = tmp_path / "wake.wav"
    speak_into(served.service.wren, wav, f"okay nabu, {LIGHTS}", lead_s=1.5, tail_s=20.0)
    with chromium(wav) as (browser,):
        tab = Tab(browser, served)
        page = tab.page
        page.get_by_role("switch").click()
        expect(page.locator("#state")).to_have_text("Waiting for the wake word", timeout=PATIENCE_MS)
        tab.wait(lambda: bool(tab.told("trace")), "it did not wake, or did not answer")
        assert tab.told("wake")[0]["name"] == "okay_nabu"
        assert tab.told("intent")[0]["intent"] == "HassTurnOn"
        # It goes on waiting, until it is switched off.
        expect(page.locator("#state")).to_have_text("Waiting for the wake word")
        assert list(served.service.sessions().values()) == ["idle"]
        page.get_by_role("switch").click()
        tab.wait(lambda: not served.service.sessions(), "the session was not closed")
        expect(page.locator("#state")).to_have_text("Press and speak")
        assert not tab.complaints


@pytest.mark.slow
def test_the_keyboard_is_enough(served: RunningPage, lights_wav: Path) -> None:
    with chromium(lights_wav) as (browser,):
        tab = Tab(browser, served)
        page = tab.page
        page.keyboard.press("Tab")
        expect(page.locator("#talk")).to_be_focused()
        page.keyboard.press("Space")
        expect(page.locator("#state")).to_have_text("Listening…", timeout=PATIENCE_MS)
        expect(page.get_by_role("button", name="Stop")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#state")).to_have_text("Press and speak")
        tab.wait(lambda: not served.service.sessions(), "the session was not closed")
        names = []
        for _ in range(4):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        assert names == ["hands-free", "text", "Send", "file"]


@pytest.mark.slow
def test_a_page_that_may_not_use_a_microphone_says_why(served: RunningPage, wren: Wren, lights_wav: Path) -> None:
    with chromium(None) as (browser,):
        tab = Tab(browser, served)
        tab.page.locator("#talk").click()
        expect(tab.page.locator("#notice")).to_contain_text("no microphone", timeout=PATIENCE_MS)
    with chromium(lights_wav, refuse=True) as (browser,):
        tab = Tab(browser, served)
        tab.page.locator("#talk").click()
        expect(tab.page.locator("#notice")).to_contain_text("Allow it", timeout=PATIENCE_MS)
        expect(tab.page.locator("#state")).to_have_text("Press and speak")
    with running_page(wren, page_settings(host_names=[OTHER_NAME])) as other, chromium(lights_wav) as (browser,):
        page = browser.new_page()
        page.goto(other.server.link.replace("127.0.0.1", OTHER_NAME))
        page.locator("#talk").click()
        expect(page.locator("#notice")).to_contain_text("only to https pages and to localhost")
        page.locator("#text").fill(CLOCK)
        page.locator("#text").press("Enter")
        expect(page.locator(".entry .said").first).to_have_text(CLOCK)
    assert served.service.sessions() == {}


@pytest.mark.slow
def test_a_locked_page_asks_for_the_token(served: RunningPage) -> None:
    with chromium(None) as (browser,):
        page = browser.new_page()
        page.goto(served.address)
        expect(page.get_by_role("heading")).to_have_text("This page is locked")
        page.get_by_label("Token").fill("wrong-token-wrong-token")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("main p")).to_contain_text("not the right one")
        assert "wrong-token" not in page.url
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Open").click()
        expect(page.locator("#talk")).to_be_visible()
        assert page.url == served.address


@pytest.mark.slow
def test_a_page_comes_back_when_wren_does(wren: Wren) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = page_settings(port=port)
    with chromium(None) as (browser,):
        with running_page(wren, settings) as first:
            tab = Tab(browser, first)
        expect(tab.page.locator("#connection")).to_have_text("Connection lost, trying again…", timeout=PATIENCE_MS)
        tab.page.locator("#talk").click()
        expect(tab.page.locator("#notice")).to_contain_text("does not answer")
        with running_page(wren, settings):
            expect(tab.page.locator("#connection")).to_be_hidden(timeout=PATIENCE_MS)
            tab.page.locator("#text").fill(CLOCK)
            tab.page.locator("#text").press("Enter")
            expect(tab.page.locator(".entry .said").first).to_have_text(CLOCK)


@pytest.mark.slow
def test_a_follow_up_is_listened_for_with_the_same_microphone(lights_wav: Path) -> None:
    following = WrenSettings(session=SessionSettings(follow_up=True, follow_up_s=1.5))
    with Wren.open(following) as wren, running_page(wren) as served, chromium(lights_wav) as (browser,):
        tab = Tab(browser, served)
        tab.page.locator("#talk").click()
        tab.wait(lambda: len(tab.told("listening")) == 2, "no follow-up")
        expect(tab.page.locator("#state")).to_have_text("Listening…")
        tab.wait(lambda: len(tab.told("ended")) == 2, "the follow-up did not end")
        assert [message["outcome"] for message in tab.told("ended")] == ["answered", "nothing-heard"]
        tab.wait(lambda: bool(tab.told("stopped")), "the session was not closed")
        expect(tab.page.locator("#state")).to_have_text("I heard nothing. Press and speak")
        assert not tab.complaints
