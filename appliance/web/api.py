"""The HTTP API: state, traces, typed text, speech."""

from __future__ import annotations

import asyncio
import struct
import time
from importlib import metadata
from typing import Annotated, Final, TypeVar
from urllib.parse import quote

import numpy as np
from aiohttp import web
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from appliance.audio.frame import Samples
from appliance.voice.asr.protocol import Cancel
from appliance.web.context import CONTEXT, WebContext
from appliance.web.errors import BusyError, NoMicrophoneError, RequestError, TooLargeError
from appliance.web.records import (
    ahead_record,
    engine_records,
    model_records,
    strain_record,
    trace_record,
    understanding_record,
)

__all__ = ["get_say", "get_state", "get_traces", "post_mute", "post_text", "say_url"]

MAX_TEXT: Final = 500
"""Characters of a typed command."""
MAX_SAY: Final = 1000
"""Characters to be spoken: about a minute."""
MAX_BODY_BYTES: Final = 8 << 10
BODY_TIMEOUT_S: Final = 10.0

_INT16_SCALE: Final = 32767.0
_UNKNOWN_LENGTH: Final = 0xFFFFFFFF
"""In a WAV header: the sound is made while it is sent."""


class _TextRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]


class _MuteRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    muted: bool


Asked = TypeVar("Asked", bound=BaseModel)


async def get_state(request: web.Request) -> web.Response:
    """`GET /api/state`."""
    context = request.app[CONTEXT]
    machine = context.machine()
    return web.json_response(
        {
            "version": metadata.version("wren"),
            "uptime_s": round(time.monotonic() - context.started_s),
            "sessions": context.service.sessions(),
            "microphone": machine.microphone,
            "degraded": list(machine.degraded),
            "area": context.service.wren.area,
            "wake_words": list(context.settings.wake.words),
            "models": model_records(context.service.wren, context.settings),
            "engines": engine_records(context.service.wren),
            "strain": strain_record(context.service.strain.state()),
            "ahead": ahead_record(context.service.speculation.totals),
            "better_plan": machine.better_plan,
            "advice": list(context.service.wren.advice),
            "sensors": [{"name": name, "value": value, "unit": unit} for name, value, unit in machine.readings],
        }
    )


async def get_traces(request: web.Request) -> web.Response:
    """`GET /api/traces`: oldest first."""
    return web.json_response({"traces": [trace_record(trace) for trace in request.app[CONTEXT].service.traces()]})


async def post_text(request: web.Request) -> web.Response:
    """`POST /api/text {"text": …}`: understood, acted on, answered."""
    context = request.app[CONTEXT]
    text = (await _asked(request, _TextRequest, '{"text": "…"}')).text
    if context.texts.locked():
        raise BusyError("as many commands are being carried out as Wren takes; try again in a moment")
    async with context.texts:
        reply = await asyncio.to_thread(context.service.ask, text)
    return web.json_response(
        {
            "text": text,
            **understanding_record(reply.understanding),
            "reply": reply.text,
            "ok": reply.ok,
            "say": say_url(reply.text),
        }
    )


async def post_mute(request: web.Request) -> web.Response:
    """`POST /api/mute {"muted": …}`: really closes this machine's microphone, or opens it again."""
    context = request.app[CONTEXT]
    muted = (await _asked(request, _MuteRequest, '{"muted": true}')).muted
    switch = context.service.microphone
    if switch is None:
        raise NoMicrophoneError("this machine's own microphone is not in use, so there is nothing to mute")
    await asyncio.to_thread(switch.mute, muted)
    return web.json_response({"microphone": context.machine().microphone})


async def get_say(request: web.Request) -> web.StreamResponse:
    """`GET /api/say?text=…`: a 16-bit mono WAV whose start is sent before its end is made."""
    context = request.app[CONTEXT]
    text = request.query.get("text", "").strip()
    if not 1 <= len(text) <= MAX_SAY:
        raise RequestError(f"give 1 to {MAX_SAY} characters as ?text=")
    if context.says.locked():
        raise BusyError("Wren is speaking as much as it can; try again in a moment")
    async with context.says:
        return await _speak(request, context, text)


def say_url(text: str | None) -> str | None:
    """Where a reply can be heard; None where there is nothing to hear."""
    return f"/api/say?text={quote(text[:MAX_SAY])}" if text else None


async def _speak(request: web.Request, context: WebContext, text: str) -> web.StreamResponse:
    synthesiser = await asyncio.to_thread(context.service.wren.synthesiser)
    cancel = Cancel()
    chunks = synthesiser.stream(text, cancel)

    def following() -> Samples | None:
        return next(chunks, None)

    try:
        # The first piece before the answer begins: what cannot be spoken still gets a proper error.
        chunk = await asyncio.to_thread(following)
        response = web.StreamResponse(headers={"Content-Type": "audio/wav", "Cache-Control": "no-store"})
        await response.prepare(request)
        await response.write(_wav_header(synthesiser.rate_hz))
        while chunk is not None:
            await response.write(np.rint(np.clip(chunk, -1.0, 1.0) * _INT16_SCALE).astype("<i2").tobytes())
            chunk = await asyncio.to_thread(following)
        await response.write_eof()
        return response
    finally:
        cancel.cancel()


async def _asked(request: web.Request, kind: type[Asked], example: str) -> Asked:
    if request.content_length is not None and request.content_length > MAX_BODY_BYTES:
        raise TooLargeError(f"a request is at most {MAX_BODY_BYTES} bytes long")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await request.content.read(MAX_BODY_BYTES + 1)
            while len(body) <= MAX_BODY_BYTES and not request.content.at_eof():
                body += await request.content.read(MAX_BODY_BYTES + 1 - len(body))
    except TimeoutError:
        raise RequestError(f"the request was not complete after {BODY_TIMEOUT_S:.0f} s") from None
    if len(body) > MAX_BODY_BYTES:
        raise TooLargeError(f"a request is at most {MAX_BODY_BYTES} bytes long")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise RequestError(f"{where + ': ' if where else ''}{first['msg']}; send {example}") from None


def _wav_header(rate_hz: int) -> bytes:
    """RIFF header of 16-bit mono PCM of unknown length."""
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    return b"".join(
        (
            struct.pack("<4sI4s", b"RIFF", _UNKNOWN_LENGTH, b"WAVE"),
            struct.pack("<4sI", b"fmt ", len(form)),
            form,
            struct.pack("<4sI", b"data", _UNKNOWN_LENGTH),
        )
    )
