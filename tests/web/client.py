"""A client of the page's API and WebSocket, as a program would write one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import aiohttp
import numpy as np

from appliance.app import Wren
from appliance.audio.frame import Samples
from tests.web.running import TOKEN, RunningPage

BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}
BLOCK_S: Final = 0.02

T = TypeVar("T")


@asynccontextmanager
async def http(page: RunningPage, headers: dict[str, str] = BEARER) -> AsyncIterator[aiohttp.ClientSession]:
    """A session on the page's address that gives up after a while."""
    async with aiohttp.ClientSession(
        page.address,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=60),
        cookie_jar=aiohttp.CookieJar(unsafe=True),
    ) as session:
        yield session


async def error_of(response: aiohttp.ClientResponse) -> tuple[int, str, str]:
    """Status, code and message of a refused request."""
    error = (await response.json())["error"]
    return response.status, error["code"], error["message"]


@dataclass
class Talker:
    """One open WebSocket; keeps what it was sent."""

    socket: aiohttp.ClientWebSocketResponse
    messages: list[dict[str, Any]] = field(default_factory=list)
    sound: bytes = b""

    async def send(self, **message: object) -> None:
        """A text message."""
        await self.socket.send_str(json.dumps(message))

    async def until(self, kind: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """Read until a message of this type."""
        async with asyncio.timeout(timeout_s):
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.sound += message.data
                elif message.type is aiohttp.WSMsgType.TEXT:
                    self.messages.append(json.loads(message.data))
                    if self.messages[-1]["type"] == kind:
                        return self.messages[-1]
                else:
                    raise AssertionError(f"closed with {self.socket.close_code} before {kind!r}: {self.messages}")

    async def closed(self, timeout_s: float = 10.0) -> int | None:
        """Read until the server closes; gives the code."""
        async with asyncio.timeout(timeout_s):
            async for message in self.socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self.messages.append(json.loads(message.data))
        return self.socket.close_code

    async def speak(self, samples: Samples, rate_hz: int, encode: Callable[[Samples], bytes]) -> None:
        """Send sound at the pace at which it is spoken."""
        block, loop = int(BLOCK_S * rate_hz), asyncio.get_running_loop()
        start_s = loop.time()
        for number, at in enumerate(range(0, samples.size, block)):
            await asyncio.sleep(max(0.0, start_s + number * BLOCK_S - loop.time()))
            await self.socket.send_bytes(encode(samples[at : at + block]))

    @property
    def types(self) -> list[str]:
        """Types of the messages so far."""
        return [message["type"] for message in self.messages]


@asynccontextmanager
async def talker(page: RunningPage, headers: dict[str, str] = BEARER) -> AsyncIterator[Talker]:
    """Open the WebSocket."""
    async with http(page, headers) as session, session.ws_connect("/ws", max_msg_size=0) as socket:
        yield Talker(socket)


def s16le(samples: Samples) -> bytes:
    """16-bit samples."""
    return np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def f32le(samples: Samples) -> bytes:
    """Float samples."""
    return samples.astype("<f4").tobytes()


def spoken(wren: Wren, text: str, rate_hz: int, *, lead_s: float = 0.6, tail_s: float = 4.0) -> Samples:
    """A text said in a quiet room, at a rate, with quiet around it: [n] float32."""
    from appliance.audio.resample import MonoResampler

    synthesiser = wren.synthesiser()
    resampler = MonoResampler(synthesiser.rate_hz, rate_hz)
    voice = np.concatenate((resampler.push(synthesiser.whole(text)), resampler.flush()))
    before, after = (np.zeros(int(seconds * rate_hz), dtype=np.float32) for seconds in (lead_s, tail_s))
    sound = np.concatenate((before, voice, after))
    room = np.random.default_rng(1).standard_normal(sound.size).astype(np.float32) * np.float32(6e-4)
    noisy: Samples = (sound + room).astype(np.float32)
    return noisy


def heard_by(wren: Wren, sound: Samples, rate_hz: int) -> str:
    """What Wren's own recogniser hears in a sound."""
    from appliance.audio.resample import MonoResampler

    resampler = MonoResampler(rate_hz)
    recogniser = wren.recogniser()
    recogniser.push_samples(np.concatenate((resampler.push(sound), resampler.flush())))
    return recogniser.flush().text


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run one, with an end to it."""
    return asyncio.run(asyncio.wait_for(scenario, 120))
