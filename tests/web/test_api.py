"""State, traces, typed text, speech and recordings over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import socket
import time
import wave
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile

from appliance.app import Wren
from appliance.web import MachineState, api, upload
from tests.web.client import error_of, heard_by, http, run, spoken
from tests.web.running import TOKEN, RunningPage, running_page

LIGHTS = "please turn on the kitchen lights"


def wav_of(samples: np.ndarray, rate_hz: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, "PCM_16", format="WAV")
    return file.getvalue()


def test_the_state_names_models_licences_and_what_is_degraded(wren: Wren) -> None:
    async def scenario(page: RunningPage) -> dict[str, object]:
        async with http(page) as session, session.get("/api/state") as response:
            return dict(await response.json())

    machine = MachineState("muted", ("The voice is the plain one.",))
    with running_page(wren, machine=lambda: machine) as page:
        state = run(scenario(page))
    assert state["microphone"] == "muted"
    assert state["degraded"] == ["The voice is the plain one."]
    assert state["sessions"] == {}
    models = state["models"]
    assert isinstance(models, list)
    assert {model["task"] for model in models} == {"asr", "vad", "tts", "wake"}
    assert all(model["licence"] for model in models)


def test_the_machines_microphone_is_muted_through_its_switch(page: RunningPage) -> None:
    async def ask(muted: object) -> tuple[int, dict[str, object]]:
        async with http(page) as session, session.post("/api/mute", json={"muted": muted}) as response:
            return response.status, dict(await response.json())

    status, answer = run(ask(True))
    assert status == 409
    assert answer["error"]["code"] == "web.no_microphone"  # type: ignore[index]
    asked: list[bool] = []

    class FakeSwitch:
        def mute(self, muted: bool) -> None:
            asked.append(muted)

    page.service.microphone = FakeSwitch()
    assert run(ask(True)) == (200, {"microphone": "absent"})
    assert run(ask(False))[0] == 200
    assert run(ask("yes"))[0] == 400
    assert asked == [True, False]


def test_a_typed_command_acts_and_is_answered(page: RunningPage) -> None:
    async def scenario() -> tuple[dict[str, object], bytes]:
        async with http(page) as session:
            async with session.post("/api/text", json={"text": "  turn on the kitchen lights "}) as response:
                answer = await response.json()
            async with session.get(answer["say"]) as response:
                assert response.content_type == "audio/wav"
                return answer, await response.read()

    answer, sound = run(scenario())
    assert answer["text"] == "turn on the kitchen lights"
    assert (answer["intent"], answer["ok"]) == ("HassTurnOn", True)
    assert answer["slots"] == {"area": "Kitchen", "domain": "light"}
    pcm = np.frombuffer(sound[44:], dtype="<i2").astype(np.float32) / 32768
    assert "lights" in heard_by(page.service.wren, pcm, int.from_bytes(sound[24:28], "little"))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"text"', b'{"text": 3}', b'{"text": ""}', b'{"text": "   "}',
        b'{"text": "x", "more": 1}', b"\xff\xfe", b'{"text": "' + b"x" * 501 + b'"}', b"[" * 8000,
        gzip.compress(b'{"text": "what time is it"}'),
    ],
)  # fmt: skip
def test_a_body_that_is_no_command_is_refused(page: RunningPage, body: bytes) -> None:
    async def scenario() -> None:
        async with http(page) as session:
            for headers in ({}, {"Content-Encoding": "gzip"}):
                async with session.post("/api/text", data=body, headers=headers) as response:
                    status, code, message = await error_of(response)
                    assert (status, code) == (400, "web.request")
                    assert "\n" not in message

    run(scenario())


def test_a_body_that_is_too_long_is_refused_whether_it_says_so_or_not(page: RunningPage) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 1000

    async def scenario() -> None:
        async with http(page) as session:
            for data in (b"x" * 20_000, endless()):
                async with session.post("/api/text", data=data) as response:
                    assert (await error_of(response))[:2] == (413, "web.too_large")

    run(scenario())


def test_ten_gigabytes_are_refused_before_they_are_sent(page: RunningPage) -> None:
    address = urlsplit(page.address)
    started_s = time.monotonic()
    with socket.create_connection((address.hostname, address.port), timeout=5) as line:
        head = (
            f"POST /api/file?name=big.wav HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: 10000000000\r\n\r\n"
        )
        line.sendall(head.encode())
        answer = line.recv(4096)
    assert b"413" in answer.split(b"\r\n")[0]
    assert time.monotonic() - started_s < 2


def test_a_body_that_never_comes_is_not_waited_for(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BODY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(upload, "UPLOAD_TIMEOUT_S", 0.2)

    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(2)
        yield b"}"

    async def scenario() -> None:
        async with http(page) as session:
            for path in ("/api/text", "/api/file"):
                async with session.post(path, data=stuck()) as response:
                    status, code, message = await error_of(response)
                    assert (status, code) == (400, "web.request")
                    assert "not complete" in message

    run(scenario())


def test_speech_begins_before_it_is_whole(page: RunningPage) -> None:
    long_text = "The kitchen lights are on. The front door is locked. The heating is set to twenty degrees. " * 3

    async def scenario() -> tuple[float, float]:
        async with http(page) as session:
            started_s = time.monotonic()
            async with session.get("/api/say", params={"text": long_text}) as response:
                head = await response.content.readexactly(2048)
                first_s = time.monotonic() - started_s
                assert head[:4] == b"RIFF"
                await response.read()
                return first_s, time.monotonic() - started_s

    first_s, whole_s = run(scenario())
    assert first_s < whole_s / 2


@pytest.mark.parametrize("text", ["", " ", "x" * 1001])
def test_what_cannot_be_said_is_refused(page: RunningPage, text: str) -> None:
    async def scenario() -> None:
        async with http(page) as session, session.get("/api/say", params={"text": text}) as response:
            assert (await error_of(response))[:2] == (400, "web.request")

    run(scenario())


def test_a_recording_is_heard(page: RunningPage) -> None:
    wav = wav_of(spoken(page.service.wren, LIGHTS, 44_100, tail_s=0.5), 44_100)

    async def scenario() -> dict[str, object]:
        async with (
            http(page) as session,
            session.post("/api/file", params={"name": "../../etc/lights.wav"}, data=wav) as response,
        ):
            assert response.status == 200
            return dict(await response.json())

    record = run(scenario())
    assert record["file"] == "lights.wav"
    assert "kitchen lights" in str(record["transcript"]).lower()
    assert (record["intent"], record["error"]) == ("HassTurnOn", None)
    assert record["say"]
    traces = record["traces"]
    assert isinstance(traces, list)
    assert [stage["name"] for stage in traces[0]["stages"]] == [
        "speech", "endpoint", "recognition", "intent", "action", "synthesis",
    ]  # fmt: skip
    assert page.service.sessions() == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [(b"", "empty"), (b"this is no sound" * 100, "not audio"), (wav_of(np.zeros(1600), 16_000)[:-900], "truncated")],
)
def test_what_is_no_recording_is_told_without_our_own_paths(page: RunningPage, body: bytes, told: str) -> None:
    async def scenario() -> str:
        async with http(page) as session, session.post("/api/file?name=x.wav", data=body) as response:
            return str((await response.json())["error"])

    error = run(scenario())
    assert told in error
    assert error.startswith("x.wav: ")
    assert "wren-upload" not in error


def test_a_recording_larger_than_the_limit_is_cut_off(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_BYTES", 100_000)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(10_000):
            yield b"x" * 10_000

    async def scenario() -> None:
        async with http(page) as session, session.post("/api/file", data=endless()) as response:
            assert (await error_of(response))[:2] == (413, "web.too_large")

    run(scenario())


def test_a_recording_longer_than_the_limit_is_told(page: RunningPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_RECORDING_S", 0.5)
    wav = wav_of(np.zeros(16_000), 16_000)

    async def scenario() -> str:
        async with http(page) as session, session.post("/api/file?name=x.wav", data=wav) as response:
            return str((await response.json())["error"])

    assert "longer than" in run(scenario())


def test_one_recording_at_a_time_and_a_client_that_goes_frees_the_place(page: RunningPage) -> None:
    # Ten minutes of speech take a minute to hear; the client does not wait for it.
    sentence = spoken(page.service.wren, LIGHTS, 16_000, tail_s=1.5)
    long_wav = wav_of(np.tile(sentence, int(590 * 16_000 / sentence.size)), 16_000)
    short_wav = wav_of(np.zeros(1600), 16_000)

    async def scenario() -> float:
        async with http(page) as session:
            waiting = asyncio.create_task(session.post("/api/file", data=long_wav))
            await asyncio.sleep(2)
            async with session.post("/api/file", data=short_wav) as response:
                assert (await error_of(response))[:2] == (503, "web.busy")
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            started_s = time.monotonic()
            while True:
                async with session.post("/api/file", data=short_wav) as response:
                    if response.status == 200:
                        return time.monotonic() - started_s
                await asyncio.sleep(0.1)

    assert run(scenario()) < 15


def test_unknown_addresses_and_methods_are_answered_as_json(page: RunningPage) -> None:
    async def scenario() -> None:
        async with http(page) as session:
            async with session.get("/api/nothing") as response:
                assert (await error_of(response))[:2] == (404, "web.http_404")
            async with session.put("/api/text") as response:
                assert (await error_of(response))[:2] == (405, "web.http_405")
                assert response.headers["Allow"] == "POST"
            async with session.get("/ws") as response:
                assert (await error_of(response))[:2] == (400, "web.http_400")

    run(scenario())


def test_wave_files_of_the_standard_library_can_read_what_we_say(page: RunningPage) -> None:
    async def scenario() -> bytes:
        async with http(page) as session, session.get("/api/say", params={"text": "hello"}) as response:
            return await response.read()

    sound = run(scenario())
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 22_050)
