"""The WebSocket: a whole conversation, two at once, and clients that do not behave."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from socket import SHUT_RDWR

import aiohttp
import numpy as np
import pytest

from appliance.app import Wren
from appliance.events import MACHINE, EngineChanged, HeatChanged
from appliance.service import MAX_SESSIONS
from appliance.web import broadcast, conversation, player
from tests.web.client import Talker, error_of, f32le, heard_by, http, run, s16le, spoken, talker
from tests.web.running import RunningPage, running_page

LIGHTS = "please turn on the kitchen lights"
CLOCK = "what time is it"
MAX_POOL = 6
"""Threads that asyncio keeps for blocking calls on two cores."""


async def no_sessions(page: RunningPage, timeout_s: float = 3.0) -> float:
    """Wait until all are closed; gives how long it took."""
    started_s = time.monotonic()
    while page.service.sessions():
        assert time.monotonic() - started_s < timeout_s, page.service.sessions()
        await asyncio.sleep(0.02)
    return time.monotonic() - started_s


def vanish(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Cut the line without a word."""
    socket.get_extra_info("socket").shutdown(SHUT_RDWR)


async def converse(page: RunningPage, text: str, rate_hz: int, encoding: str) -> Talker:
    """Speak into a page and wait for the end, as a well-behaved page does."""
    encode = s16le if encoding == "s16le" else f32le
    sound = spoken(page.service.wren, text, rate_hz)
    async with talker(page) as talk:
        await talk.send(type="start", rate_hz=rate_hz, encoding=encoding)
        await talk.until("started")
        await hear_out(talk, talk.speak(sound, rate_hz, encode))
    return talk


async def hear_out(talk: Talker, speaking: Coroutine[object, object, None]) -> None:
    """Take the answer to what is being said, and end the session."""
    speaker = asyncio.create_task(speaking)
    ending = await talk.until("audio_end")
    await talk.send(type="played", generation=ending["generation"])
    await talk.until("trace")
    speaker.cancel()
    await talk.send(type="stop")
    await talk.until("stopped")


def test_a_spoken_command_is_heard_understood_and_answered_in_sound(page: RunningPage) -> None:
    talk = run(converse(page, LIGHTS, 48_000, "f32le"))
    told = {message["type"]: message for message in talk.messages}
    assert "kitchen lights" in told["text"]["text"].lower()
    assert (told["intent"]["intent"], told["intent"]["slots"]["area"]) == ("HassTurnOn", "Kitchen")
    assert "lights" in told["reply"]["text"]
    assert told["ended"]["outcome"] == "answered"
    assert told["trace"]["response_ms"] > 0
    order = ["started", "listening", "speech_started", "speech_ended", "endpoint", "intent", "reply", "audio",
             "first_audio", "audio_end", "playback_ended", "ended", "trace", "stopped"]  # fmt: skip
    assert [kind for kind in talk.types if kind in order and kind != "speech_ended"] == [
        kind for kind in order if kind != "speech_ended"
    ]
    phases = [message["phase"] for message in talk.messages if "phase" in message]
    assert phases == ["listening", "thinking", "speaking", "idle"]
    pcm = np.frombuffer(talk.sound, dtype="<i2").astype(np.float32) / 32768
    assert "lights" in heard_by(page.service.wren, pcm, told["audio"]["rate_hz"])
    assert page.service.sessions() == {}


def test_two_pages_at_once_each_get_their_own(page: RunningPage) -> None:
    async def scenario() -> list[Talker]:
        return await asyncio.gather(converse(page, LIGHTS, 44_100, "s16le"), converse(page, CLOCK, 16_000, "s16le"))

    lights, clock = run(scenario())
    for talk, word, other in ((lights, "lights", "time"), (clock, "time", "lights")):
        texts = [message["text"].lower() for message in talk.messages if message["type"] == "text"]
        assert any(word in text for text in texts)
        assert not any(other in text for text in texts)
        # What befalls the machine (a busy one steps down) is told to every page; of conversations each has its own.
        assert len({message["session"] for message in talk.messages if "session" in message} - {MACHINE}) == 1


def test_a_page_that_watches_sees_other_sessions_without_their_sound(page: RunningPage) -> None:
    async def scenario() -> Talker:
        async with talker(page) as watcher:
            await watcher.send(type="watch", sessions="all")
            await converse(page, CLOCK, 16_000, "s16le")
            await watcher.until("trace")
            return watcher

    watcher = run(scenario())
    assert {"listening", "text", "reply", "ended"} <= set(watcher.types)
    assert "audio" not in watcher.types
    assert not watcher.sound


def test_what_happens_to_the_machine_is_told_to_every_page(page: RunningPage) -> None:
    async def scenario() -> None:
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000, encoding="s16le")
            await talk.until("started")
            emit = page.service.hub.emit
            emit(EngineChanged(time.monotonic(), MACHINE, "asr.decoder", "ort-cpu fp32", "it gave no numbers"))
            engine = await talk.until("engine")
            assert (engine["task"], engine["engine"], engine["session"]) == ("asr.decoder", "ort-cpu fp32", "machine")
            emit(HeatChanged(time.monotonic(), MACHINE, "hot", "hot: one thread an engine"))
            assert (await talk.until("heat"))["level"] == "hot"

    run(scenario())


@pytest.mark.parametrize(
    "hostile",
    [
        "", "{", "null", "[]", '"start"', "{}", '{"type": "nothing"}', '{"type": "start"}',
        '{"type": "start", "rate_hz": 0}', '{"type": "start", "rate_hz": 1e9}', '{"type": "start", "rate_hz": "48000"}',
        '{"type": "start", "rate_hz": 48000, "encoding": "mp3"}', '{"type": "start", "rate_hz": 48000, "more": 1}',
        '{"type": "missed", "samples": 0}', '{"type": "missed"}',
        '{"type": "played"}', '{"type": "played", "generation": 1e400}', '{"type": "watch", "sessions": "none"}',
        "[" * 4000, "x" * 5000, b"\0\0", '{"type": "stop", "type": "start"}',
    ],
)  # fmt: skip
def test_a_message_that_is_none_gets_a_typed_error_and_ends_that_page_only(
    page: RunningPage, hostile: str | bytes
) -> None:
    async def scenario() -> None:
        async with talker(page) as good, talker(page) as bad:
            if isinstance(hostile, bytes):
                await bad.socket.send_bytes(hostile)
            else:
                await bad.socket.send_str(hostile)
            assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
            refusal = next(message for message in bad.messages if message["type"] == "error")
            assert (refusal["code"], refusal["fatal"]) == ("web.protocol", True)
            await good.send(type="start", rate_hz=16_000, wake=True)
            await good.until("started")

    run(scenario())


@pytest.mark.parametrize(
    ("encoding", "block"),
    [
        ("s16le", b""), ("s16le", b"\0"), ("f32le", b"\0\0"),
        ("f32le", np.array([np.nan], "<f4").tobytes()), ("f32le", np.array([np.inf], "<f4").tobytes()),
    ],
)  # fmt: skip
def test_sound_that_is_none_ends_the_page_and_its_session(page: RunningPage, encoding: str, block: bytes) -> None:
    async def scenario() -> None:
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000, encoding=encoding)
            await talk.until("listening")
            await talk.socket.send_bytes(block)
            assert await talk.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
            assert "web.protocol" in [message.get("code") for message in talk.messages]
        assert page.service.sessions() == {}

    run(scenario())


def test_a_message_that_is_too_large_ends_the_page(page: RunningPage) -> None:
    async def scenario() -> None:
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("started")
            await talk.socket.send_bytes(bytes(100_000))
            assert await talk.closed() == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        await no_sessions(page)

    run(scenario())


def test_too_much_of_anything_ends_the_page(page: RunningPage) -> None:
    async def flood(talk: Talker) -> None:
        await talk.send(type="start", rate_hz=16_000)
        await talk.until("started")
        for _ in range(40):
            await talk.socket.send_bytes(bytes(32_000))  # a second each

    async def presses(talk: Talker) -> None:
        for _ in range(40):
            await talk.send(type="listen")

    async def twice(talk: Talker) -> None:
        for _ in range(2):
            await talk.send(type="start", rate_hz=16_000)

    async def scenario() -> None:
        for misuse in (flood, presses, twice):
            async with talker(page) as talk:
                await misuse(talk)
                assert await talk.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION, misuse.__name__
                # Events of the session may still come after the refusal, on a busy machine.
                assert "web.protocol" in [message.get("code") for message in talk.messages]

    run(scenario())
    assert page.service.sessions() == {}


def test_a_page_that_vanishes_takes_its_session_with_it(page: RunningPage) -> None:
    async def scenario() -> float:
        async with http(page) as session:
            socket = await session.ws_connect("/ws")
            talk = Talker(socket)
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("listening")
            assert list(page.service.sessions()) == ["browser"]
            vanish(socket)
            return await no_sessions(page)

    assert run(scenario()) < 1


def test_a_page_that_goes_while_its_session_opens_leaves_none_behind(page: RunningPage) -> None:
    async def scenario() -> None:
        for _ in range(5):
            async with http(page) as session:
                talk = Talker(await session.ws_connect("/ws"))
                await talk.send(type="start", rate_hz=16_000, wake=True)
                vanish(talk.socket)
        await asyncio.sleep(1.0)
        await no_sessions(page)

    run(scenario())


def test_a_command_with_a_hole_in_it_that_the_page_tells_of_is_understood(
    page: RunningPage, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> Talker:
        sound = spoken(page.service.wren, LIGHTS, 16_000)
        hole = slice(round(1.2 * 16_000), round(1.24 * 16_000))
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("started")

            async def speak() -> None:
                await talk.speak(sound[: hole.start], 16_000, s16le)
                await talk.send(type="missed", samples=hole.stop - hole.start)
                await talk.speak(sound[hole.stop :], 16_000, s16le)

            await hear_out(talk, speak())
        return talk

    talk = run(scenario())
    assert "HassTurnOn" in [message["intent"] for message in talk.messages if message["type"] == "intent"]
    assert " of sound missing, 0.04 made up" in caplog.text


def test_a_reply_that_is_never_reported_as_played_ends_all_the_same(
    page: RunningPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player, "PLAYED_GRACE_S", 0.2)

    async def scenario() -> Talker:
        sound = spoken(page.service.wren, CLOCK, 16_000)
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("started")
            speaking = asyncio.create_task(talk.speak(sound, 16_000, s16le))
            await talk.until("audio_end")
            ended = await talk.until("ended")
            assert ended["outcome"] == "answered"
            speaking.cancel()
            return talk

    run(scenario())


def test_pressing_while_wren_speaks_interrupts_it(page: RunningPage) -> None:
    async def scenario() -> Talker:
        sound = spoken(page.service.wren, CLOCK, 16_000, tail_s=8)
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("started")
            speaking = asyncio.create_task(talk.speak(sound, 16_000, s16le))
            await talk.until("first_audio")
            await talk.send(type="listen")
            await talk.until("audio_stop")
            await talk.until("listening")
            speaking.cancel()
            return talk

    talk = run(scenario())
    assert [m["outcome"] for m in talk.messages if m["type"] == "ended"] == ["stopped"]


def test_a_microphone_that_falls_silent_does_not_listen_for_ever(
    page: RunningPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "NO_SOUND_S", 0.5)
    monkeypatch.setattr(conversation, "UNUSED_S", 0.5)

    async def scenario() -> None:
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            assert "no sound" in (await talk.until("stopped"))["reason"]
            assert page.service.sessions() == {}
            # What was under way when the session was closed does no harm.
            await talk.socket.send_bytes(bytes(640))
            await talk.send(type="listen")
            await talk.send(type="start", rate_hz=16_000, wake=True)
            assert "not used" in (await talk.until("stopped"))["reason"]

    run(scenario())


def test_more_sessions_than_wren_takes_are_refused_and_the_page_may_try_again(page: RunningPage) -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as group, talker(page) as last:
            gate = asyncio.Event()

            async def hold() -> None:
                async with talker(page) as talk:
                    await talk.send(type="start", rate_hz=16_000, wake=True)
                    await talk.until("started")
                    await gate.wait()

            for _ in range(MAX_SESSIONS):
                group.create_task(hold())
            while len(page.service.sessions()) < MAX_SESSIONS:
                await asyncio.sleep(0.05)
            await last.send(type="start", rate_hz=16_000)
            error = await last.until("error")
            assert (error["code"], error["fatal"], error["retry"]) == ("appliance.sessions", False, True)
            gate.set()
            while len(page.service.sessions()) == MAX_SESSIONS:
                await asyncio.sleep(0.05)
            await last.send(type="start", rate_hz=16_000, wake=True)
            await last.until("started")

    run(scenario())


def test_more_pages_than_wren_takes_are_refused(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_PAGES", 2)

    async def scenario() -> None:
        async with talker(page), talker(page), http(page) as session:
            headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
            async with session.get("/ws", headers=headers) as response:
                assert (await error_of(response))[:2] == (503, "web.busy")

    run(scenario())


def test_a_page_that_does_not_read_is_closed_and_others_go_on(
    page: RunningPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance.web import outbox

    monkeypatch.setattr(outbox, "MAX_BYTES", 4000)

    async def scenario() -> Talker:
        async with talker(page) as deaf:
            await deaf.send(type="start", rate_hz=16_000)
            # A piece of a reply is more than may wait.
            sound = spoken(page.service.wren, CLOCK, 16_000)
            await deaf.until("started")
            speaking = asyncio.create_task(deaf.speak(sound, 16_000, s16le))
            code = await deaf.closed(20)
            speaking.cancel()
            assert code == aiohttp.WSCloseCode.TRY_AGAIN_LATER
        monkeypatch.setattr(outbox, "MAX_BYTES", 4 << 20)
        return await converse(page, CLOCK, 16_000, "s16le")

    assert "reply" in run(scenario()).types
    assert page.service.sessions() == {}


def test_when_wren_stops_pages_are_told_and_their_sessions_end(wren: Wren) -> None:
    def serve(opened: queue.Queue[RunningPage], leave: threading.Event, left: queue.Queue[float]) -> None:
        with running_page(wren) as page:
            opened.put(page)
            leave.wait(20)
            started_s = time.monotonic()
        left.put(time.monotonic() - started_s)

    async def scenario() -> None:
        opened: queue.Queue[RunningPage] = queue.Queue()
        leave, left = threading.Event(), queue.Queue[float]()
        serving = asyncio.create_task(asyncio.to_thread(serve, opened, leave, left))
        page = await asyncio.to_thread(opened.get)
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000, wake=True)
            await talk.until("started")
            leave.set()
            assert await talk.closed() == aiohttp.WSCloseCode.GOING_AWAY
        await serving
        assert left.get() < 5
        assert page.service.sessions() == {}

    run(scenario())


def test_pages_that_come_and_go_leave_nothing_behind(page: RunningPage) -> None:
    async def visit() -> None:
        async with talker(page) as talk:
            await talk.send(type="start", rate_hz=16_000)
            await talk.until("listening")
            await talk.socket.send_bytes(bytes(6400))

    def held() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    run(visit())
    threads, files = held()
    for _ in range(8):
        run(asyncio.wait_for(_many(visit, 3), 60))
    deadline_s = time.monotonic() + 5
    while (page.service.sessions() or held()[0] > threads + MAX_POOL) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert page.service.sessions() == {}
    # The pool of the page's own loop may have grown; the sessions' threads, two each, are gone.
    assert held()[0] <= threads + MAX_POOL
    assert held()[1] <= files + 2


async def _many(visit: Callable[[], Coroutine[None, None, None]], count: int) -> None:
    await asyncio.gather(*(visit() for _ in range(count)))
